local N = require("neap.ffi")
local plans = require("neap.checkpoint.plan")
local solver = require("neap.checkpoint.solver")
local chains = require("spec.support.chains")
local vectors = require("spec.support.vectors")

local C, ffi, check = N.C, N.ffi, N.check

-- activations weigh one unit, residuals nothing: in segment k, counted from 0, there are then the k
-- boundaries before it that are not the batch, its own activations and the gradient at its end
local function uniform(n)
  local stages = {}
  for i = 1, n do
    stages[i] = { name = "s" .. i - 1, out_bytes = 1, saved_bytes = 0, forward_extra_bytes = 0,
      backward_extra_bytes = 0, forward_cost = 1, backward_cost = 1 }
  end
  return { stages = stages }
end

local function formula_peak(starts, n)
  local peak = 0
  for k, start in ipairs(starts) do
    peak = math.max(peak, k + (starts[k + 1] or n) - start)
  end
  return peak
end

local function simulated(starts, profile)
  local stages = require("neap.checkpoint.stages")
  local c_stages, n = stages.read(profile)
  local c_starts = ffi.new("int32_t[?]", #starts, starts)
  local actions = ffi.new("neap_action[?]", check(C.neap_plan_capacity(n)))
  local n_actions = check(C.neap_plan_from_segments(n, c_stages, #starts, c_starts, actions))
  local out = ffi.new("neap_simulation")
  check(C.neap_plan_simulate(n, c_stages, n_actions, actions, out, nil))
  return tonumber(out.peak_bytes)
end

-- every split of n stages: one bit a stage but the first
local function each_split(n, fn)
  for bits = 0, 2 ^ (n - 1) - 1 do
    local starts = { 0 }
    for i = 1, n - 1 do
      if math.floor(bits / 2 ^ (i - 1)) % 2 == 1 then starts[#starts + 1] = i end
    end
    fn(starts)
  end
end

describe("the best split into segments", function()
  it("has the least peak of all splits, exactly as simulated, on unequal chains", function()
    for _, kind in ipairs({ "table", "early", "measured" }) do
      for seed = 1, 25 do
        local n = seed % 9 + 1
        local profile = chains.random_profile(seed, n, kind)
        local starts, peak = solver.segments_auto(profile)
        assert.equal(simulated(starts, profile), peak, kind .. " " .. seed)
        local least = math.huge
        each_split(n, function(other) least = math.min(least, simulated(other, profile)) end)
        assert.equal(least, peak, kind .. " " .. seed)
      end
    end
  end)

  it("has the peaks of the vectors on uniform chains, its lengths falling by one", function()
    local rows = vectors.load("segments_uniform")
    for i, n in ipairs(rows.n) do
      local starts, peak = solver.segments_auto(uniform(n))
      assert.equal(rows.decreasing[i], peak, n)
      assert.equal(peak, formula_peak(starts, n))
      assert.equal(peak, simulated(starts, uniform(n)))
    end
    -- 10 = 4 + 3 + 2 + 1
    assert.same({ 0, 4, 7, 9 }, (solver.segments_auto(uniform(10))))
  end)

  it("is no worse than any balanced split, whose peak is the formula's", function()
    for _, n in ipairs({ 1, 2, 3, 10, 24, 64 }) do
      local profile = uniform(n)
      local _, best = solver.segments_auto(profile)
      for k = 1, n do
        local found = plans.simulate(plans.build("segments:" .. k, profile), profile)
        local starts = {}
        for j = 0, k - 1 do starts[j + 1] = math.floor(j * n / k) end
        assert.equal(formula_peak(starts, n), found.peak_bytes, n .. " in " .. k)
        assert.is_true(best <= found.peak_bytes)
      end
    end
  end)

  it("keeps everything when nothing else needs less", function()
    local profile = chains.random_profile(1, 1, "table")
    assert.same({ 0 }, (solver.segments_auto(profile)))
    -- residuals without bytes: recomputing cannot help
    local flat = uniform(4)
    for i = 1, 3 do flat.stages[i].out_bytes = 0 end
    assert.same({ 0 }, (solver.segments_auto(flat)))
  end)

  it("refuses NULL, sums that do not fit, and failing memory", function()
    local stages, starts = ffi.new("neap_stage[3]"), ffi.new("int32_t[3]", 7)
    local peak = ffi.new("int64_t[1]", 5)
    assert.equal(C.NEAP_ERR_INVALID, C.neap_plan_segments_auto(3, nil, starts, peak))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_plan_segments_auto(3, stages, nil, peak))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_plan_segments_auto(3, stages, starts, nil))
    stages[0].out_bytes, stages[1].saved_bytes = 0x7fffffffffffffffLL, 0x7fffffffffffffffLL
    assert.equal(C.NEAP_ERR_OVERFLOW, C.neap_plan_segments_auto(3, stages, starts, peak))
    stages[0].out_bytes, stages[1].saved_bytes = 1, 1
    for k = 1, 2 do
      check(C.neap_memory_fail(k, 1))
      local code = C.neap_plan_segments_auto(3, stages, starts, peak)
      check(C.neap_memory_fail(0, 0))
      assert.equal(C.NEAP_ERR_MEMORY, code)
    end
    assert.is_true(starts[0] == 7 and peak[0] == 5)
  end)
end)
