-- Configs: defaults, precedence, checks, the sandbox, the way back to text.
local config = require("neap.config")
local fail = require("neap.fail")

local function load_text(text, sets, options)
  local path = os.tmpname()
  local file = io.open(path, "wb")
  file:write(text)
  file:close()
  local ok, result = pcall(config.load, path, sets, options)
  os.remove(path)
  if not ok then error(result, 0) end
  return result
end

local function failure_of(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_true(fail.is(err), tostring(err))
  return err
end

local function usage_of(fn, ...)
  local err = failure_of(fn, ...)
  assert.equal("usage", err.kind)
  assert.is_nil(err.message:find("\n"))
  return err.message
end

describe("config.load", function()
  it("without a file gives the defaults", function()
    local c = config.load()
    assert.same({
      n_layer = 4, n_head = 4, width = 128, context = 64, chunk = 12, global_batch = 12,
      dropout = 0, steps = 2000, lr = 1e-3, min_lr = 1e-4, warmup = 100, betas = { 0.9, 0.99 },
      weight_decay = 0.1, clip = 1, eval_every = 250, eval_batches = 20, final_eval_batches = 200,
      seed = 1, checkpoint = "none", dtype = "f32", device = "auto",
    }, c)
  end)

  it("gives every caller defaults of its own", function()
    config.load().betas[1] = 0.5
    assert.equal(0.9, config.load().betas[1])
  end)

  it("puts the file over the defaults, sets over the file, options over sets", function()
    local text = "return { width = 32, steps = 7, lr = 0.5, seed = 3 }"
    local c = load_text(text, { "steps=8", "lr=0.25" }, { lr = "0.125" })
    assert.same({ 32, 8, 0.125, 3 }, { c.width, c.steps, c.lr, c.seed })
  end)

  it("lets the last of two sets win", function()
    assert.equal(9, config.load(nil, { "steps=8", "steps=9" }).steps)
  end)

  it("reads the values of sets by their key's type", function()
    local c = config.load(nil, {
      "betas=0.8,0.95", "chunk=auto", "data=7", " dropout = 0.25", "checkpoint=by_name:a,b",
      "budget=64MiB", "lr=5e-4", "device=cuda:1",
    })
    assert.same({ 0.8, 0.95 }, c.betas)
    assert.equal("auto", c.chunk)
    assert.equal("7", c.data)
    assert.equal(0.25, c.dropout)
    assert.equal("by_name:a,b", c.checkpoint)
    assert.equal("64MiB", c.budget)
    assert.equal(5e-4, c.lr)
    assert.equal("cuda:1", c.device)
  end)

  it("reads betas in braces too", function()
    assert.same({ 0.5, 0.75 }, config.load(nil, { "betas={0.5, 0.75}" }).betas)
  end)

  it("takes zero where zero means never, none or nothing", function()
    for _, key in ipairs({ "dropout", "lr", "min_lr", "warmup", "weight_decay", "clip",
      "eval_every", "final_eval_batches", "seed" }) do
      assert.equal(0, config.load(nil, { "min_lr=0", key .. "=0" })[key])
    end
  end)

  it("unsets an optional key by nil", function()
    for key, value in pairs({ budget = "'1MiB'", data = "'x'", threads = "2", out = "'x'" }) do
      local text = string.format("return { %s = %s }", key, value)
      assert.is_not_nil(load_text(text)[key])
      assert.is_nil(load_text(text, { key .. "=nil" })[key])
    end
    assert.equal(1e-4, load_text("return { min_lr = 0 }", { "min_lr=nil" }).min_lr)
    assert.equal(12, load_text("return { global_batch = 7 }", { "global_batch=nil" }).global_batch)
    assert.matches("n_layer is 'nil'", usage_of(config.load, nil, { "n_layer=nil" }), 1, true)
  end)

  describe("global_batch", function()
    it("is the config's chunk where nothing names one", function()
      assert.equal(5, load_text("return { chunk = 5 }").global_batch)
    end)

    it("does not follow --chunk, which must not change the training", function()
      local c = load_text("return { chunk = 12 }", nil, { chunk = "3" })
      assert.same({ 3, 12 }, { c.chunk, c.global_batch })
    end)

    it("is 64 where the chunk is found automatically", function()
      assert.equal(64, load_text("return { chunk = 'auto' }").global_batch)
    end)

    it("is what the option says", function()
      assert.equal(40, load_text("return { global_batch = 20 }", nil, { global_batch = "40" })
        .global_batch)
    end)
  end)

  it("warms up to the end where there are fewer steps than warm-up", function()
    assert.equal(10, config.load(nil, { "steps=10", "warmup=100" }).warmup)
  end)

  it("takes a tenth of lr as min_lr where nothing names it", function()
    assert.equal(0.05, config.load(nil, { "lr=0.5" }).min_lr)
  end)

  it("names a missing file as a failure, not as wrong usage", function()
    local err = failure_of(config.load, "/none/x.lua")
    assert.equal("failure", err.kind)
    assert.equal("config: cannot read '/none/x.lua': No such file or directory", err.message)
  end)
end)

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

describe("config.dump", function()
  it("writes text that loads to the same config", function()
    local c = load_text([[return {
      lr = 0.1 + 0.2, betas = { 1/3, 0.99 }, data = 'a "b"\n\\c\r', budget = "80%",
      checkpoint = { policy = "segments", starts = { 1, 5 }, ["odd key"] = true }, seed = 2^53,
      threads = 2, out = "x", min_lr = 1e-300,
    }]])
    assert.same(c, load_text(config.dump(c)))
  end)

  it("writes the keys in their order, one a line", function()
    local keys = {}
    for key in config.dump(config.load()):gmatch("\n  ([%w_]+) = ") do keys[#keys + 1] = key end
    assert.equal("n_layer n_head width context chunk global_batch dropout steps lr min_lr warmup "
      .. "betas weight_decay clip eval_every eval_batches final_eval_batches seed checkpoint dtype "
      .. "device", table.concat(keys, " "))
  end)
end)

describe("config.value", function()
  it("reads one key's text", function()
    assert.equal(64, config.value("width", "64"))
    assert.is_nil(config.value("data", "nil"))
    assert.matches("^%-%-set width=x: width is 'x'", usage_of(config.value, "width", "x"))
    assert.matches("^%-%-grid: width is 'x'", usage_of(config.value, "width", "x", "--grid"))
  end)
end)

describe("the example configs", function()
  it("load", function()
    for _, name in ipairs({ "small", "shakespeare_char_cpu" }) do
      assert.is_table(config.load("examples/configs/" .. name .. ".lua"))
    end
  end)

  it("hold the known CPU settings of the character model", function()
    local c = config.load("examples/configs/shakespeare_char_cpu.lua")
    local expected = {
      n_layer = 4, n_head = 4, width = 128, context = 64, chunk = 12, global_batch = 12,
      dropout = 0, steps = 2000, lr = 1e-3, min_lr = 1e-4, warmup = 100, betas = { 0.9, 0.99 },
      weight_decay = 0.1, clip = 1, eval_every = 250, eval_batches = 20, final_eval_batches = 200,
    }
    for key, value in pairs(expected) do assert.same(value, c[key], key) end
    assert.is_nil(c.data)
  end)

  it("give make train a budget and segments", function()
    local c = config.load("examples/configs/small.lua")
    assert.same({ "64MiB", "segments:2" }, { c.budget, c.checkpoint })
  end)
end)
