-- How a plan prints: a row a stage, the predicted peak and where, what it costs beside keep-all.
local bytes = require("neap.bytes")
local plans = require("neap.checkpoint.plan")
local stages = require("neap.checkpoint.stages")

local M = {}

local MOST_SOLVED, MOST_ROWS = 64, 40

---@class neap.PlanRow
---@field keep string|nil  after its first forward
---@field mode string|nil  of the last forward that keeps everything
---@field forwards integer

--- What each stage keeps after its first forward, and how often it runs; by stage, from 0.
---@param plan neap.Plan
---@return table<integer, neap.PlanRow>
function M.rows(plan)
  local rows = {}
  for i = 0, plan.n_stages - 1 do rows[i] = { forwards = 0 } end
  for _, action in ipairs(plan.actions) do
    local row = action.op == "forward" and rows[action.stage]
    if row then
      row.keep = row.keep or action.keep
      row.mode = action.mode or row.mode
      row.forwards = row.forwards + 1
    end
  end
  return rows
end

local function residuals(stage, mode)
  local number = mode and stages.mode_number(stage, mode)
  return number and stage.modes[number].saved_bytes or stage.saved_bytes
end

local function kept_bytes(profile, i, row)
  local held = i > 0 and (row.keep == "input" or row.keep == "everything")
  local boundary = held and tonumber(profile.stages[i].out_bytes) or 0
  local stage = profile.stages[i + 1]
  return boundary + (row.keep == "everything" and tonumber(residuals(stage, row.mode)) or 0)
end

-- columns as wide as their widest cell; all but the first few are numbers and stand right
local function aligned(rows, n_left)
  local widths = {}
  for _, row in ipairs(rows) do
    for c, cell in ipairs(row) do widths[c] = math.max(widths[c] or 0, #cell) end
  end
  local lines = {}
  for r, row in ipairs(rows) do
    local cells = {}
    for c, cell in ipairs(row) do
      local pad = string.rep(" ", widths[c] - #cell)
      cells[c] = c <= n_left and cell .. pad or pad .. cell
    end
    lines[r] = ("  " .. table.concat(cells, "  ")):gsub("%s+$", "")
  end
  return lines
end

-- in a long chain consecutive stages that differ in number and name alone share a row
local function folded(rows, n_names)
  if #rows <= MOST_ROWS then return rows end
  local out, k = { rows[1] }, 2
  while k <= #rows do
    local last = k
    local function same(a, b)
      for c = n_names + 1, #a do
        if a[c] ~= b[c] then return false end
      end
      return true
    end
    while last < #rows and same(rows[k], rows[last + 1]) do last = last + 1 end
    local row = rows[k]
    if last > k then
      for c = 1, n_names do row[c] = row[c] .. " .. " .. rows[last][c] end
    end
    out[#out + 1] = row
    k = last + 1
  end
  return out
end

local function stage_lines(plan, profile)
  local found = M.rows(plan)
  local rows = { profile and { "stage", "name", "keeps", "kept", "residuals", "recomputed" }
    or { "stage", "keeps", "recomputed" } }
  for i = 0, plan.n_stages - 1 do
    local row = found[i]
    local keep, again = row.keep or "-", tostring(math.max(row.forwards - 1, 0))
    if row.mode then keep = keep .. " (" .. row.mode .. ")" end
    if profile then
      local stage = profile.stages[i + 1]
      rows[i + 2] = {
        tostring(i), stage.name, keep, bytes.format(kept_bytes(profile, i, row)),
        bytes.format(residuals(stage, row.mode)), again,
      }
    else
      rows[i + 2] = { tostring(i), keep, again }
    end
  end
  return aligned(folded(rows, profile and 2 or 1), profile and 3 or 2)
end

local function percent_over(cost, base)
  if base == 0 then return string.format("+%d", cost) end
  return string.format("+%.1f%%", (cost - base) / base * 100)
end

-- "boundaries of 1, 3-4; residuals of 3-5; gradient of x_6", with bytes
local function live_text(live)
  local words = { x = "x", r = "residuals of", g = "gradient of x" }
  local parts = {}
  for _, what in ipairs({ "x", "r", "g" }) do
    local ranges, sum = {}, 0
    for _, item in ipairs(live) do
      if item.what == what then
        sum = sum + item.bytes
        local last = ranges[#ranges]
        if last and last[2] == item.stage - 1 then
          last[2] = item.stage
        else
          ranges[#ranges + 1] = { item.stage, item.stage }
        end
      end
    end
    for r, range in ipairs(ranges) do
      ranges[r] = range[1] == range[2] and tostring(range[1]) or range[1] .. "-" .. range[2]
    end
    if #ranges > 0 then
      parts[#parts + 1] = string.format("%s %s (%s)", words[what], table.concat(ranges, ","),
        bytes.format(sum))
    end
  end
  return #parts > 0 and table.concat(parts, "; ") or "nothing"
end

-- the least plan budget; not solved for just to print a long chain
local function least_of(plan, profile)
  if plan.least_bytes then return plan.least_bytes end
  if plan.n_stages > MOST_SOLVED then return nil end
  return require("neap.checkpoint.frontier").of(profile).least_bytes
end

local function prediction_lines(plan, profile, lines)
  local valid, message = plans.validate(plan, profile)
  if not valid then
    lines[#lines + 1] = "not a valid plan: " .. message
    return
  end
  local found = plans.simulate(plan, profile)
  local all = plans.simulate(plans.build("none", profile), profile)
  local function add(...) lines[#lines + 1] = string.format(...) end
  add("predicted peak %s at action %d of %d: %s", bytes.format(found.peak_bytes), found.peak_action,
    #plan.actions, plans.describe(plan.actions[found.peak_action], profile))
  add("there: %s", live_text(found.live))
  if plan.measured_peak_bytes then
    add("measured peak %s", bytes.format(plan.measured_peak_bytes))
  end
  add("cost %s over keep-all; %d forwards, %d of them recomputed",
    percent_over(found.cost, all.cost), found.forwards, found.forwards - plan.n_stages)
  local least = least_of(plan, profile)
  if least then add("least feasible budget %s", bytes.format(least)) end
  add("least budget without recomputation %s", bytes.format(all.peak_bytes))
end

--- The table of a plan, without a last newline.
---@param plan neap.Plan
---@param profile neap.Profile|nil  nil: what can be said without bytes
---@return string
function M.text(plan, profile)
  local n = plan.n_stages
  local lines = { string.format("plan %s: %d stage%s, %d actions", plan.spec or "by hand", n,
    n == 1 and "" or "s", #plan.actions) }
  for _, line in ipairs(stage_lines(plan, profile)) do lines[#lines + 1] = line end
  if profile then prediction_lines(plan, profile, lines) end
  for _, note in ipairs(plan.notes or {}) do lines[#lines + 1] = "note: " .. note end
  return table.concat(lines, "\n")
end

return M
