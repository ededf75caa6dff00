-- The planner's solver: a profile in, plain Lua out. See the comments of neap.h under plans.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local stages = require("neap.checkpoint.stages")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

local KEEP_NAMES = { [0] = "nothing", "input", "everything" }

-- as they are now: the caller may alter the profile before it asks for actions
local function mode_names(profile)
  local names = {}
  for i, stage in ipairs(profile.stages) do
    names[i] = {}
    for m in ipairs(stage.modes or {}) do names[i][m] = stages.mode_name(stage, m) end
  end
  return names
end

local function to_lua(actions, n, modes)
  local list = {}
  for a = 0, n - 1 do
    local action, stage = actions[a], actions[a].stage
    if action.op == C.NEAP_ACTION_FORWARD then
      list[a + 1] = {
        op = "forward", stage = stage, keep = KEEP_NAMES[action.keep],
        mode = modes[stage + 1][action.mode],
      }
    elseif action.op == C.NEAP_ACTION_BACKWARD then
      list[a + 1] = { op = "backward", stage = stage }
    else
      local what = action.op == C.NEAP_ACTION_FREE_X and "x" or "r"
      list[a + 1] = { op = "free", what = what, stage = stage }
    end
  end
  return list
end

-- asks for the number of actions first
local function actions_of(modes, write, ...)
  local count = select("#", ...)
  local arguments = { ... }
  local function call(capacity, actions)
    arguments[count + 1], arguments[count + 2] = capacity, actions
    return check(write(unpack(arguments, 1, count + 2)))
  end
  local n = call(0, nil)
  local actions = ffi.new("neap_action[?]", math.max(n, 1))
  return to_lua(actions, call(n, actions), modes)
end

--- The split into segments with the least simulated peak when each but the last runs forward once
--- more.
---@param profile neap.Profile
---@return number[] starts  the first stage of each segment
---@return number peak_bytes
function M.segments_auto(profile)
  local c_stages, n = stages.read(profile)
  local starts, peak = ffi.new("int32_t[?]", n), ffi.new("int64_t[1]")
  local list = {}
  for k = 1, check(C.neap_plan_segments_auto(n, c_stages, starts, peak)) do
    list[k] = starts[k - 1]
  end
  return list, whole.number(peak[0])
end

--- The binomial schedule: fewest forwards when all stages cost the same.
---@param profile neap.Profile
---@param slots number  boundaries kept at once, the batch's among them
---@return neap.Action[]
function M.revolve(profile, slots)
  argument.whole(slots, "revolve: slots", 1, 2 ^ 31 - 1)
  local c_stages, n = stages.read(profile)
  return actions_of(mode_names(profile), C.neap_plan_revolve, n, c_stages, slots)
end

-- ---- the frontier ----

---@class neap.FrontierPoint
---@field peak_bytes number
---@field cost number

---@class neap.Frontier
---@field exact boolean  no list was cut and every split looked at
---@field gap number  estimate of how much more a point costs than the exact one, as a fraction:
--- twice the largest excess of a solve that looks at half as much; 0 when exact
---@field least_bytes number  least peak of any point
local Frontier = {}
Frontier.__index = Frontier
Frontier.__tostring = function(self)
  return string.format("frontier of %d points%s", #self:points(), self.exact and "" or ", capped")
end

local OPTIONS = { "max_points", "exact", "threads", "modes" }

local function c_options(options)
  options = argument.options(options, "frontier", OPTIONS)
  local function number(name, low, high)
    return options[name] and argument.whole(options[name], "frontier: " .. name, low, high) or 0
  end
  local function flag(name, default)
    return argument.flag(options[name], "frontier: " .. name, default) and 1 or 0
  end
  return ffi.new("neap_frontier_options", {
    max_points = number("max_points", 2), exact = flag("exact", false),
    with_modes = flag("modes", true), n_threads = number("threads", 1, 1024),
  })
end

--- The whole memory-cost curve of a chain, in one solve.
---@param profile neap.Profile
---@param options? { max_points?: number, exact?: boolean, threads?: number, modes?: boolean }
---@return neap.Frontier
function M.frontier(profile, options)
  local c = c_options(options)
  local c_stages, n = stages.read(profile)
  local out = ffi.new("neap_frontier *[1]")
  check(C.neap_frontier_new(n, c_stages, c, out))
  local self = setmetatable({
    c = ffi.gc(out[0], C.neap_frontier_free), modes = mode_names(profile),
  }, Frontier)
  self.exact = C.neap_frontier_is_exact(self.c) == 1
  self.gap = C.neap_frontier_gap(self.c)
  self.least_bytes = self:points()[1].peak_bytes
  return self
end

--- By rising peak and falling cost; the same table each time.
---@return neap.FrontierPoint[]
function Frontier:points()
  argument.self(self, Frontier, "frontier:points")
  if not self.list then
    local peak, cost = ffi.new("int64_t[1]"), ffi.new("int64_t[1]")
    local list = {}
    for k = 1, check(C.neap_frontier_n_points(self.c)) do
      check(C.neap_frontier_point(self.c, k - 1, peak, cost))
      list[k] = { peak_bytes = whole.number(peak[0]), cost = whole.number(cost[0]) }
    end
    self.list = list
  end
  return self.list
end

--- The actions of point k, made at each call.
---@param k number  from 1
---@return neap.Action[]
function Frontier:actions(k)
  argument.self(self, Frontier, "frontier:actions")
  local n = #self:points()
  if not whole.is(k, 1, n) then
    fail.usage("frontier:actions: point %s; expected 1 to %d", tostring(k), n)
  end
  return actions_of(self.modes, C.neap_frontier_actions, self.c, k - 1)
end

--- The point of least cost within a budget; nil when none fits.
---@param frontier neap.Frontier
---@param budget number  bytes
---@return number|nil k
function M.at(frontier, budget)
  argument.self(frontier, Frontier, "solver.at")
  if budget ~= math.huge then argument.number(budget, "solver.at: budget") end
  local points, low, high = frontier:points(), 0, #frontier:points()
  while low < high do
    local middle = math.ceil((low + high) / 2)
    if tonumber(points[middle].peak_bytes) <= budget then low = middle else high = middle - 1 end
  end
  return low > 0 and low or nil
end

--- The best bend of the curve: the point furthest below the line from its one end to the other.
---@param frontier neap.Frontier
---@return number k
function M.knee(frontier)
  argument.self(frontier, Frontier, "solver.knee")
  local points = frontier:points()
  local first, last = points[1], points[#points]
  local width = tonumber(last.peak_bytes) - tonumber(first.peak_bytes)
  local height = tonumber(first.cost) - tonumber(last.cost)
  local best, most = 1, -1
  for k, point in ipairs(points) do
    local x = (tonumber(point.peak_bytes) - tonumber(first.peak_bytes)) / math.max(width, 1)
    local y = (tonumber(point.cost) - tonumber(last.cost)) / math.max(height, 1)
    if 1 - x - y > most then best, most = k, 1 - x - y end
  end
  return best
end

return M
