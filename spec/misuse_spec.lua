-- Every function of the public Lua API, each argument in turn replaced by what it must refuse: one
-- clear sentence, no crash, and everything as it was.
local neap = require("neap")
local fail = require("neap.fail")
local ffi = require("ffi")
local misuse = require("spec.support.misuse")
local models = require("spec.support.models")
local native = require("neap.ffi")

local C = native.C
local NIL = misuse.NIL

-- what a person cannot act on
local UNCLEAR = { "cannot convert", "attempt to ", "bad argument", "nil value", "traceback" }

describe("misuse of", function()
  local w, device, null = {}, nil, nil
  local calls, groups, before_bits, wrong = 0, 0, nil, {}

  -- a group of specs: name, valid arguments by kind, call
  local function check_sentence(what, ok, err)
    calls = calls + 1
    local message = not ok and fail.message(err) or nil
    local complaint
    if ok then
      complaint = "is accepted"
    elseif not fail.is(err) and type(err) ~= "string" then
      complaint = "raises a " .. type(err)
    elseif message == "" or message:find("\n") then
      complaint = "says no single sentence: " .. message
    end
    for _, pattern in ipairs(UNCLEAR) do
      if not complaint and message:find(pattern) then complaint = "says: " .. message end
    end
    if complaint then wrong[#wrong + 1] = what .. " " .. complaint end
  end

  local function collect()
    jit.flush()
    for _ = 1, 3 do collectgarbage() end
  end

  local function live() return { device:memory().live_bytes, null:memory().live_bytes } end

  -- fn, the place of each argument's kind and valid value: { kind, value }; kind false: not spoilt
  local function spoil(name, fn, arguments)
    groups = groups + 1
    wrong = {}
    collect()
    local bytes, depth, tape = live(), C.neap_scope_depth(), C.neap_tape_selected()
    local n = #arguments
    local function one(what, ...)
      check_sentence(what, pcall(fn, ...))
      if C.neap_scope_depth() ~= depth then wrong[#wrong + 1] = what .. " leaves a scope" end
      if C.neap_tape_selected() ~= tape then wrong[#wrong + 1] = what .. " leaves a tape" end
      if require("neap.scope").depth ~= depth then wrong[#wrong + 1] = what .. " counts scopes" end
    end
    for place = 1, n do
      local kind = arguments[place][1]
      for _, item in ipairs(kind and misuse.kinds[kind] or {}) do
        local given = {}
        for i = 1, n do given[i] = arguments[i][2] end
        given[place] = item[2]
        if item[2] == NIL then given[place] = nil end
        one(string.format("%s with %s as argument %d", name, item[1], place), unpack(given, 1, n))
      end
    end
    collect()
    local after = live()
    if after[1] ~= bytes[1] or after[2] ~= bytes[2] then
      wrong[#wrong + 1] = string.format("%s leaves %d and %d bytes", name, after[1] - bytes[1],
        after[2] - bytes[2])
    end
    assert(#wrong == 0, table.concat(wrong, "\n"))
  end

  -- options one by one: { key = kind }
  local function spoil_options(name, fn, options, kinds)
    for key, kind in pairs(kinds) do
      spoil(name .. ": " .. key, function(value)
        local given = {}
        for k, v in pairs(options) do given[k] = v end
        given[key] = value
        return fn(given)
      end, { { kind, options[key] } })
    end
  end

  local function step_bits()
    local result = models.run(w.model, w.batch, "every_n:2")
    return { result.loss, result.gradients }
  end

  setup(function()
    device = neap.device("cpu", { budget = "256MiB" })
    null = neap.device("null", { size = "1GiB" })
    local closed = neap.device("null", { size = 4096 })
    closed:close()
    w.closed, w.neap = closed, neap
    require("neap.device").make_current(null)
    w.null = neap.zeros({ 4, 6 })
    w.null_ids = neap.zeros({ 4 }, { dtype = "i32" })
    require("neap.device").make_current(device)
    w.freed = neap.zeros({ 4, 6 })
    w.freed:free()
    w.x, w.y = neap.full({ 4, 6 }, 1), neap.full({ 4, 6 }, 2)
    w.odd = neap.zeros({ 5, 7 })
    w.i32 = neap.zeros({ 4, 6 }, { dtype = "i32" })
    w.bf16 = neap.empty({ 4, 6 }, { dtype = "bf16" })
    w.row = neap.zeros({ 6 })
    w.ids = neap.zeros({ 4 }, { dtype = "i32" })
    w.large_ids = neap.full({ 4 }, 2 ^ 31 - 1, { dtype = "i32" })
    w.negative_ids = neap.full({ 4 }, -1, { dtype = "i32" })
    w.weight = neap.zeros({ 3, 6 })
    w.leaf = neap.zeros({ 4, 6 }, { requires_grad = true })
    w.leaf:zero_grad()
    w.number = neap.full({}, 3)
    w.qkv = neap.zeros({ 1, 4, 6 })
    w.model, w.layer = models.chain(2, 6, 0.1), neap.nn.Linear(6, 6)
    w.batch = { inputs = w.x, targets = w.y }
    w.model:zero_grad()
    w.profile = neap.profile(w.model, w.batch, { cost = "flops" })
    w.plan = neap.plan("none", w.profile)
    w.executor = neap.executor(w.model)
    misuse.add_tensors(w)
    before_bits = step_bits()
  end)

  teardown(function()
    local names = {}
    for name, value in pairs(w) do
      if neap.is_tensor(value) then names[#names + 1] = name end
    end
    for _, name in ipairs(names) do w[name]:free() end
    w.model:free()
    w.layer:free()
    w = {} -- luacheck: ignore 311
    neap.device("cpu")
    neap.rng({})
  end)

  it("devices, threads and randomness", function()
    misuse.kinds.device_name = { { "text", "cpuu" }, { "a table", {} }, { "true", true },
      { "a number", 5 }, { "a function", print }, { "a cdata", ffi.new("int[1]") },
      { "NaN", 0 / 0 }, { "a GPU", "cuda:0" }, { "a zero byte", "cpu\0" }, { "nothing", "" } }
    misuse.kinds.bytes = { { "text", "many" }, { "a table", {} }, { "true", true },
      { "false", false }, { "-1", -1 }, { "NaN", 0 / 0 }, { "inf", math.huge }, { "1e300", 1e300 },
      { "2^53 + 2", 2 ^ 53 + 2 }, { "a cdata", ffi.new("int[1]") }, { "a unit", "5 bananas" },
      { "more than all", "101%" }, { "a function", print } }
    spoil("device", neap.device, { { "device_name", "null" }, { "options", { size = 64 } } })
    spoil_options("device", function(o) return neap.device("null", o) end, { size = 64 },
      { size = "bytes", budget = "bytes" })
    neap.device("cpu", { budget = 64 }):close()
    require("neap.device").make_current(device)
    spoil("with_device", neap.with_device, { { "device", device }, { "fn", print } })
    spoil("threads", neap.threads, { { "counting_or_nil", 1 } })
    spoil("manual_seed", neap.manual_seed, { { "whole", 3 } })
    spoil("rng", neap.rng, { { "table", {} } })
    spoil("rng", neap.rng, { { "options", {} } })
    spoil_options("rng", neap.rng, {}, { seed = "finite_or_nil", step = "count_or_nil",
      item = "count_or_nil", n_items = "count_or_nil", stage = "finite_or_nil",
      call = "count_or_nil" })
    for _, method in ipairs({ "memory", "trim", "computes", "close", "restart_peak",
      "set_budget" }) do
      spoil("device:" .. method, device[method], { { "self", device } })
    end
    misuse.kinds.meter = misuse.kinds.fn
    spoil("device:restart_peak", device.restart_peak, { { "self", device }, { "meter", "run" } })
    spoil("device:set_budget", device.set_budget, { { "self", device }, { "bytes", 1 } })
    for _, method in ipairs({ "memory", "trim", "close" }) do
      misuse.kinds.closed = { { "a closed device", w.closed } }
      spoil("device:" .. method, device[method], { { "closed", device } })
    end
    assert.equal(256 * 2 ^ 20, device:memory().budget_bytes)
  end)

  it("making tensors", function()
    misuse.kinds.numbers = { { "nil", NIL }, { "text", "1" }, { "a number", 1 }, { "true", true },
      { "a function", print }, { "a cdata", ffi.new("int[1]") }, { "text in it", { 1, "2" } },
      { "a table in it", { 1, {} } }, { "a cdata in it", { 1, 2LL } }, { "too few", { 1 } },
      { "too many", { 1, 2, 3 } }, { "a hole", { [2] = 1 } }, { "a tensor", w.x } }
    spoil("tensor", neap.tensor, { { "numbers", { 1, 2 } }, { false, { 2 } }, { "options", nil } })
    misuse.kinds.dims_or_nil = { unpack(misuse.kinds.dims, 2) }
    spoil("tensor", neap.tensor, { { false, { 1, 2 } }, { "dims_or_nil", { 2 } } })
    misuse.kinds.whole_numbers = { { "1.5", { 1.5 } }, { "NaN", { 0 / 0 } }, { "2^31", { 2 ^ 31 } },
      { "inf", { math.huge } }, { "-2^31 - 1", { -2 ^ 31 - 1 } } }
    spoil("tensor of i32", neap.tensor, { { "whole_numbers", { 1 } }, { false, { 1 } },
      { false, { dtype = "i32" } } })
    spoil("empty", neap.empty, { { "dims", { 2 } }, { "options", {} } })
    spoil("zeros", neap.zeros, { { "dims", { 2 } }, { "options", {} } })
    spoil("full", neap.full, { { "dims", { 2 } }, { "number", 1 }, { "options", {} } })
    misuse.kinds.dtype = { { "text", "f33" }, { "a table", {} }, { "true", true }, { "5", 5 },
      { "false", false }, { "a cdata", ffi.new("int[1]") }, { "NaN", 0 / 0 } }
    local kinds = { dtype = "dtype", requires_grad = "flag", device = "device",
      tag = "count_or_nil" }
    spoil_options("zeros", function(o) return neap.zeros({ 2 }, o) end, {}, kinds)
    spoil_options("empty", function(o) return neap.empty({ 2 }, o) end, {}, kinds)
    spoil_options("full", function(o) return neap.full({ 2 }, 1, o) end, {}, kinds)
    spoil_options("tensor", function(o) return neap.tensor({ 2 }, nil, o) end, {}, kinds)
    misuse.kinds.tag = { { "an unknown tag", 99 } }
    spoil("a tag", function(tag) return neap.zeros({ 2 }, { tag = tag }) end, { { "tag", 1 } })
    misuse.kinds.leaf_dtype = { { "an i32 leaf", "i32" }, { "a bf16 leaf", "bf16" } }
    spoil("a leaf", function(dtype)
      return neap.empty({ 2 }, { dtype = dtype, requires_grad = true })
    end, { { "leaf_dtype", "f32" } })
  end)

  it("a tensor's methods", function()
    local x = w.x
    for _, method in ipairs({ "table", "bits", "item", "dims", "numel", "bytes", "dtype", "version",
      "detach", "requires_grad", "grad", "zero_grad", "backward" }) do
      spoil("tensor:" .. method, x[method], { { "handle", w.number } })
    end
    for _, method in ipairs({ "alive", "free" }) do
      spoil("tensor:" .. method, x[method], { { "self", x } })
    end
    spoil("tensor:fill", x.fill, { { "handle", x }, { "number", 1 } })
    spoil("tensor:copy_from", x.copy_from, { { "handle", x }, { "f32", w.y } })
    spoil("tensor:requires_grad", x.requires_grad, { { "handle", w.leaf }, { "flag", true } })
    misuse.kinds.no_leaf = { { "no leaf", w.x } }
    spoil("tensor:grad", x.grad, { { "no_leaf", w.leaf } })
    spoil("tensor:zero_grad", x.zero_grad, { { "no_leaf", w.leaf } })
    misuse.kinds.half = { { "bf16", w.bf16 } }
    for _, method in ipairs({ "table", "bits", "item", "requires_grad" }) do
      spoil("tensor:" .. method, x[method], { { "half", w.number } })
    end
    misuse.kinds.many = { { "many elements", w.x }, { "another", w.leaf } }
    spoil("tensor:item", x.item, { { "many", w.number } })
    spoil("tensor:backward", x.backward, { { "many", w.number } })
    for _, sum in ipairs({ function(a, b) return a + b end, function(a, b) return a * b end }) do
      misuse.kinds.operand = { { "text", "a" }, { "a table", {} }, { "true", true },
        { "a freed tensor", w.freed }, { "another device's", w.null }, { "an i32", w.i32 },
        { "a function", print }, { "another shape", w.odd }, { "a cdata", ffi.new("int[1]") } }
      spoil("+ or *", sum, { { "operand", x }, { "operand", w.y } })
    end
    spoil("* by a number", function(n) return x * n end, { { "operand", 2 } })
  end)

  it("ops", function()
    local o, x, y = neap.op, w.x, w.y
    spoil("add", o.add, { { "beside", x }, { "beside", y } })
    spoil("multiply", o.multiply, { { "beside", x }, { "beside", y } })
    spoil("scale", o.scale, { { "f32", x }, { "finite", 2 } })
    for _, name in ipairs({ "gelu", "relu", "silu", "transpose" }) do
      spoil(name, o[name], { { "f32", x }, { "number_or_nil", nil } })
    end
    spoil("layernorm", o.layernorm, { { "beside", x }, { "beside", w.row }, { "beside", w.row },
      { "positive_or_nil", 1e-5 } })
    spoil("rmsnorm", o.rmsnorm, { { "beside", x }, { "beside", w.row },
      { "positive_or_nil", 1e-5 } })
    spoil("embedding", o.embedding, { { "ids", w.ids }, { "f32", x } })
    spoil("cross_entropy", o.cross_entropy, { { "f32", x }, { "ids", w.ids } })
    spoil("dropout", o.dropout, { { "f32", x }, { "probability", 0.1 } })
    spoil("linear", o.linear, { { "beside", x }, { "beside", w.weight },
      { "beside_or_nil", neap.zeros({ 3 }) } })
    spoil("matmul", o.matmul, { { "beside", x }, { "beside", neap.zeros({ 6, 4 }) },
      { "flag", false }, { "flag", false } })
    spoil("attention", o.attention, { { "f32", w.qkv }, { "heads", 2 }, { "flag", true } })
    spoil("sum", o.sum, { { "f32", x }, { "dimension", 1 } })
    spoil("mean", o.mean, { { "f32", x }, { "dimension", 1 } })
    spoil("narrow", o.narrow, { { "tensor", x }, { "counting", 1 }, { "count", 1 } })
    spoil("reshape", o.reshape, { { "tensor", x }, { "dims", { 24 } } })
  end)

  it("op.define and the ops it makes", function()
    local n = 0
    local function valid()
      n = n + 1
      return { name = "misused_" .. n, n_inputs = 1, n_outputs = 1,
        forward = function(_, x) return neap.op.scale(x, 2) end,
        backward = function(_, g) return g end }
    end
    spoil("define", neap.op.define, { { "table", nil } })
    spoil("define", neap.op.define, { { "options", nil } })
    for key, kind in pairs({ name = "text", n_inputs = "counting", n_outputs = "counting_or_nil",
      forward = "fn", backward = "fn" }) do
      spoil_options("define", neap.op.define, valid(), { [key] = kind })
    end
    local result
    local options = valid()
    options.forward = function(save, x)
      local given = result
      result = nil
      if given then save(given[2]) end
      if given then return given[1] end
      return neap.op.scale(x, 2)
    end
    local op = neap.op.define(options)
    spoil("a defined op", op, { { "tensor", w.leaf } })
    spoil("a defined op without a tape", function(x) return neap.no_grad(op, x) end,
      { { "handle", w.leaf } })
    spoil("what forward returns", function(y)
      result = { y, w.x }
      return op(w.leaf)
    end, { { "tensor", nil } })
    spoil("what forward saves", function(y)
      result = { neap.op.scale(w.x, 1), y }
      return op(w.leaf)
    end, { { "tensor", nil } })
    options = valid()
    local gradient
    options.backward = function() return gradient end
    local other = neap.op.define(options)
    misuse.kinds.gradient = { { "text", "a" }, { "a table", {} }, { "true", true }, { "5", 5 },
      { "a freed tensor", w.freed }, { "an i32", w.i32 }, { "another shape", w.odd },
      { "another device's", w.null }, { "a function", print }, { "a cdata", ffi.new("int[1]") } }
    spoil("what backward returns", function(g)
      gradient = g
      return neap.op.sum(other(w.leaf)):backward()
    end, { { "gradient", nil } })
  end)

  it("scopes and autograd", function()
    spoil("scope", neap.scope, { { "fn", print } })
    spoil("no_grad", neap.no_grad, { { "fn", print } })
    spoil("backward", neap.backward, { { "tensor", w.number } })
    misuse.kinds.loss = { { "many elements", w.x }, { "freed", w.freed } }
    spoil("backward", neap.backward, { { "loss", w.number } })
    spoil("backward twice", function(again)
      local loss = neap.op.sum(neap.op.scale(w.leaf, 2))
      loss:backward()
      if again then loss:backward() end
    end, { { "again", nil } })
  end)

  it("layers", function()
    local nn = neap.nn
    spoil("class", nn.class, { { "text", "A" } })
    spoil("parameter", nn.parameter, { { "dims", { 2 } }, { "table", { fill = 0 } } })
    spoil("parameter", nn.parameter, { { false, { 2 } }, { "options", { fill = 0 } } })
    spoil_options("parameter", function(o) return nn.parameter({ 2 }, o) end, {},
      { normal = "size", uniform = "size", fill = "finite" })
    spoil("Linear", nn.Linear, { { "counting", 2 }, { "counting", 2 }, { "options", {} } })
    spoil_options("Linear", function(o) return nn.Linear(2, 2, o) end, {},
      { bias = "flag", std = "size_or_nil" })
    for _, name in ipairs({ "LayerNorm", "RMSNorm" }) do
      spoil(name, nn[name], { { "counting", 2 }, { "options", {} } })
      spoil_options(name, function(o) return nn[name](2, o) end, {}, { eps = "positive_or_nil" })
    end
    spoil("Embedding", nn.Embedding, { { "counting", 2 }, { "counting", 2 }, { "options", {} } })
    spoil_options("Embedding", function(o) return nn.Embedding(2, 2, o) end, {},
      { std = "size_or_nil" })
    spoil("Dropout", nn.Dropout, { { "probability", 0.5 } })
    spoil("Attention", nn.Attention, { { "counting", 4 }, { "heads", 2 }, { "options", {} } })
    spoil_options("Attention", function(o) return nn.Attention(4, 2, o) end, {},
      { causal = "flag", std = "size_or_nil", out_std = "size_or_nil" })
    local gpt = { vocabulary = 5, context = 4, width = 4, n_layer = 1, n_head = 2, dropout = 0 }
    spoil("GPT", nn.GPT, { { "table", gpt } })
    spoil("GPT", nn.GPT, { { "options", gpt } })
    spoil_options("GPT", nn.GPT, gpt, { vocabulary = "counting", context = "counting",
      width = "counting", n_layer = "count", n_head = "counting", dropout = "probability_or_nil" })
    misuse.kinds.stages = { { "nil", NIL }, { "text", "a" }, { "5", 5 }, { "true", true },
      { "none", {} }, { "a layer", nn.GELU() }, { "layers without names", { nn.GELU() } },
      { "a class", { { "a", nn.GELU } } }, { "no layer", { { "a" } } },
      { "text for a layer", { { "a", "b" } } }, { "a tensor", { { "a", w.x } } },
      { "a function", { { "a", print } } }, { "an empty name", { { "", nn.GELU() } } },
      { "a space", { { "a b", nn.GELU() } } }, { "a comma", { { "a,b", nn.GELU() } } },
      { "a zero byte", { { "a\0b", nn.GELU() } } }, { "a number for a name",
        { { 1, nn.GELU() } } },
      { "two of a name", { { "a", nn.GELU() }, { "a", nn.GELU() } } } }
    spoil("Sequential", nn.Sequential, { { "stages", nil } })
    for _, name in ipairs({ "parameters", "buffers", "n_parameters", "zero_grad", "train", "eval",
      "free", "call" }) do
      spoil("layer:" .. name, w.layer[name], { { "module", w.layer } })
    end
    spoil("layer:train", w.layer.train, { { "module", w.layer }, { "flag", true } })
    for name, layer in pairs({ Linear = w.layer, GELU = nn.GELU(), ReLU = nn.ReLU(),
      SiLU = nn.SiLU() }) do
      spoil("calling " .. name, layer, { { "f32", w.x } })
      spoil(name .. ":forward", layer.forward, { { false, layer }, { "f32", w.x } })
    end
    local norm, rms, attention = nn.LayerNorm(6), nn.RMSNorm(6), nn.Attention(6, 2)
    spoil("calling LayerNorm", norm, { { "beside", w.x } })
    spoil("calling RMSNorm", rms, { { "beside", w.x } })
    spoil("calling Attention", attention, { { "beside", neap.zeros({ 1, 4, 6 }) } })
    local embedding = nn.Embedding(5, 6)
    spoil("calling Embedding", embedding, { { "ids", w.ids } })
    local dropout = nn.Dropout(0.5)
    spoil("calling Dropout", dropout, { { "f32", w.x } })
    local small = nn.GPT(gpt)
    spoil("calling GPT", small, { { "ids", neap.zeros({ 1, 4 }, { dtype = "i32" }) } })
    spoil("calling a chain", w.model, { { "tensor", w.x }, { false, { batch = w.batch } } })
    local Empty = nn.class("Empty")
    misuse.kinds.without = { { "a layer without forward", Empty() } }
    spoil("calling", function(layer) return layer(w.x) end, { { "without", nn.GELU() } })
  end)

  it("optimizers, schedules and the norm of gradients", function()
    local optim = neap.optim
    local parameters = { { name = "leaf", tensor = w.leaf } }
    for name, kinds in pairs({ AdamW = { eps = "positive_or_nil", weight_decay = "size_or_nil",
      betas = "betas" }, SGD = { momentum = "size_or_nil", weight_decay = "size_or_nil" } }) do
      misuse.kinds.betas = { { "text", "a" }, { "a number", 0.9 }, { "one", { 0.9 } },
        { "three", { 0.9, 0.9, 0.9 } }, { "1", { 0.9, 1 } }, { "-1", { -1, 0.9 } },
        { "NaN", { 0.9, 0 / 0 } }, { "text in it", { "0.9", 0.9 } }, { "none", {} } }
      spoil(name, optim[name], { { "parameters", parameters }, { "options", {} } })
      spoil_options(name, function(o) return optim[name](parameters, o) end, {}, kinds)
      local optimizer = optim[name](parameters)
      spoil(name .. ":step", optimizer.step, { { "self", optimizer }, { "size", 0.1 },
        { "finite_or_nil", 1 } })
      spoil(name .. ":tensors", optimizer.tensors, { { "self", optimizer } })
      spoil(name .. ":free", optimizer.free, { { "self", optimizer } })
      assert.equal(0, optimizer.steps)
      optimizer:free()
    end
    for _, name in ipairs({ "cosine", "linear", "constant" }) do
      local schedule, valid = optim.schedule[name], { lr = 0.1, steps = 10 }
      spoil(name, schedule, { { "table", valid } })
      spoil(name, schedule, { { "options", valid } })
      spoil_options(name, schedule, valid, { lr = "size", min_lr = "size_or_nil",
        warmup = "count_or_nil", steps = name == "constant" and "count_or_nil" or "count" })
      spoil(name .. "'s rate", schedule(valid), { { "count", 1 } })
    end
    spoil("grad_norm", optim.grad_norm, { { "parameters", parameters } })
    local norm = optim.grad_norm(parameters)
    spoil("grad_norm:zero", norm.zero, { { "self", norm } })
    spoil("grad_norm:measure", norm.measure, { { "self", norm } })
  end)

  it("policies, managers and segments", function()
    spoil("policy", neap.policy, { { "policy", "none" } })
    spoil("checkpoint_manager", neap.checkpoint_manager, { { "policy", "none" } })
    misuse.kinds.segments = { { "segments", "segments:2" } }
    spoil("checkpoint_manager", neap.checkpoint_manager, { { "segments", "none" } })
    local manager = neap.checkpoint_manager("none")
    local dropper = neap.checkpoint_manager("all")
    local me = { "self", manager }
    spoil("set_policy", manager.set_policy, { me, { "policy", "none" } })
    misuse.kinds.floats = { { "nil", NIL }, { "text", "1" }, { "5", 5 }, { "true", true },
      { "too few", { 1 } }, { "too many", { 1, 2, 3 } }, { "text in it", { 1, "2" } },
      { "a table in it", { 1, {} } }, { "a tensor", w.x }, { "a cdata", ffi.new("int[1]") } }
    misuse.kinds.shape = { { "nil", NIL }, { "text", "2" }, { "5", 5 }, { "true", true },
      { "text in it", { "2" } }, { "-1 in it", { -1 } }, { "1.5 in it", { 1.5 } },
      { "NaN in it", { 0 / 0 } }, { "2^53 + 2", { 2 ^ 53 + 2 } },
      { "an overflow", { 2 ^ 40, 2 ^ 40 } }, { "a table in it", { {} } } }
    spoil("record_data", manager.record_data, { me, { "text", "a" }, { "u64", 0 },
      { "floats", { 1, 2 } }, { "shape", { 2 } }, { "number_or_nil", 1 } })
    spoil("record_size", manager.record_size, { me, { "text", "a" }, { "u64", 0 },
      { "shape", { 2 } }, { "number_or_nil", 1 } })
    spoil("record", manager.record, { me, { "text", "a" }, { "u64", 0 }, { "tensor", w.x },
      { "number_or_nil", 1 } })
    assert.equal(0, manager:stats().n_snapshots)
    manager:record_data("there", 0, { 1 }, { 1 })
    dropper:record_data("there", 0, { 1 }, { 1 })
    dropper:record("tensor", 1, w.x)
    spoil("get", manager.get, { me, { "name", "there" } })
    spoil("get", dropper.get, { { "self", dropper }, { "name", "there" },
      { "fn", function() return { 1 } end } })
    misuse.kinds.delivered = { { "nil", NIL }, { "text", "a" }, { "5", 5 }, { "true", true },
      { "too many", { 1, 2 } }, { "none", {} }, { "a tensor of another shape", w.odd },
      { "a freed tensor", w.freed }, { "a cdata", ffi.new("int[1]") }, { "a function", print } }
    for _, name in ipairs({ "there", "tensor" }) do
      spoil("what the closure of " .. name .. " gives", function(value)
        return dropper:get(name, function() return value end)
      end, { { "delivered", nil } })
    end
    misuse.kinds.taken = { { "a name that is taken", "there" } }
    spoil("record_size", manager.record_size, { me, { "taken", "a" }, { false, 0 },
      { false, { 1 } } })
    spoil("release", manager.release, { me, { "name", "there" } })
    for _, name in ipairs({ "clear", "stats", "current_bytes", "snapshots", "log" }) do
      spoil(name, manager[name], { me })
    end
    misuse.kinds.segment_count = { { "nil", NIL }, { "text", "2" }, { "0", 0 }, { "-1", -1 },
      { "1.5", 1.5 }, { "NaN", 0 / 0 }, { "inf", math.huge }, { "1e300", 1e300 },
      { "2^53 + 2", 2 ^ 53 + 2 }, { "a table", {} }, { "true", true }, { "-1LL", -1LL },
      { "more than stages", 9 }, { "a function", print } }
    misuse.kinds.stage_count = { unpack(misuse.kinds.segment_count, 1, 12) }
    spoil("segment_checkpointer", neap.segment_checkpointer, { { "segment_count", 2 },
      { "stage_count", 4 } })
    misuse.kinds.huge_pair = { { "2^50 of both", 2 ^ 50 }, { "2^53 of both", 2 ^ 53 } }
    -- AddressSanitizer ends the process where malloc is asked for more than a terabyte
    if not (os.getenv("LD_PRELOAD") or ""):find("asan") then
      spoil("segment_checkpointer", function(n) return neap.segment_checkpointer(n, n) end,
        { { "huge_pair", 4 } })
    end
    local segments = neap.segment_checkpointer(2, 4)
    local us = { "self", segments }
    spoil("segments:start", segments.start, { us, { "u64", 0 } })
    spoil("segments:is_boundary", segments.is_boundary, { us, { "u64", 0 } })
    spoil("segments:get", segments.get, { us, { "u64", 0 } })
    misuse.kinds.floats = { unpack(misuse.kinds.floats, 1, 4) }
    spoil("segments:record", segments.record, { us, { "index", 0 }, { "floats", { 1 } } })
    for _, name in ipairs({ "starts", "boundaries", "kept_fraction" }) do
      spoil("segments:" .. name, segments[name], { us })
    end
  end)

  it("profiles, plans and the executor", function()
    misuse.kinds.cost = { { "text", "flop" }, { "5", 5 }, { "true", true }, { "a table", {} },
      { "false", false } }
    spoil("profile", neap.profile, { { "chain", w.model }, { "batch", w.batch },
      { "options", { cost = "flops" } } })
    spoil_options("profile", function(o) return neap.profile(w.model, w.batch, o) end,
      { cost = "flops" }, { cost = "cost" })
    spoil("plan", neap.plan, { { "policy", "none" }, { "profile", w.profile } })
    misuse.kinds.chain_policy = { { "too many segments", "segments:9" },
      { "an unknown stage", "by_name:nowhere" } }
    spoil("plan", neap.plan, { { "chain_policy", "none" }, { false, w.profile } })
    misuse.kinds.plan_or_nil = misuse.kinds.plan
    misuse.kinds.plan = { { "nil", NIL }, { "false", false }, unpack(misuse.kinds.plan) }
    spoil("simulate", neap.simulate, { { "plan", w.plan }, { "profile", w.profile } })
    spoil("executor", neap.executor, { { "chain", w.model } })
    local executor = w.executor
    local me = { "self", executor }
    spoil("executor:run", executor.run, { me, { "batch", w.batch }, { "plan", w.plan },
      { "finite_or_nil", 1 } })
    spoil("executor:evaluate", executor.evaluate, { me, { "batch", w.batch } })
    spoil("executor:use_profile", executor.use_profile, { me, { "profile", w.profile } })
    spoil("step", neap.step, { { "chain", w.model }, { "batch", w.batch },
      { "plan_or_nil", w.plan } })
    spoil("step", neap.step, { { false, w.model }, { false, w.batch }, { "chain_policy", nil } })
  end)

  it("all of these leaves the next step as it was, bit for bit, after 1,000 calls and more",
    function()
      assert.same(before_bits, step_bits())
      print(string.format("\n%d wrong calls in %d groups", calls, groups))
      assert.is_true(calls >= 1000)
    end)
end)
