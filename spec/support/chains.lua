-- Chains for the specs of plans: from the planner's vectors, and random ones of fixed seeds.
local M = {}

--- A stream of whole numbers that depends on the seed alone.
function M.random(seed)
  local state = seed % 2147483647
  if state == 0 then state = 1 end
  return function(low, high)
    state = state * 16807 % 2147483647
    return low + state % (high - low + 1)
  end
end

--- The profile of a chain of planner.json: { L, a, r, f, b, ef, eb }.
function M.of_vector(chain)
  local stages = {}
  for i = 1, chain.L do
    stages[i] = {
      name = "s" .. i - 1, out_bytes = chain.a[i + 1], saved_bytes = chain.r[i],
      forward_extra_bytes = chain.ef[i], backward_extra_bytes = chain.eb[i],
      forward_cost = chain.f[i], backward_cost = chain.b[i],
    }
  end
  return { stages = stages }
end

local function measure(stage, random, n_in)
  stage.measured = true
  stage.forward_peak_bytes = {}
  for k = 1, 4 do stage.forward_peak_bytes[k] = random(0, 60) end
  stage.backward_peak_bytes, stage.grad_bytes = random(0, 60), random(0, 20)
  stage.out = {}
  for k = 1, random(1, 3) do
    local kind = random(1, 6)
    if kind == 1 and n_in > 0 then
      stage.out[k] = { source = random(0, n_in - 1) }
    elseif kind == 2 and k > 1 then
      stage.out[k] = { source = -2 - random(0, k - 2) }
    else
      stage.out[k] = { source = -1, bytes = random(0, 20) }
    end
  end
  stage.saves_in, stage.saves_out = random(0, 2 ^ n_in - 1), random(0, 2 ^ #stage.out - 1)
end

-- up to two further ways to keep the residuals of a stage
local function add_modes(stage, random, n_in)
  stage.modes = {}
  for m = 1, random(0, 2) do
    stage.modes[m] = {
      name = "m" .. m, saved_bytes = random(0, 30), forward_extra_bytes = random(0, 9),
      backward_extra_bytes = random(0, 20), forward_cost = random(0, 9),
      backward_cost = random(0, 15),
    }
    if stage.measured then
      local mode = stage.modes[m]
      mode.forward_peak_bytes, mode.backward_peak_bytes = random(0, 60), random(0, 60)
      mode.saves_in = random(0, 2 ^ n_in - 1)
      mode.saves_out = random(0, 2 ^ #stage.out - 1)
    end
  end
end

--- A random chain. kind: "table", "early" (some stages stop early), "measured" (some are, some stop
--- early), "modes" (measured, and some stages offer named modes).
function M.random_profile(seed, n_stages, kind)
  local random, stages, n_in = M.random(seed * 7919 + n_stages), {}, 8
  for i = 1, n_stages do
    local stage = {
      name = "s" .. i - 1, out_bytes = random(0, 20), saved_bytes = random(0, 40),
      forward_extra_bytes = random(0, 9), backward_extra_bytes = random(0, 9),
      forward_cost = random(0, 9), backward_cost = random(0, 9),
    }
    if kind ~= "table" and random(0, 1) == 1 then
      stage.stops_early = true
      stage.recompute_cost, stage.recompute_extra_bytes = random(0, 9), random(0, 9)
    end
    local measured = kind == "measured" or kind == "modes"
    if measured and random(0, 3) > 0 then measure(stage, random, n_in) end
    if kind == "modes" then add_modes(stage, random, n_in) end
    n_in = stage.measured and #stage.out or 1
    stages[i] = stage
  end
  return { stages = stages }
end

--- Specs of every kind that suit a chain of this length.
function M.specs(seed, profile)
  local random, n = M.random(seed + 31), #profile.stages
  local specs = { "none", "all", "every_n:1", "every_n:2", "every_n:3" }
  specs[#specs + 1] = "by_name:s" .. random(0, n - 1)
  specs[#specs + 1] = "by_name:s" .. random(0, n - 1) .. ",s" .. random(0, n - 1)
  for _ = 1, 3 do specs[#specs + 1] = "greedy:" .. random(0, 40 * n) end
  for k = 1, n do specs[#specs + 1] = "segments:" .. k end
  return specs
end

return M
