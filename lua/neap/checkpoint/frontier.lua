-- The whole memory-cost curve of a chain from one solve: every point is a plan that no other one
-- beats in both. Plans are made when they are read.
local bytes = require("neap.bytes")
local fail = require("neap.fail")
local plans = require("neap.checkpoint.plan")
local solver = require("neap.checkpoint.solver")
local stages = require("neap.checkpoint.stages")

local M = {}

---@class neap.CurvePoint
---@field peak_bytes number
---@field cost number
---@field plan neap.Plan

--- An array of points by rising peak and falling cost.
---@class neap.Curve
---@field [integer] neap.CurvePoint
---@field n_stages number
---@field exact boolean  whether lists were never capped
---@field gap number|nil  how far above the least cost a point may be, as a fraction
---@field least_bytes number  below this no plan runs
---@field knee integer  the point of the best bend
local Frontier = {}
Frontier.__index = Frontier

local solved = setmetatable({}, { __mode = "k" })
local chains = setmetatable({}, { __mode = "k" })

local function inexact(self)
  return string.format("not exact: lists were capped, a cost may be up to %.2f%% above the least",
    100 * (self.gap or 0))
end

local function plan_of(self, k)
  local profile, names = chains[self], {}
  for i, stage in ipairs(profile.stages) do names[i] = stage.name end
  return plans.new({
    spec = string.format("optimal:%.0f", tonumber(self[k].peak_bytes)), n_stages = #names,
    names = names,
    actions = solved[self]:actions(k), least_bytes = self.least_bytes,
    budget_bytes = self[k].peak_bytes, notes = not self.exact and { inexact(self) } or nil,
  }, profile)
end

local function point_of(self, k, fields)
  return setmetatable({ peak_bytes = fields.peak_bytes, cost = fields.cost }, {
    __index = function(point, key)
      if key ~= "plan" then return nil end
      local plan = plan_of(self, k)
      rawset(point, "plan", plan)
      return plan
    end,
  })
end

--- Solves a chain.
---@param profile neap.Profile
---@param options table|nil  for the solver
---@return neap.Curve
function M.of(profile, options)
  stages.read(profile)
  local result = solver.frontier(profile, options)
  local self = setmetatable({ n_stages = #profile.stages, exact = result.exact, gap = result.gap,
    least_bytes = result.least_bytes, knee = solver.knee(result) }, Frontier)
  solved[self], chains[self] = result, profile
  for k, fields in ipairs(result:points()) do self[k] = point_of(self, k, fields) end
  return self
end

--- The cheapest point whose peak is within the budget; nil where none is.
---@param self neap.Curve
---@param budget number
---@return integer|nil
function M.at(self, budget) return solver.at(solved[self], budget) end

--- The plan of least cost within a budget, or nil and a sentence with both numbers.
---@param budget number|string
---@return neap.Plan|nil
---@return string|nil message
function Frontier:plan(budget)
  local amount, message = bytes.parse(budget)
  if not amount then fail.usage("frontier:plan: %s", message) end
  local k = M.at(self, amount)
  if k then return self[k].plan end
  return nil, string.format("the least feasible peak is %.0f bytes (%s), the plan budget is %.0f "
    .. "bytes (%s)", tonumber(self.least_bytes), bytes.format(self.least_bytes), amount,
    bytes.format(amount))
end

local MOST_ROWS = 60

Frontier.__tostring = function(self)
  local n = #self
  local lines = { string.format("frontier of %d stages: %d points, %s", self.n_stages, n,
    self.exact and "exact" or inexact(self)) }
  lines[2] = string.format("  %14s %14s  %s", "peak", "extra cost", "")
  local base, step = tonumber(self[n].cost), math.ceil(n / MOST_ROWS)
  for k = 1, n do
    if k == n or k == self.knee or (k - 1) % step == 0 then
      local extra = base > 0 and 100 * (tonumber(self[k].cost) / base - 1) or 0
      lines[#lines + 1] = string.format("  %14s %13.1f%%%s", bytes.format(self[k].peak_bytes),
        extra, k == self.knee and "  knee" or "")
    end
  end
  lines[2] = lines[2]:gsub("%s+$", "")
  if step > 1 then lines[#lines + 1] = string.format("  (one row of %d is shown)", step) end
  return table.concat(lines, "\n")
end

return M
