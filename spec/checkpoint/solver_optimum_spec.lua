local solver = require("neap.checkpoint.solver")
local chains = require("spec.support.chains")
local exhaustive = require("spec.support.exhaustive")

local long = os.getenv("NEAP_LONG")

-- a chain of table stages; "modes": some offer named ones
local function chain_of(seed, n, kind)
  local profile = chains.random_profile(seed, n, kind == "table" and "table" or "early")
  local random = chains.random(seed * 13 + 5)
  for _, stage in ipairs(profile.stages) do
    stage.modes = {}
    for m = 1, kind == "modes" and random(0, 1) or 0 do
      -- what a mode saves it pays for in time, as selective recomputation does
      stage.modes[m] = { name = "m" .. m, saved_bytes = random(0, stage.saved_bytes),
        forward_extra_bytes = stage.forward_extra_bytes + random(0, 5),
        backward_extra_bytes = stage.backward_extra_bytes + random(0, 9),
        forward_cost = stage.forward_cost, backward_cost = stage.backward_cost + random(0, 5) }
    end
  end
  return profile
end

local function cost_at(points, budget)
  local cost
  for _, point in ipairs(points) do
    if (point.peak_bytes or point[1]) <= budget then cost = point.cost or point[2] end
  end
  return cost
end

local function least_of(list, budget)
  local least
  for _, point in ipairs(list) do
    if point[1] <= budget and (not least or point[2] < least) then least = point[2] end
  end
  return least
end

-- the frontier against the optimum at each of its peaks; sums relative gaps
local function compare(profile, searched, saves_inputs, gaps, label)
  local points = solver.frontier(profile):points()
  for k, point in ipairs(points) do
    local optimum = exhaustive.least_cost(searched, point.peak_bytes, saves_inputs)
    assert.is_true(optimum ~= nil and optimum <= point.cost, label .. ", point " .. k)
    gaps.n = gaps.n + 1
    gaps.sum = gaps.sum + (point.cost - optimum) / math.max(optimum, 1)
    gaps.above = gaps.above + (point.cost > optimum and 1 or 0)
  end
  local below = exhaustive.least_cost(searched, points[1].peak_bytes - 1, saves_inputs)
  gaps.missed = gaps.missed + (below and 1 or 0)
  return points
end

local function new_gaps() return { n = 0, sum = 0, above = 0, missed = 0, chains = 0 } end

local function report(name, gaps)
  print(string.format("\n  %s: %d chains, %d points; mean gap to the optimum %.4f%%, %d points "
    .. "above it, %d chains whose least peak it beats", name, gaps.chains, gaps.n,
    gaps.sum / gaps.n * 100, gaps.above, gaps.missed))
end

describe("the frontier of short chains", function()
  it("is never below the optimum nor above the persistent one", function()
    for _, kind in ipairs({ "table", "early", "modes" }) do
      local gaps = new_gaps()
      for seed = 1, long and 300 or 50 do
        local profile, label = chain_of(seed, seed % 5 + 1, kind), kind .. " " .. seed
        local points = compare(profile, profile, false, gaps, label)
        gaps.chains = gaps.chains + 1
        local persistent = exhaustive.persistent(profile)
        for _, point in ipairs(persistent) do
          local least = least_of(persistent, point[1])
          assert.is_true(cost_at(points, point[1]) <= least, label .. ", peak " .. point[1])
        end
      end
      report(kind, gaps)
      assert.is_true(gaps.sum / gaps.n < 0.02)
    end
  end)

  it("is the optimum where stages save their inputs", function()
    for _, kind in ipairs({ "table", "early" }) do
      local gaps = new_gaps()
      for seed = 1, long and 300 or 60 do
        local profile = chain_of(seed, seed % 5 + 1, kind)
        compare(exhaustive.saving_inputs(profile), profile, true, gaps, kind .. " " .. seed)
        gaps.chains = gaps.chains + 1
      end
      report(kind .. ", saving inputs", gaps)
      assert.same({ 0, 0 }, { gaps.above, gaps.missed })
    end
  end)
end)
