-- What configs refuse: values, keys, and all that a sandboxed file might try.
local config = require("neap.config")
local config_text = require("spec.support.config_text")

local load_text, usage_of = config_text.load_text, config_text.usage_of

describe("config refuses", function()
  for set, expected in pairs({
    ["n_layer=0"] = "n_layer is 0; expected a whole number from 1 to 100000",
    ["n_layer=1.5"] = "n_layer is 1.5; expected a whole number from 1 to 100000",
    ["width=abc"] = "width is 'abc'; expected a whole number",
    ["steps=nan"] = "steps is 'nan'; expected a whole number from 1 to 2^40",
    ["steps=-1"] = "steps is -1; expected",
    ["steps=inf"] = "steps is 'inf'; expected",
    ["steps=0x10"] = "steps is '0x10'; expected",
    ["steps=1e300"] = "steps is 1e+300; expected",
    ["lr=1e999"] = "lr is inf; expected a number of 0 or more",
    ["lr=-1"] = "lr is -1; expected a number of 0 or more",
    ["chunk=0"] = "chunk is 0; expected 'auto' or a whole number from 1 to 2^20",
    ["chunk=many"] = "chunk is 'many'; expected 'auto' or",
    ["dropout=1"] = "dropout is 1; expected a number of 0 or more, below 1",
    ["betas=0.9"] = "betas is a table; expected two numbers of 0 or more, below 1",
    ["betas=0.9,1"] = "betas is a table; expected two numbers",
    ["betas=0.9,0.99,0.5"] = "betas is a table; expected two numbers",
    ["betas=a,b"] = "betas is a table; expected two numbers",
    ["seed=9007199254740994"] = "seed is",
    ["threads=0"] = "threads is 0; expected a whole number from 1 to 1024",
    ["device=gpu"] = "device is 'gpu'; expected auto, cpu, null, cuda or cuda:N",
    ["device=cuda:x"] = "device is 'cuda:x'; expected",
    ["dtype=f64"] = "dtype is 'f64'; expected f32, tf32 or bf16",
    ["budget=12 bananas"] = "budget is '12 bananas'; expected bytes like 512MiB, 1.5GiB, 80%",
    ["data="] = "data is ''; expected the path of a file",
    ["checkpoint="] = "checkpoint is ''; expected a policy",
  }) do
    it("--set " .. set, function()
      local message = usage_of(config.load, nil, { set })
      assert.equal("--set " .. set .. ": " .. expected, message:sub(1, #set + 8 + #expected))
    end)
  end

  for _, key in ipairs({ "n_layer", "n_head", "width", "context", "global_batch", "steps",
    "eval_batches", "threads" }) do
    it("zero as " .. key, function()
      assert.matches(key .. " is 0; expected a whole number", usage_of(config.load, nil,
        { key .. "=0" }), 1, true)
    end)
  end

  it("a set without a value", function()
    assert.equal("--set: 'width' names no value; expected key=value",
      usage_of(config.load, nil, { "width" }))
    usage_of(config.load, nil, { "=5" })
  end)

  it("unknown keys, naming the nearest", function()
    assert.matches("unknown key 'widht', did you mean 'width'?", usage_of(config.load, nil,
      { "widht=3" }), 1, true)
    assert.matches("unknown key 'layers'", usage_of(load_text, "return { layers = 3 }"), 1, true)
    assert.matches("unknown key 'stpes', did you mean 'steps'?", usage_of(config.load, nil, nil,
      { stpes = "3" }), 1, true)
  end)

  it("values in the file of another type, naming the file", function()
    assert.matches("^config '[^']+': width is '128'; expected a whole number",
      usage_of(load_text, "return { width = '128' }"))
    assert.matches("betas is 0.9", usage_of(load_text, "return { betas = 0.9 }"), 1, true)
    assert.matches("dtype is 32", usage_of(load_text, "return { dtype = 32 }"), 1, true)
    assert.matches("out is false", usage_of(load_text, "return { out = false }"), 1, true)
    assert.matches("dropout is true", usage_of(load_text, "return { dropout = true }"), 1, true)
    assert.matches("n_layer is a function", usage_of(load_text,
      "return { n_layer = function() end }"), 1, true)
    assert.matches("lr is %-?nan", usage_of(load_text, "return { lr = 0/0 }"))
  end)

  it("values without a name", function()
    assert.matches("it holds a value without a name (5)", usage_of(load_text, "return { 5 }"), 1,
      true)
  end)

  it("functions inside a checkpoint table, and takes data there", function()
    usage_of(load_text, "return { checkpoint = { f = function() end } }")
    usage_of(load_text, "return { checkpoint = { [true] = 1 } }")
    usage_of(load_text, "return { checkpoint = { { { { { 1 } } } } } }")
    assert.is_table(load_text("return { checkpoint = { { { { 1 } } } } }").checkpoint)
    assert.same({ policy = "segments", starts = { 1, 3 } },
      load_text("return { checkpoint = { policy = 'segments', starts = { 1, 3 } } }").checkpoint)
  end)

  it("a width that the heads do not divide", function()
    assert.equal("width 100 is not a multiple of n_head 3; expected heads of equal width",
      usage_of(config.load, nil, { "width=100", "n_head=3" }))
  end)

  it("a learning rate that rises at the end", function()
    assert.matches("min_lr 0.1 is above lr 0.01", usage_of(config.load, nil,
      { "lr=0.01", "min_lr=0.1" }), 1, true)
  end)

  it("options of a wrong type from a script", function()
    assert.matches("option: steps is true", usage_of(config.load, nil, nil, { steps = true }), 1,
      true)
  end)
end)

describe("the config's sandbox", function()
  local function refuses(text, pattern)
    local message = usage_of(load_text, text)
    assert.matches("^config '[^']+': ", message)
    assert.matches(pattern, message, 1, true)
  end

  it("says where a file does not parse", function()
    refuses("return {\n width = \n}", "line 3: unexpected symbol near '}'")
  end)

  it("refuses compiled code", function()
    refuses(string.dump(loadstring("return { width = 64 }")), "it is compiled code")
  end)

  it("refuses files without a table", function()
    refuses("", "it returns nothing, expected one table")
    refuses("return 5", "it returns a number, expected one table")
  end)

  it("names a global that is read or set", function()
    refuses("return { steps = math.huge }", "it reads 'math'")
    refuses("return { device = cpu }", "it reads 'cpu'")
    refuses("width = 128", "it sets 'width', expected one table")
  end)

  it("gives no way to functions of the machine", function()
    for _, name in ipairs({ "os", "io", "require", "getmetatable", "loadstring", "_G", "debug",
      "setmetatable", "pcall", "rawget", "load", "string", "jit" }) do
      refuses("local x = " .. name .. " return {}", "it reads '" .. name .. "'")
    end
  end)

  it("has no string methods", function()
    refuses("return { data = ('x'):rep(1e9) }", "line 1: attempt to index a string value")
    refuses("local s = '' return { data = s.format }", "attempt to index")
    refuses("return { steps = #('x').rep }", "attempt to index")
  end)

  it("ends a loop without end", function()
    refuses("while true do end", "more than 200000 instructions")
    refuses("local function f() return f() end return f()", "more than 200000 instructions")
    refuses("for i = 1, 1e15 do end return {}", "more than 200000 instructions")
  end)

  it("ends a recursion without end", function()
    refuses("local function f() return 1 + f() end return f()", "")
  end)

  it("ends what doubles its memory", function()
    refuses("local s = 'x' while true do s = s .. s end", "more than 1024 KiB of memory")
    refuses("local t = {} for i = 1, 1e6 do t = { t, t, {} } end", "of memory")
  end)

  it("refuses a long file without running it", function()
    local text = "return {} --" .. ("x"):rep(70000)
    assert.matches("is longer than 65536 bytes", usage_of(load_text, text), 1, true)
  end)

  it("puts string methods, hooks and the JIT back, also after a failure", function()
    local hook = function() end
    debug.sethook(hook, "", 1e9)
    pcall(load_text, "while true do end")
    pcall(load_text, "return ('x'):rep(3)")
    load_text("return {}")
    local now = debug.gethook()
    debug.sethook()
    assert.equal(hook, now)
    assert.equal("xxx", ("x"):rep(3))
    assert.is_true((jit.status()))
  end)

  it("lets a config count and join", function()
    local c = load_text("local n = 2 for _ = 1, 3 do n = n * 2 end\n"
      .. "return { width = n * 4, out = 'runs/' .. n }")
    assert.same({ 64, "runs/16" }, { c.width, c.out })
  end)
end)
