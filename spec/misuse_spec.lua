-- Every function of the public Lua API, each argument in turn replaced by what it must refuse: one
-- clear sentence, no crash, and everything as it was. Here what computes; layers and plans in
-- misuse_layers_spec.lua.
local neap = require("neap")
local ffi = require("ffi")
local calls = require("spec.support.misuse_calls")
local misuse = require("spec.support.misuse")

local spoil, spoil_options, w = calls.spoil, calls.spoil_options, calls.w
local NIL = misuse.NIL

describe("misuse of", function()
  local device

  setup(function()
    calls.calls, calls.groups = 0, 0
    device = calls.open()
  end)
  teardown(calls.close)

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
    spoil("tensor:lerp", x.lerp, { { "f32", neap.zeros({ 4, 6 }) }, { "beside", w.y },
      { "finite", 0.5 } })
    spoil("tensor:grad", x.grad, { { "no_leaf", w.leaf } })
    spoil("tensor:zero_grad", x.zero_grad, { { "no_leaf", w.leaf } })
    misuse.kinds.half = { { "bf16", w.bf16 } }
    for _, method in ipairs({ "table", "bits", "item", "requires_grad" }) do
      spoil("tensor:" .. method, x[method], { { "half", w.number } })
    end
    misuse.kinds.many = { { "many elements", w.x }, { "another", w.leaf } }
    spoil("tensor:item", x.item, { { "many", w.number } })
    spoil("tensor:backward", x.backward, { { "many", w.number } })
    for _, sum in ipairs({ function(a, b) return a + b end, function(a, b) return a * b end,
      function(a, b) return a - b end }) do
      misuse.kinds.operand = { { "text", "a" }, { "a table", {} }, { "true", true },
        { "a freed tensor", w.freed }, { "another device's", w.null }, { "an i32", w.i32 },
        { "a function", print }, { "another shape", w.odd }, { "a cdata", ffi.new("int[1]") } }
      spoil("+, * or -", sum, { { "operand", x }, { "operand", w.y } })
    end
    spoil("* by a number", function(n) return x * n end, { { "operand", 2 } })
  end)

  it("ops", function()
    local o, x, y = neap.op, w.x, w.y
    spoil("add", o.add, { { "beside", x }, { "beside", y } })
    spoil("subtract", o.subtract, { { "beside", x }, { "beside", y } })
    spoil("multiply", o.multiply, { { "beside", x }, { "beside", y } })
    spoil("scale", o.scale, { { "f32", x }, { "finite", 2 } })
    for _, name in ipairs({ "gelu", "relu", "silu", "sigmoid", "tanh", "transpose" }) do
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
    local images, six = neap.zeros({ 2, 6, 5, 5 }), neap.full({ 6 }, 1)
    spoil("conv2d", o.conv2d, { { "beside", images }, { "beside", neap.zeros({ 2, 6, 3, 3 }) },
      { "beside_or_nil", neap.zeros({ 2 }) }, { "counting_or_nil", 1 }, { "count_or_nil", 0 } })
    spoil("batchnorm", o.batchnorm, { { "beside", x }, { "beside", six }, { "beside", six },
      { "positive_or_nil", 1e-5 } })
    spoil("batchnorm_inference", o.batchnorm_inference, { { "beside", x }, { "beside", six },
      { "beside", six }, { "beside", six }, { "beside", six }, { "positive_or_nil", 1e-5 } })
    for _, name in ipairs({ "maxpool2d", "avgpool2d" }) do
      spoil(name, o[name], { { "f32", images }, { "counting", 2 }, { "counting_or_nil", 1 },
        { "count_or_nil", 0 } })
    end
    spoil("global_avgpool2d", o.global_avgpool2d, { { "f32", images } })
    spoil("flatten", o.flatten, { { "tensor", x } })
    spoil("narrow", o.narrow, { { "tensor", x }, { "counting", 1 }, { "count", 1 } })
    spoil("select", o.select, { { "tensor", x }, { "counting", 1 }, { "counting", 1 } })
    spoil("lstm_cell", o.lstm_cell, { { "beside", neap.zeros({ 4, 24 }) }, { "beside", x } })
    spoil("gru_cell", o.gru_cell, { { "beside", neap.zeros({ 4, 18 }) },
      { "beside", neap.zeros({ 4, 18 }) }, { "beside", x } })
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

  it("all of these leaves the next step as it was, bit for bit, after 1,000 calls and more",
    function()
      local before, after = calls.steps()
      assert.same(before, after)
      print(string.format("\n%d wrong calls in %d groups", calls.calls, calls.groups))
      assert.is_true(calls.calls >= 1000)
    end)
end)
