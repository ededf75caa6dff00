-- The second half of misuse_spec.lua: layers, optimizers, policies, plans and the executor.
local neap = require("neap")
local ffi = require("ffi")
local calls = require("spec.support.misuse_calls")
local misuse = require("spec.support.misuse")

local spoil, spoil_options, w = calls.spoil, calls.spoil_options, calls.w
local NIL = misuse.NIL

describe("misuse of the harness:", function()
  setup(function()
    calls.calls, calls.groups = 0, 0
    calls.open()
  end)
  teardown(calls.close)

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
    spoil("LSTMCell", nn.LSTMCell, { { "counting", 2 }, { "counting", 3 }, { "options", {} } })
    spoil("GRUCell", nn.GRUCell, { { "counting", 2 }, { "counting", 3 } })
    spoil_options("LSTMCell", function(o) return nn.LSTMCell(2, 3, o) end, {},
      { forget_bias = "finite_or_nil" })
    local lstm, gru = nn.LSTMCell(6, 6), nn.GRUCell(6, 6)
    spoil("calling LSTMCell", lstm, { { "beside", w.x }, { "beside", w.y }, { "beside", w.y } })
    spoil("calling GRUCell", gru, { { "beside", w.x }, { "beside", w.y } })
    local recurrent = { vocabulary = 5, time = 6, width = 3, hidden = 4, cell = "gru" }
    misuse.kinds.cell = { { "another", "rnn" }, { "a number", 5 }, { "a table", {} },
      { "true", true }, { "a zero byte", "gru\0" } }
    spoil("Recurrent", nn.Recurrent, { { "table", recurrent } })
    spoil("Recurrent", nn.Recurrent, { { "options", recurrent } })
    spoil_options("Recurrent", nn.Recurrent, recurrent, { vocabulary = "counting",
      time = "counting", width = "counting_or_nil", hidden = "counting", cell = "cell" })
    local over_time = nn.Recurrent(recurrent)
    over_time:zero_grad()
    spoil("calling Recurrent", over_time, { { "ids", w.i32 }, { "self", { batch = {
      targets = w.i32 } } } })
    spoil("a chain over time", neap.step, { { false, over_time }, { "batch", { inputs = w.i32,
      targets = w.i32 } }, { false, "none" } })
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
      local before, after = calls.steps()
      assert.same(before, after)
      print(string.format("\n%d wrong calls in %d groups", calls.calls, calls.groups))
      assert.is_true(calls.calls >= 1000)
    end)
end)
