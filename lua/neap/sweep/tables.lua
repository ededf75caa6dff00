-- The rows of a sweep as CSV, JSON and Markdown.
local bytes = require("neap.bytes")
local json = require("neap.json")
local row_module = require("neap.sweep.row")

local M = {}

local function csv_cell(value)
  if value == nil then return "" end
  local text = type(value) == "string" and value or json.encode(value)
  if text:find('[",\r\n]') then text = '"' .. text:gsub('"', '""') .. '"' end
  return text
end

--- A line a row; the grid's keys are columns called grid.key. Quoted as RFC 4180 says.
---@param rows table[]
---@param keys string[]  of the grid
---@return string
function M.csv(rows, keys)
  local lines, cells = {}, {}
  for _, name in ipairs(row_module.COLUMNS) do
    if name ~= "grid" then cells[#cells + 1] = name end
    for _, key in ipairs(name == "grid" and keys or {}) do cells[#cells + 1] = "grid." .. key end
  end
  lines[1] = table.concat(cells, ",")
  for _, row in ipairs(rows) do
    cells = {}
    for _, name in ipairs(row_module.COLUMNS) do
      if name ~= "grid" then cells[#cells + 1] = csv_cell(row[name]) end
      for _, key in ipairs(name == "grid" and keys or {}) do
        cells[#cells + 1] = csv_cell(row.grid[key])
      end
    end
    lines[#lines + 1] = table.concat(cells, ",")
  end
  return table.concat(lines, "\n") .. "\n"
end

--- One JSON array of all rows.
---@param rows table[]
---@return string
function M.json(rows)
  local lines = {}
  for i, row in ipairs(rows) do lines[i] = json.encode(row, row_module.COLUMNS) end
  return "[\n" .. table.concat(lines, ",\n") .. (#lines > 0 and "\n" or "") .. "]\n"
end

--- What a row costs in time: seconds a step where they can be trusted, else FLOPs beside keep-all.
---@param row table
---@return number|nil
function M.cost(row)
  return row.time_trusted and row.step_seconds_median or not row.time_trusted and row.extra_cost
    or nil
end

--- The rows that no other one beats in memory and time together.
---@param rows table[]
---@return table<table, boolean>
function M.front(rows)
  local sorted, front = {}, {}
  for _, row in ipairs(rows) do
    if row.status == "ok" and row.measured_peak_bytes and M.cost(row) then
      sorted[#sorted + 1] = row
    end
  end
  table.sort(sorted, function(a, b)
    if a.measured_peak_bytes ~= b.measured_peak_bytes then
      return a.measured_peak_bytes < b.measured_peak_bytes
    end
    if M.cost(a) ~= M.cost(b) then return M.cost(a) < M.cost(b) end
    return a.trial < b.trial
  end)
  local least = math.huge
  for _, row in ipairs(sorted) do
    front[row] = M.cost(row) < least or nil
    least = math.min(least, M.cost(row))
  end
  return front
end

local function shown(format, value) return value and string.format(format, value) or "" end

local function milliseconds(row)
  if not row.step_seconds_median then return "" end
  local text = string.format("%.1f", 1000 * row.step_seconds_median)
  if row.repeats > 1 then
    text = string.format("%s (%.1f to %.1f)", text, 1000 * row.step_seconds_least,
      1000 * row.step_seconds_most)
  end
  return text
end

local function cells_of(row, keys, front)
  local cells = { tostring(row.trial) }
  for _, key in ipairs(keys) do cells[#cells + 1] = "`" .. tostring(row.grid[key]) .. "`" end
  local peak = row.measured_peak_bytes
  cells[#cells + 1] = row.status
  cells[#cells + 1] = bytes.format(row.predicted_peak_bytes)
  cells[#cells + 1] = peak and bytes.format(peak) or ""
  cells[#cells + 1] = peak
    and string.format("%+.1f%%", 100 * (peak / row.keep_all_peak_bytes - 1)) or ""
  cells[#cells + 1] = shown("%+.1f%%", 100 * row.extra_cost)
  cells[#cells + 1] = milliseconds(row)
  cells[#cells + 1] = shown("%.0f", row.tokens_per_second)
  cells[#cells + 1] = shown("%.4f", row.train_loss)
  cells[#cells + 1] = shown("%.4f", row.val_loss)
  cells[#cells + 1] = front[row] and "yes" or ""
  return cells
end

local HEADS = { "status", "predicted peak", "measured peak", "beside keep-all", "extra FLOPs",
  "ms a step", "tokens/s", "train loss", "val loss", "front" }

--- What a reader has to know about the times, a sentence each.
---@param rows table[]
---@return string[]
function M.remarks(rows)
  local out, jobs, shards, repeats = {}, 1, false, 1
  for _, row in ipairs(rows) do
    jobs, repeats = math.max(jobs, row.jobs), math.max(repeats, row.repeats)
    shards = shards or row.shard ~= nil
  end
  if jobs > 1 then
    out[#out + 1] = string.format("Times are not to be trusted: up to %d trials ran at a time.",
      jobs)
  end
  if shards then
    out[#out + 1] = "Times of shards are comparable only if each had a machine of the same kind "
      .. "to itself."
  end
  if repeats > 1 then
    out[#out + 1] = string.format("Times are medians of %d runs, with the least and the most.",
      repeats)
  end
  out[#out + 1] = "front: no other trial takes less memory and less "
    .. ((jobs > 1 or shards) and "FLOPs" or "time") .. " together."
  return out
end

local function markdown_cell(text) return (text:gsub("|", "\\|"):gsub("[\r\n]+", " ")) end

--- A table for people, in Markdown.
---@param rows table[]
---@param keys string[]
---@param title string
---@return string
function M.markdown(rows, keys, title)
  local lines, heads, rule = { "# " .. title, "" }, { "trial" }, {}
  for _, key in ipairs(keys) do heads[#heads + 1] = key end
  for _, head in ipairs(HEADS) do heads[#heads + 1] = head end
  for i = 1, #heads do rule[i] = (i == 1 or i > #keys + 2) and "---:" or "---" end
  lines[#lines + 1] = "| " .. table.concat(heads, " | ") .. " |"
  lines[#lines + 1] = "|" .. table.concat(rule, "|") .. "|"
  local front, errors = M.front(rows), {}
  for _, row in ipairs(rows) do
    local cells = cells_of(row, keys, front)
    for i, cell in ipairs(cells) do cells[i] = markdown_cell(cell) end
    lines[#lines + 1] = "| " .. table.concat(cells, " | ") .. " |"
    if row.error then
      errors[#errors + 1] = string.format("- Trial %d, %s: %s", row.trial, row.status,
        markdown_cell(row.error))
    end
  end
  lines[#lines + 1] = ""
  for _, remark in ipairs(M.remarks(rows)) do lines[#lines + 1] = remark end
  if #errors > 0 then lines[#lines + 1] = "" end
  for _, line in ipairs(errors) do lines[#lines + 1] = line end
  return table.concat(lines, "\n") .. "\n"
end

return M
