-- Charts as text: columns of blocks, as wide as the window.
local M = {}

local BLOCKS = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" }
local PLAIN = { ".", ":", "#" }

---@class neap.Chart
---@field values number[]      a column each, 0 or more
---@field labels table<integer, string>|nil  by row, from the top: what stands at its left
---@field under string[]|nil  lines below, as wide as the values
---@field rows integer|nil
---@field plain boolean|nil    ASCII alone

-- how much of a cell is filled, 0 .. #steps
local function level(value, most, row, rows, n)
  local filled = most > 0 and value / most * rows * n - (rows - row) * n or 0
  local whole = math.floor(filled + 0.5)
  -- something is never drawn as nothing
  if row == rows and value > 0 then whole = math.max(whole, 1) end
  return math.max(0, math.min(n, whole))
end

--- Columns over a base line.
---@param chart neap.Chart
---@return string
function M.columns(chart)
  local steps, rows = chart.plain and PLAIN or BLOCKS, chart.rows or 10
  local most, label_width, lines = 0, 0, {}
  for _, value in ipairs(chart.values) do most = math.max(most, value) end
  for _, label in pairs(chart.labels or {}) do label_width = math.max(label_width, #label) end
  local edge = chart.plain and " |" or " │"
  for row = 1, rows do
    local cells = {}
    for c, value in ipairs(chart.values) do
      local filled = level(value, most, row, rows, #steps)
      cells[c] = filled == 0 and " " or steps[filled]
    end
    local label = chart.labels and chart.labels[row] or ""
    lines[row] = (string.rep(" ", label_width - #label) .. label .. edge
      .. table.concat(cells)):gsub(" +$", "")
  end
  for _, text in ipairs(chart.under or {}) do
    lines[#lines + 1] = (string.rep(" ", label_width + 2) .. text):gsub(" +$", "")
  end
  return table.concat(lines, "\n")
end

--- A list stretched or squeezed to n columns: each shows the largest value that falls into it.
---@param list number[]
---@param n integer
---@return number[] values
---@return integer[] from  the index in the list that each column shows
function M.resample(list, n)
  local values, from = {}, {}
  for c = 1, n do
    local first = math.floor((c - 1) * #list / n) + 1
    local last = math.max(first, math.ceil(c * #list / n))
    if #list <= n then last = first end
    local best = first
    for i = first, math.min(last, #list) do
      if list[i] > list[best] then best = i end
    end
    values[c], from[c] = list[best], best
  end
  return values, from
end

--- Rows whose columns are as wide as their widest cell; the first n_left stand left.
---@param rows string[][]
---@param n_left integer
---@return string
function M.table(rows, n_left)
  local widths, lines = {}, {}
  for _, row in ipairs(rows) do
    for c, cell in ipairs(row) do widths[c] = math.max(widths[c] or 0, #cell) end
  end
  for r, row in ipairs(rows) do
    local cells = {}
    for c, cell in ipairs(row) do
      local pad = string.rep(" ", widths[c] - #cell)
      cells[c] = c <= n_left and cell .. pad or pad .. cell
    end
    lines[r] = ("  " .. table.concat(cells, "  ")):gsub("%s+$", "")
  end
  return table.concat(lines, "\n")
end

return M
