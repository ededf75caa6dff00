local plans = require("neap.checkpoint.plan")
local solver = require("neap.checkpoint.solver")
local chains = require("spec.support.chains")
local interpreter = require("spec.support.plan_interpreter")
local vectors = require("spec.support.vectors")

local long = os.getenv("NEAP_LONG")

-- every point's plan, judged by both simulators; returns how many
local function check_points(frontier, profile, label)
  local points, last = frontier:points(), nil
  for k, point in ipairs(points) do
    local plan = { actions = frontier:actions(k) }
    local valid, message = plans.validate(plan, profile)
    assert.is_true(valid, label .. ", point " .. k .. ": " .. tostring(message))
    local found = plans.simulate(plan, profile)
    local expected = assert(interpreter.run(plan, profile))
    assert.equal(expected.peak_bytes, found.peak_bytes, label)
    assert.equal(point.peak_bytes, found.peak_bytes, label .. ", peak of point " .. k)
    assert.equal(point.cost, found.cost, label .. ", cost of point " .. k)
    if last then
      assert.is_true(last.peak_bytes < point.peak_bytes and last.cost > point.cost, label)
    end
    last = point
  end
  return #points
end

local function cost_at(points, budget)
  local cost
  for _, point in ipairs(points) do
    if (point.peak_bytes or point[1]) <= budget then cost = point.cost or point[2] end
  end
  return cost
end

describe("the frontier", function()
  local cases = vectors.load("planner").cases

  it("is no worse than the persistent one and no better than the optimum", function()
    assert.equal(41, #cases)
    local n_optima = 0
    for c, case in ipairs(cases) do
      local frontier = solver.frontier(chains.of_vector(case.chain))
      assert.is_true(frontier.exact)
      local points = frontier:points()
      for k, point in ipairs(case.persistent_frontier) do
        local found = cost_at(points, point[1])
        assert.is_true(found ~= nil and found <= point[2], string.format("case %d, peak %d", c,
          point[1]))
        local optimum = (case.optimum_at_those_peaks or {})[k]
        if optimum then
          n_optima = n_optima + 1
          assert.is_true(found >= optimum, string.format("case %d, peak %d", c, point[1]))
        end
      end
      assert.equal(frontier.least_bytes, points[1].peak_bytes)
    end
    assert.equal(74, n_optima)
  end)

  it("gives plans with exactly its peaks and costs on the planner's vectors", function()
    for c, case in ipairs(cases) do
      local profile = chains.of_vector(case.chain)
      check_points(solver.frontier(profile), profile, "case " .. c)
    end
  end)

  it("gives plans with exactly its peaks and costs on random chains", function()
    local n = 0
    for _, kind in ipairs({ "table", "early", "measured", "modes" }) do
      for seed = 1, long and 400 or 60 do
        local profile = chains.random_profile(seed, seed % 9 + 1, kind)
        n = n + check_points(solver.frontier(profile), profile, kind .. " " .. seed)
      end
    end
    assert.is_true(n > 800, n)
  end)

  it("is under every policy and every split into segments", function()
    for seed = 1, long and 300 or 60 do
      local kind = ({ "table", "early", "measured" })[seed % 3 + 1]
      local profile = chains.random_profile(seed, seed % 8 + 1, kind)
      local points = solver.frontier(profile):points()
      for _, spec in ipairs(chains.specs(seed, profile)) do
        local found = plans.simulate(plans.build(spec, profile), profile)
        local last_kept = not spec:find("^segments") and plans.build(spec, profile)
        local cost = cost_at(points, found.peak_bytes)
        -- the last stage run again is no persistent schedule; it may only save what a loss weighs
        local again = last_kept and last_kept.notes and last_kept.notes[1]:find("is the last stage")
        if not again then
          assert.is_true(cost ~= nil and cost <= found.cost, kind .. " " .. seed .. " " .. spec)
        end
      end
    end
  end)
end)
