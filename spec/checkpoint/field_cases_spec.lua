-- What went wrong for users of other systems, as inputs with the outcome neap has to give.
local C = require("neap.ffi").C
local fail = require("neap.fail")
local models = require("spec.support.models")
local neap = require("neap")
local rng = require("neap.rng")
local op = neap.op

local RECOMPUTING = { "all", "every_n:2", "segments:2", "segments:3" }

local function failure(fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  return fail.message(err)
end

describe("randomness", function()
  it("dropout in a recomputed region has the same mask, loss and gradients bit for bit",
    function()
    neap.device("cpu")
    local chain, batch = models.chain(6, 32, 0.5), models.batch(8, 32)
    local profile = neap.profile(chain, batch)
    local kept = models.run(chain, batch, neap.plan("none", profile))
    for _, policy in ipairs(RECOMPUTING) do
      local run = models.run(chain, batch, neap.plan(policy, profile))
      assert.equal(kept.loss, run.loss)
      assert.same(kept.gradients, run.gradients)
    end
    -- the masks are not trivial
    local other = models.chain(6, 32, 0)
    assert.not_equal(kept.loss, models.run(other, batch, neap.plan("none", profile)).loss)
  end)

  it("numbers drawn after the backward of a recomputed region are those without", function()
    neap.device("cpu")
    local chain, batch = models.chain(4, 16, 0.5), models.batch(4, 16)
    local profile = neap.profile(chain, batch)
    local x = neap.full({ 64 }, 1)
    local drawn, position
    for _, policy in ipairs({ "none", unpack(RECOMPUTING) }) do
      models.run(chain, batch, neap.plan(policy, profile))
      local after = rng.get()
      local bits = op.dropout(x, 0.5):bits()
      drawn, position = drawn or bits, position or after
      assert.same(position, after)
      assert.same(drawn, bits)
    end
  end)
end)

describe("gradients that must be there", function()
  it("parameters get gradients in a region whose input needs none", function()
    neap.device("cpu")
    local chain, batch = models.chain(3, 16), models.batch(4, 16)
    assert.equal(0, C.neap_tensor_needs_grad(batch.inputs.id))
    models.run(chain, batch, "all")
    for _, p in ipairs(chain:parameters()) do
      local norm = 0
      for _, g in ipairs(p.tensor:grad():table()) do norm = norm + g * g end
      assert.is_true(norm > 0, p.name .. " has no gradient")
    end
  end)

  it("a region in which nothing needs a gradient records nothing, and backward is no error",
    function()
    neap.device("cpu")
    local Constant = neap.nn.class("Constant")
    function Constant:forward(x) return op.gelu(op.scale(x, 2)) end -- luacheck: ignore 212
    local nodes
    local Count = neap.nn.class("Count")
    function Count:forward(x) -- luacheck: ignore 212
      local y = op.gelu(op.scale(x, 2))
      nodes = C.neap_tape_selected() ~= 0 and C.neap_tape_n_nodes(C.neap_tape_selected()) or 0
      return y
    end
    local chain = neap.nn.Sequential({ { "count", Count() }, { "constant", Constant() },
      { "loss", models.Loss() } })
    local batch = models.batch(4, 16)
    for _, policy in ipairs({ "none", "all", "segments:2" }) do
      local run = models.run(chain, batch, policy)
      assert.is_true(run.loss > 0)
      assert.equal(0, nodes)
    end
  end)

  it("every parameter has a gradient equal to the run without recomputation", function()
    neap.device("cpu")
    neap.manual_seed(1)
    local chain = neap.nn.GPT({ vocabulary = 11, context = 8, width = 16, n_layer = 3, n_head = 2 })
    local ids, targets = {}, {}
    for i = 1, 16 do ids[i], targets[i] = i * 5 % 11, (i * 5 + 3) % 11 end
    local batch = { inputs = neap.tensor(ids, { 2, 8 }, { dtype = "i32" }),
      targets = neap.tensor(targets, { 2, 8 }, { dtype = "i32" }) }
    local kept = models.run(chain, batch, "none")
    for _, policy in ipairs(RECOMPUTING) do
      local run = models.run(chain, batch, policy)
      for _, p in ipairs(chain:parameters()) do
        assert.same(kept.gradients[p.name], run.gradients[p.name], p.name)
        local some = false
        for _, bits in ipairs(run.gradients[p.name]) do some = some or bits ~= 0 end
        assert.is_true(some, p.name .. " is untrained")
      end
    end
  end)
end)

describe("evaluation", function()
  it("records nothing and recomputes nothing, whatever the policy", function()
    local device = neap.device("cpu", { budget = "1GiB" })
    local chain, batch = models.chain(6, 16), models.batch(8, 16)
    local executor = neap.executor(chain)
    models.run(chain, batch, "all")
    local counters = require("ffi").new("neap_counters")
    C.neap_counters_get(counters)
    local before = counters.n_forwards
    local live = device:memory().live_bytes
    device:restart_peak("action")
    local nodes = C.neap_tape_n_nodes(C.neap_tape_selected())
    neap.scope(function() executor:evaluate(batch):item() end)
    C.neap_counters_get(counters)
    -- a layer is layernorm, linear, gelu and add; the loss is scale, add, multiply and mean
    assert.equal(6 * 4 + 4, counters.n_forwards - before)
    assert.equal(nodes, C.neap_tape_n_nodes(C.neap_tape_selected()))
    assert.equal(live, device:memory().live_bytes)
    -- at most a stage's input, output and what is between
    assert.is_true(device:memory().peak.action - live <= 5 * 8 * 16 * 4)
  end)
end)

describe("segments and names", function()
  it("9 stages in 5 segments differ in length by at most 1", function()
    local segments = neap.segment_checkpointer(5, 9)
    local boundaries = {}
    for i = 0, 8 do
      if segments:is_boundary(i) then boundaries[#boundaries + 1] = i end
    end
    assert.same({ 0, 1, 3, 5, 7, 8 }, boundaries)
  end)

  it("more segments than stages, 0, negative, 2.5 and NaN name the allowed range", function()
    neap.device("cpu")
    local chain, batch = models.chain(5, 16), models.batch(2, 16)
    local profile = neap.profile(chain, batch)
    assert.matches("segments:7: this model has 6 stages; allowed 1%.%.6",
      failure(neap.plan, "segments:7", profile))
    for _, spec in ipairs({ "segments:0", "segments:-1", "segments:2.5", "segments:nan" }) do
      assert.matches("expected a whole number, 1 to the number of stages",
        failure(neap.plan, spec, profile))
    end
    for _, k in ipairs({ 0, -1, 2.5, 0 / 0, 1 / 0 }) do
      assert.matches("1 to the number of stages",
        failure(neap.plan, { policy = "segments", k = k }, profile))
    end
  end)

  it("a name that matches no stage lists close ones; duplicate stage names do not build",
    function()
    neap.device("cpu")
    local chain, batch = models.chain(3, 16), models.batch(2, 16)
    assert.matches("layer%.1", failure(neap.plan, "by_name:layr.1", neap.profile(chain, batch)))
    assert.matches("stages 1 and 2 are both called 'a'", failure(neap.nn.Sequential,
      { { "a", models.Layer(16, 0) }, { "a", models.Layer(16, 0) } }))
  end)
end)

describe("memory", function()
  it("of 16 and more stages, measured, is lower with recomputation than without", function()
    local device = neap.device("cpu", { budget = "1GiB" })
    local chain, batch = models.chain(20, 32), models.batch(64, 32)
    local profile = neap.profile(chain, batch)
    local function peak(policy)
      local live = device:memory().live_bytes
      device:restart_peak("action")
      models.run(chain, batch, neap.plan(policy, profile))
      return device:memory().peak.action - live
    end
    local none = peak("none")
    assert.is_true(peak("all") < 0.5 * none)
    assert.is_true(peak("segments:4") < 0.6 * none)
    assert.is_true(peak("every_n:2") < none)
  end)

  it("backward never rebuilds all segments at once: boundaries and one segment bound the "
    .. "peak", function()
    local device = neap.device("cpu", { budget = "1GiB" })
    local chain, batch = models.chain(24, 32), models.batch(64, 32)
    local profile = neap.profile(chain, batch)
    local layer = profile.stages[3]
    for _, k in ipairs({ 4, 5, 6, 8 }) do
      local live = device:memory().live_bytes
      device:restart_peak("action")
      models.run(chain, batch, neap.plan("segments:" .. k, profile))
      local longest = math.ceil(25 / k)
      local bound = k * layer.out_bytes + longest * (layer.out_bytes + layer.saved_bytes)
        + layer.forward_extra_bytes + layer.backward_extra_bytes + 3 * layer.out_bytes
      assert.is_true(device:memory().peak.action - live <= bound)
    end
  end)
end)

describe("chunks", function()
  it("10 items in chunks of 4, 4, 2 equal one batch of 10, not a mean of means", function()
    neap.device("cpu")
    local chain, batch = models.chain(3, 16, 0.3), models.batch(10, 16)
    local plan = neap.plan("none", neap.profile(chain, batch))
    local executor = neap.executor(chain)
    chain:zero_grad()
    rng.place(5, 1, 0, 10)
    local whole = executor:run(batch, plan, 1)
    local expected = {}
    for _, p in ipairs(chain:parameters()) do expected[p.name] = p.tensor:grad():table() end
    chain:zero_grad()
    local sum = 0
    for _, part in ipairs({ { 0, 4 }, { 4, 4 }, { 8, 2 } }) do
      local first, n = unpack(part)
      -- the masks follow the item, not the chunk
      rng.place(5, 1, first, n)
      sum = sum + n / 10 * executor:run({ inputs = op.narrow(batch.inputs, first + 1, n),
        targets = op.narrow(batch.targets, first + 1, n) }, plan, n / 10)
    end
    assert.is_true(math.abs(whole - sum) < 1e-6)
    for _, p in ipairs(chain:parameters()) do
      for e, g in ipairs(p.tensor:grad():table()) do
        assert.is_true(math.abs(g - expected[p.name][e]) < 1e-6, p.name)
      end
    end
  end)
end)
