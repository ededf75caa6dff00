-- The planner's solver on long chains: wall and processor seconds, points, memory, distance from
-- exact. luajit spec/bench/planner.lua [threads] [full]   (full: also exact solves that take long)
local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/../.."
package.path = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;" .. root .. "/build/?.lua;"
  .. package.path
local N = require("neap.ffi")
local solver = require("neap.checkpoint.solver")

local threads = tonumber(arg[1]) or 2
local full = arg[1] == "full" or arg[2] == "full"
local MIB = 2 ^ 20

-- as in a transformer, and as in a chain where no stage is like another
local function chain(n, kind)
  local state, stages = 12345, {}
  local function random(low, high)
    state = state * 16807 % 2147483647
    return low + state % (high - low + 1)
  end
  for i = 1, n do
    local alike = kind == "equal"
    stages[i] = {
      name = "s" .. i - 1,
      out_bytes = alike and MIB or random(1, MIB),
      saved_bytes = alike and 12 * MIB or random(MIB, 12 * MIB),
      forward_extra_bytes = alike and MIB or random(1, MIB),
      backward_extra_bytes = alike and 4 * MIB or random(1, 4 * MIB),
      forward_cost = alike and 1000000 or random(500000, 2000000),
      backward_cost = alike and 2000000 or random(1000000, 4000000),
    }
  end
  stages[n].out_bytes = 64
  return { stages = stages }
end

-- resident bytes of the process: now and at most
local function resident(field)
  for line in io.lines("/proc/self/status") do
    local kib = line:match("^" .. field .. ":%s*(%d+)")
    if kib then return tonumber(kib) * 1024 end
  end
  return 0
end

local function cost_at(frontier, budget)
  local k = solver.at(frontier, budget)
  return k and frontier:points()[k].cost
end

local function excess(coarse, exact)
  local most = 0
  for _, point in ipairs(exact:points()) do
    local cost = cost_at(coarse, point.peak_bytes)
    if cost then most = math.max(most, cost / point.cost - 1) end
  end
  return most
end

local function measure(n, kind, options, label)
  options.threads = threads
  collectgarbage()
  local wall, cpu = N.C.neap_now(), os.clock()
  local frontier = solver.frontier(chain(n, kind), options)
  wall, cpu = N.C.neap_now() - wall, os.clock() - cpu
  print(string.format("%6d %-8s %-14s %8.2f s %8.2f s %7d %9.3f%% %8.0f MiB", n, kind, label, wall,
    cpu, #frontier:points(), frontier.gap * 100, resident("VmHWM") / MIB))
  io.stdout:flush()
  return frontier
end

print(string.format("%d threads\n%6s %-8s %-14s %10s %10s %7s %10s %12s", threads, "stages", "kind",
  "lists", "wall", "processor", "points", "gap", "peak memory"))
for _, n in ipairs({ 26, 85, 170, 340 }) do measure(n, "equal", {}, "as by default") end
for _, n in ipairs({ 25, 50, 100 }) do measure(n, "unequal", {}, "as by default") end

-- a cut solve beside the exact one
local function compare(n, kind, options, label)
  local capped = measure(n, kind, options, label)
  local exact = measure(n, kind, { exact = true }, "exact")
  print(string.format("%6d %s, %s: at most %.3f%% above exact", n, kind, label,
    excess(capped, exact) * 100))
end
compare(120, "unequal", { max_points = 320 }, "320 points")
if full then
  compare(1000, "equal", {}, "as by default")
  measure(200, "unequal", { exact = true }, "exact")
else
  measure(1000, "equal", {}, "as by default")
end
measure(340, "unequal", {}, "as by default")
