local N = require("neap.ffi")
local fail = require("neap.fail")
local plans = require("neap.checkpoint.plan")
local solver = require("neap.checkpoint.solver")
local chains = require("spec.support.chains")
local interpreter = require("spec.support.plan_interpreter")
local vectors = require("spec.support.vectors")

local C, ffi = N.C, N.ffi

-- boundaries weigh one unit each, nothing else weighs anything
local function uniform(n, fields)
  local stages = {}
  for i = 1, n do
    stages[i] = { name = "s" .. i - 1, out_bytes = 1, saved_bytes = 0, forward_extra_bytes = 0,
      backward_extra_bytes = 0, forward_cost = 1, backward_cost = 1 }
    for key, value in pairs(fields or {}) do stages[i][key] = value end
  end
  return { stages = stages }
end

-- most boundaries kept at once while something is run again from them, x_0 among them
local function slots_used(actions)
  local kept, n, most = { [0] = true }, 1, 1
  for _, action in ipairs(actions) do
    if action.op == "forward" and action.keep == "input" and not kept[action.stage] then
      kept[action.stage], n = true, n + 1
    elseif action.op == "free" and kept[action.stage] then
      kept[action.stage], n = nil, n - 1
    end
    most = math.max(most, n)
  end
  return most
end

describe("revolve", function()
  it("runs the extra forwards of the binomial schedule, within its slots", function()
    local rows = vectors.load("revolve")
    for i, n in ipairs(rows.n) do
      local profile = uniform(n)
      for j, slots in ipairs(rows.s) do
        local actions = solver.revolve(profile, slots)
        local found = assert(interpreter.run({ actions = actions }, profile))
        assert.equal(rows.extra_forwards[i][j], found.forwards - n, n .. " in " .. slots)
        assert.is_true(slots_used(actions) <= slots, n .. " in " .. slots)
      end
    end
  end)

  it("is valid and needs as many forwards on unequal and measured chains", function()
    for seed = 1, 60 do
      local kind = ({ "table", "early", "measured", "modes" })[seed % 4 + 1]
      local n = seed % 12 + 1
      local profile = chains.random_profile(seed, n, kind)
      for slots = 1, n + 1 do
        local plan = { actions = solver.revolve(profile, slots) }
        assert.is_true(plans.validate(plan, profile))
        local equal = { actions = solver.revolve(uniform(n), slots) }
        assert.equal(plans.simulate(equal, uniform(n)).forwards,
          plans.simulate(plan, profile).forwards)
      end
    end
  end)

  it("runs nothing more than once more when there are slots for all", function()
    for _, slots in ipairs({ 7, 8, 1000, 2 ^ 31 - 1 }) do
      local found = plans.simulate({ actions = solver.revolve(uniform(7), slots) }, uniform(7))
      assert.equal(7 + 6, found.forwards)
    end
  end)

  it("stops recomputations early where the stage does", function()
    local profile = uniform(3, { stops_early = true, recompute_cost = 0,
      recompute_extra_bytes = 0 })
    local found = plans.simulate({ actions = solver.revolve(profile, 3) }, profile)
    assert.equal(5, found.forwards)
    assert.equal(3 + 3, found.cost)
  end)

  it("refuses slots that are none", function()
    for _, slots in ipairs({ 0, -1, 1.5, 0 / 0, 1 / 0, 2 ^ 31, "2", {} }) do
      local ok, err = pcall(solver.revolve, uniform(3), slots)
      assert.is_false(ok)
      assert.is_true(fail.is(err, "usage"))
      assert.matches("revolve: slots must be a whole number", err.message)
    end
    local ok, err = pcall(solver.revolve, uniform(3))
    assert.is_false(ok)
    assert.is_true(fail.is(err, "usage"))
  end)

  it("says so when a schedule is too long to be written down", function()
    local n = 100000
    local stages = ffi.new("neap_stage[?]", n)
    assert.equal(C.NEAP_ERR_OVERFLOW, C.neap_plan_revolve(n, stages, 1, 0, nil))
    assert.matches("100000 stages in 1 slots take", ffi.string(C.neap_last_error()))
    -- r * n - C(s + r, s + 1) with s = 10, r = 10, by hand
    local found = C.neap_plan_revolve(n, stages, 10, 0, nil)
    assert.equal(10 * n - 167960 + n + n + n + n - 1, found)
  end)

  it("refuses NULL, no room and no memory", function()
    local stages, actions = ffi.new("neap_stage[3]"), ffi.new("neap_action[4]")
    assert.equal(C.NEAP_ERR_INVALID, C.neap_plan_revolve(3, nil, 1, 0, nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_plan_revolve(3, stages, 0, 0, nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_plan_revolve(3, stages, 1, 4, nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_plan_revolve(3, stages, 1, -1, actions))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_plan_revolve(0, stages, 1, 4, actions))
    for k = 1, 2 do
      N.check(C.neap_memory_fail(k, 1))
      local code = C.neap_plan_revolve(3, stages, 1, 4, actions)
      N.check(C.neap_memory_fail(0, 0))
      assert.equal(C.NEAP_ERR_MEMORY, code)
    end
    -- what does not fit is counted and not written
    actions[2].op = 99
    assert.is_true(C.neap_plan_revolve(3, stages, 1, 2, actions) > 4)
    assert.equal(99, actions[2].op)
  end)
end)
