-- Planning for a budget: what a person asks of plans and frontiers, and that runs keep the promise.
local C = require("neap.ffi").C
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local models = require("spec.support.models")

local CHUNK, CONTEXT = 3, 16

local function gpt(dropout)
  neap.manual_seed(3)
  return neap.nn.GPT({ vocabulary = 31, context = CONTEXT, width = 16, n_layer = 5, n_head = 2,
    dropout = dropout })
end

local function batch()
  local inputs, targets = {}, {}
  for i = 1, CHUNK * CONTEXT do inputs[i], targets[i] = i * 7 % 31, (i * 7 + 7) % 31 end
  local dims, options = { CHUNK, CONTEXT }, { dtype = "i32", tag = C.NEAP_TAG_BATCH }
  return { inputs = neap.tensor(inputs, dims, options),
    targets = neap.tensor(targets, dims, options) }
end

local function budgets(keep_all)
  local list = {}
  for percent = 5, 100, 5 do list[#list + 1] = math.floor(keep_all * percent / 100) end
  return list
end

describe("plans under a budget", function()
  local profile, keep_all, everything

  setup(function()
    neap.device("null")
    profile = neap.profile(gpt(0.1), batch())
    everything = neap.simulate(neap.plan("none", profile), profile)
    keep_all = everything.peak_bytes
  end)

  it("peak within it, higher only for a higher one, and cost less the more there is", function()
    local peak, cost, n = 0, math.huge, 0
    for _, budget in ipairs(budgets(keep_all)) do
      local plan, message = neap.plan(profile, { policy = "optimal", budget = budget })
      if plan then
        local found = neap.simulate(plan, profile)
        assert.is_true(found.peak_bytes <= budget and found.peak_bytes >= peak)
        assert.is_true(found.cost <= cost)
        peak, cost, n = found.peak_bytes, found.cost, n + 1
      else
        local least = neap.frontier(profile).least_bytes
        assert.equal(0, n)
        assert.is_true(least > budget)
        assert.matches(string.format("the least feasible peak of these 7 stages is %.0f bytes",
          least), message, 1, true)
        assert.matches(string.format("the plan budget is %.0f bytes", budget), message, 1, true)
      end
    end
    assert.is_true(n > 5)
    assert.equal(keep_all, peak)
    assert.equal(everything.cost, cost)
  end)

  it("run in exactly the least feasible budget and not in a byte less", function()
    local least = neap.frontier(profile).least_bytes
    local plan = assert(neap.plan(profile, { policy = "optimal", budget = least }))
    assert.equal(least, neap.simulate(plan, profile).peak_bytes)
    assert.equal(least, plan.least_bytes)
    assert.is_nil((neap.plan(profile, { policy = "optimal", budget = least - 1 })))
    assert.is_nil((neap.plan("optimal:0", profile)))
  end)

  it("take a budget as bytes, as text and as the knee", function()
    local text = string.format("optimal:%.0f", keep_all)
    assert.same(neap.plan(profile, { policy = "optimal", budget = keep_all }),
      neap.plan(text, profile))
    local frontier = neap.frontier(profile)
    local knee = neap.plan("optimal:auto", profile)
    assert.same(frontier[frontier.knee].plan.actions, knee.actions)
    assert.equal("optimal:auto", knee.spec)
  end)

  it("say out loud where nothing is saved", function()
    local plan = neap.plan(profile, { policy = "optimal", budget = "1GiB" })
    assert.matches("keeping everything takes .* so nothing is dropped and nothing saved",
      plan.notes[1])
    local without = neap.simulate(plan, profile)
    assert.equal(7, without.forwards)
    assert.is_table(neap.plan(profile, { policy = "optimal", budget = keep_all }).notes)
    plan = neap.plan(profile, { policy = "optimal", budget = keep_all - 1 })
    assert.is_nil(plan.notes)
    assert.equal(keep_all - 1, plan.budget_bytes)
    assert.is_true(neap.simulate(plan, profile).forwards > 7)
  end)

  it("print what is kept, the peak, the cost and both budgets", function()
    local text = tostring(neap.plan("optimal:auto", profile))
    assert.matches("plan optimal:auto: 7 stages", text)
    assert.matches("block%.4", text)
    assert.matches("predicted peak .* at action", text)
    assert.matches("cost %+[%d.]+%% over keep%-all", text)
    assert.matches("least feasible budget", text)
    assert.matches("least budget without recomputation", text)
    -- other plans of short chains tell the least budget too
    assert.matches("least feasible budget", tostring(neap.plan("segments:2", profile)))
  end)

  it("refuse what is no budget, with what was found", function()
    for _, budget in ipairs({ 0 / 0, -1, math.huge, "12 bananas", "", true, {} }) do
      assert.matches("optimal", failure_of("usage", neap.plan, profile,
        { policy = "optimal", budget = budget }))
    end
    assert.matches("at least one stage", failure_of("usage", neap.plan, { stages = {} },
      { policy = "optimal", budget = 1 }))
    assert.matches("at least one stage", failure_of("usage", neap.frontier, { stages = {} }))
    assert.matches("expected a profile and a policy", failure_of("usage", neap.plan, profile))
  end)
end)

describe("a frontier", function()
  local profile

  setup(function()
    neap.device("null")
    profile = neap.profile(gpt(0), batch())
  end)

  it("is an array of points by rising peak and falling cost, each with a plan that keeps it",
    function()
    local frontier = neap.frontier(profile)
    assert.is_true(#frontier > 2)
    for k, point in ipairs(frontier) do
      local found = neap.simulate(point.plan, profile)
      assert.equal(point.peak_bytes, found.peak_bytes)
      assert.equal(point.cost, found.cost)
      if k > 1 then
        assert.is_true(point.peak_bytes > frontier[k - 1].peak_bytes)
        assert.is_true(point.cost < frontier[k - 1].cost)
      end
    end
    assert.equal(frontier[1].peak_bytes, frontier.least_bytes)
    assert.equal(neap.simulate(neap.plan("none", profile), profile).cost, frontier[#frontier].cost)
  end)

  it("holds nothing that a policy beats", function()
    local frontier = neap.frontier(profile)
    for _, spec in ipairs({ "none", "all", "every_n:2", "segments:2", "segments:3",
      "segments:auto", "revolve:2", "by_name:block.1" }) do
      local found = neap.simulate(neap.plan(spec, profile), profile)
      local plan = assert(frontier:plan(found.peak_bytes), spec)
      assert.is_true(neap.simulate(plan, profile).cost <= found.cost, spec)
    end
    assert.is_nil((frontier:plan(frontier.least_bytes - 1)))
    assert.matches("the plan budget is 1 bytes", select(2, frontier:plan(1)))
    assert.matches("frontier:plan: '12 bananas'", failure_of("usage", frontier.plan, frontier,
      "12 bananas"))
  end)

  it("prints a row a point, with the knee", function()
    local frontier = neap.frontier(profile)
    local text = tostring(frontier)
    assert.matches(string.format("frontier of 7 stages: %d points, exact", #frontier), text, 1,
      true)
    assert.matches("0.0%", text, 1, true)
    assert.matches("knee", text)
    assert.equal(#frontier + 2, select(2, text:gsub("[^\n]+", "")))
  end)
end)

for _, name in ipairs({ "cpu", "null" }) do
  describe("training steps on " .. name, function()
    local device, model, data, profile, kept

    setup(function()
      device = neap.device(name, { budget = "1GiB" })
      model, data = gpt(0.1), batch()
      profile = neap.profile(model, data, { cost = "flops", modes = { "matmul" } })
      kept = models.run(model, data, neap.plan("none", profile))
    end)

    local function check(plan, budget)
      local before = device:memory().live_bytes
      device:restart_peak("action")
      device:restart_peak("work")
      local run = models.run(model, data, plan)
      local found, memory = neap.simulate(plan, profile), device:memory()
      assert.equal(found.peak_bytes, memory.peak.action - before, plan.spec)
      assert.is_true(memory.peak.work <= budget, plan.spec)
      assert.equal(before, memory.live_bytes)
      assert.equal(found.forwards, run.executor.forwards)
      if name == "cpu" then
        assert.equal(kept.loss, run.loss, plan.spec)
        assert.same(kept.gradients, run.gradients)
      end
    end

    it("peak to the byte where each kind of plan says, with the bits of keep-all", function()
      for _, spec in ipairs({ "none", "all", "every_n:2", "by_name:block.1", "greedy:20KiB",
        "segments:1", "segments:3", "segments:auto", "revolve:1", "revolve:3", "optimal:auto",
        { policy = "segments", starts = { "block.1", "block.4" } },
        "selective:matmul", { rules = { { "block", "recompute" } } },
        { rules = { { "block.1", "selective:matmul" }, { "block.3", "recompute" } } } }) do
        check(neap.plan(spec, profile), math.huge)
      end
    end)

    it("stay within every plan budget that can be planned, with the bits of keep-all", function()
      local n = 0
      for _, budget in ipairs(budgets(neap.simulate(neap.plan("none", profile), profile)
        .peak_bytes)) do
        local plan = neap.plan(profile, { policy = "optimal", budget = budget })
        if plan then
          check(plan, budget)
          n = n + 1
        end
      end
      assert.is_true(n > 5)
    end)
  end)
end
