-- Two plans of one chain beside each other: what differs by stage, their peaks and costs.
local bytes = require("neap.bytes")
local plan_table = require("neap.checkpoint.plan_table")
local plans = require("neap.checkpoint.plan")

local M = {}

---@class neap.PlanSide
---@field spec string
---@field peak_bytes number
---@field cost number
---@field forwards integer

---@class neap.PlanDifference
---@field stage integer
---@field name string
---@field a string  "input, 1 recomputed"
---@field b string

---@class neap.PlanComparison
---@field a neap.PlanSide
---@field b neap.PlanSide
---@field stages neap.PlanDifference[]  those that differ
---@field same boolean  whether the actions are the same
local Comparison = {}
Comparison.__index = Comparison

local function side(plan, profile)
  local found = plans.simulate(plan, profile)
  return { spec = plan.spec or "by hand", peak_bytes = found.peak_bytes, cost = found.cost,
    forwards = found.forwards }
end

local function row_text(row)
  local text = row.keep or "-"
  if row.mode then text = text .. " (" .. row.mode .. ")" end
  return string.format("%s, %d recomputed", text, math.max(row.forwards - 1, 0))
end

local KEYS = { "op", "stage", "keep", "what", "mode" }

local function same_actions(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    for _, key in ipairs(KEYS) do
      if a[i][key] ~= b[i][key] then return false end
    end
  end
  return true
end

--- Compares two plans on the profile of their chain.
---@param a neap.Plan
---@param b neap.Plan
---@param profile neap.Profile
---@return neap.PlanComparison
function M.compare(a, b, profile)
  local self = setmetatable({ a = side(a, profile), b = side(b, profile), stages = {},
    same = same_actions(a.actions, b.actions) }, Comparison)
  local n = #profile.stages
  local rows_a = plan_table.rows({ n_stages = n, actions = a.actions })
  local rows_b = plan_table.rows({ n_stages = n, actions = b.actions })
  for i = 0, n - 1 do
    local text_a, text_b = row_text(rows_a[i]), row_text(rows_b[i])
    if text_a ~= text_b then
      self.stages[#self.stages + 1] = { stage = i, name = profile.stages[i + 1].name, a = text_a,
        b = text_b }
    end
  end
  return self
end

local function change(a, b, show)
  if a == b then return show(a) .. " both" end
  local share = a > 0 and string.format(" (%+.1f%%)", 100 * (b / a - 1)) or ""
  return string.format("%s -> %s%s", show(a), show(b), share)
end

Comparison.__tostring = function(self)
  local a, b = self.a, self.b
  local function number(x) return string.format("%.0f", x) end
  local lines = {
    string.format("plans %s -> %s%s", a.spec, b.spec, self.same and ": the same actions" or ""),
    "peak " .. change(a.peak_bytes, b.peak_bytes, bytes.format),
    "cost " .. change(a.cost, b.cost, number),
    "forwards " .. change(a.forwards, b.forwards, number),
  }
  for _, row in ipairs(self.stages) do
    lines[#lines + 1] = string.format("  stage %d (%s): %s -> %s", row.stage, row.name, row.a,
      row.b)
  end
  return table.concat(lines, "\n")
end

return M
