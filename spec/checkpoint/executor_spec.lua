-- The executor runs plans: bits, bytes, order, and what is left after success and after errors.
local C = require("neap.ffi").C
local fail = require("neap.fail")
local models = require("spec.support.models")
local neap = require("neap")
local op = neap.op

local POLICIES = { "none", "all", "every_n:2", "every_n:3", "by_name:layer.1,layer.4",
  "greedy:4KiB",
  "segments:1", "segments:2", "segments:3", "segments:7" }

describe("the executor", function()
  local device, chain, batch, profile

  before_each(function()
    device = neap.device("cpu", { budget = "1GiB" })
    chain = models.chain(6, 16, 0.3)
    batch = models.batch(10, 16)
    profile = neap.profile(chain, batch, { cost = "flops" })
  end)

  for _, policy in ipairs(POLICIES) do
    it("gives the bits of keep-all under " .. policy, function()
      local kept = models.run(chain, batch, neap.plan("none", profile))
      local run = models.run(chain, batch, neap.plan(policy, profile))
      assert.equal(kept.loss, run.loss)
      assert.same(kept.gradients, run.gradients)
    end)

    it("peaks exactly where the simulation says under " .. policy, function()
      local plan = neap.plan(policy, profile)
      local before = device:memory().live_bytes
      device:restart_peak("action")
      local run = models.run(chain, batch, plan)
      assert.equal(neap.simulate(plan, profile).peak_bytes, device:memory().peak.action - before)
      assert.equal(before, device:memory().live_bytes)
      assert.equal(neap.simulate(plan, profile).forwards, run.executor.forwards)
    end)
  end

  it("keeps its store in the manager: what was dropped, kept, recomputed and in which order",
    function()
    local run = models.run(chain, batch, neap.plan("every_n:3", profile))
    local stats = run.executor.manager:stats()
    assert.equal(3, tonumber(stats.n_checkpointed or stats.num_checkpointed_layers))
    assert.same({ "layer.3", "layer.0" }, { unpack(run.executor.manager:log(), 2) })
  end)

  it("measures the same bytes on null as on the cpu", function()
    local null = neap.device("null", { size = "1GiB" })
    local twin = models.chain(6, 16, 0.3)
    local twin_batch = models.batch(10, 16)
    local on_null = neap.profile(twin, twin_batch)
    assert.same(profile, on_null)
    for _, policy in ipairs(POLICIES) do
      local plan = neap.plan(policy, on_null)
      local before = null:memory().live_bytes
      null:restart_peak("action")
      models.run(twin, twin_batch, plan)
      assert.equal(neap.simulate(plan, on_null).peak_bytes, null:memory().peak.action - before)
    end
  end)

  it("passes several tensors from stage to stage, also unchanged ones and integers", function()
    local Split, Mix, Last = neap.nn.class("Split"), neap.nn.class("Mix"), neap.nn.class("Last")
    function Split:init() self.linear = neap.nn.Linear(16, 16) end
    function Split:forward(x) return op.gelu(self.linear(x)), op.scale(x, 2) end
    function Mix:init() self.linear = neap.nn.Linear(16, 16) end
    -- the second tensor goes through as it is, the first is used twice
    function Mix:forward(a, b) return op.silu(self.linear(a)) * a, b end
    function Last:forward(a, b) return op.mean(a * b + a) end -- luacheck: ignore 212
    local list = { { "split", Split() } }
    for i = 0, 3 do list[#list + 1] = { "mix." .. i, Mix() } end
    list[#list + 1] = { "last", Last() }
    local several = neap.nn.Sequential(list)
    local measured = neap.profile(several, batch)
    local kept
    for _, policy in ipairs({ "none", "all", "every_n:2", "segments:2", "segments:3",
      "segments:6" }) do
      local plan = neap.plan(policy, measured)
      local before = device:memory().live_bytes
      device:restart_peak("action")
      local run = models.run(several, batch, plan)
      assert.equal(neap.simulate(plan, measured).peak_bytes, device:memory().peak.action - before)
      kept = kept or run
      assert.equal(kept.loss, run.loss)
      assert.same(kept.gradients, run.gradients)
      assert.equal(before, device:memory().live_bytes)
    end
  end)

  it("tells a stage whether it runs first or again", function()
    local seen = {}
    local Spy = neap.nn.class("Spy")
    function Spy:forward(x) -- luacheck: ignore 212
      seen[#seen + 1] = neap.is_recomputing()
      return op.scale(x, 1)
    end
    local spied = neap.nn.Sequential({ { "layer.0", models.Layer(16, 0) }, { "spy", Spy() },
      { "loss", models.Loss() } })
    local measured = neap.profile(spied, batch)
    seen = {}
    models.run(spied, batch, neap.plan("by_name:spy", measured))
    assert.same({ false, true }, seen)
    assert.is_false(neap.is_recomputing())
  end)

  for _, when in ipairs({ "first forward", "recomputation", "backward" }) do
    it("leaves memory, tapes and scopes as before after an error in a " .. when, function()
      local armed = false
      local Bomb = neap.nn.class("Bomb")
      local broken = op.define({ name = "broken_in_" .. when:gsub(" ", "_"), n_inputs = 1,
        forward = function(_, x) return op.scale(x, 1) end,
        backward = function(_, g)
          if armed and when == "backward" then error("the fuse burnt") end
          return op.scale(g, 1)
        end })
      function Bomb:forward(x) -- luacheck: ignore 212
        if armed and when == (neap.is_recomputing() and "recomputation" or "first forward") then
          error("the fuse burnt")
        end
        return broken(x)
      end
      local bombed = neap.nn.Sequential({ { "layer.0", models.Layer(16, 0.2) }, { "bomb", Bomb() },
        { "layer.1", models.Layer(16, 0.2) }, { "loss", models.Loss() } })
      local plan = neap.plan("all", neap.profile(bombed, batch))
      local clean = models.run(bombed, batch, plan)
      local before, tape = device:memory().live_bytes, C.neap_tape_selected()
      armed = true
      local ok, err = pcall(models.run, bombed, batch, plan)
      assert.is_false(ok)
      assert.matches("stage 'bomb'.*the fuse burnt", fail.message(err))
      assert.equal(before, device:memory().live_bytes)
      assert.equal(0, C.neap_scope_depth())
      assert.equal(tape, C.neap_tape_selected())
      assert.is_false(neap.is_recomputing())
      armed = false
      local again = models.run(bombed, batch, plan)
      assert.same(clean.gradients, again.gradients)
    end)
  end

  it("refuses a plan of another chain", function()
    local other = models.chain(2, 16)
    local plan = neap.plan("none", neap.profile(other, batch))
    local ok, err = pcall(neap.step, chain, batch, plan)
    assert.is_false(ok)
    assert.matches("plan is for 3 stages, the model has 7", fail.message(err))
  end)

  it("refuses a chain that does not end in one number", function()
    local open = neap.nn.Sequential({ { "layer.0", models.Layer(16, 0) } })
    local ok, err = pcall(neap.profile, open, batch)
    assert.is_false(ok)
    assert.matches("must return the loss", fail.message(err))
  end)
end)
