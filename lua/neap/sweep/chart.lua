-- A sweep as a picture: measured peak against time a step, the front, and what keep-all takes.
local tables = require("neap.sweep.tables")

local M = {}

local WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 72, 24, 28, 56

-- name, on paper, in the dark
local COLORS = { { "ink", "#222", "#ddd" }, { "faint", "#ccc", "#444" }, { "soft", "#666", "#aaa" },
  { "paper", "#fff", "#16181b" }, { "mark", "#2471a3", "#6fb1e0" },
  { "best", "#c0392b", "#ff8a75" } }

local RULES = [[
.axis { stroke: var(--faint); } .front { stroke: var(--best); fill: none; stroke-width: 1.5; }
.paper { fill: var(--paper); } .point { fill: var(--mark); } .point.best { fill: var(--best); }
.point.on { stroke: var(--ink); stroke-width: 3; }
.keep { stroke: var(--soft); stroke-dasharray: 5 4; }
svg text { fill: var(--ink); font: 12px sans-serif; }]]

local DARK = "@media (prefers-color-scheme: dark) {\n"

local function variables(which)
  local out = {}
  for i, color in ipairs(COLORS) do out[i] = "--" .. color[1] .. ": " .. color[which] .. ";" end
  return ":root { " .. table.concat(out, " ") .. " }\n"
end

-- not every program that shows SVG knows variables
local function spelled_out(which)
  local rules = RULES
  for _, color in ipairs(COLORS) do
    rules = rules:gsub("var%(%-%-" .. color[1] .. "%)", color[which])
  end
  return rules
end

--- The colours of a page with the picture in it.
M.STYLE = variables(2) .. DARK .. variables(3) .. "}\n" .. RULES

--- Those of the picture in a file of its own.
M.FILE_STYLE = spelled_out(2) .. "\n" .. DARK .. spelled_out(3) .. "\n}"

local ENTITIES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;",
  ["'"] = "&#39;" }

--- Text as HTML and SVG hold it.
---@param text any
---@return string
function M.escape(text) return (tostring(text):gsub("[&<>\"']", ENTITIES)) end

-- 1, 2 or 5 times a power of ten, for about five lines of the grid
local function step_of(span)
  local power = 10 ^ math.floor(math.log10(span / 5))
  for _, factor in ipairs({ 1, 2, 5 }) do
    if span / (power * factor) <= 6 then return power * factor end
  end
  return power * 10
end

local UNITS = { { 2 ^ 30, "GiB" }, { 2 ^ 20, "MiB" }, { 2 ^ 10, "KiB" }, { 1, "B" } }

local function unit_of(n_bytes)
  for _, unit in ipairs(UNITS) do
    if n_bytes >= 2 * unit[1] then return unit[1], unit[2] end
  end
  return 1, "B"
end

--- The grid's values of a row, as one text.
---@param row table
---@param keys string[]
---@return string
function M.label(row, keys)
  local words = {}
  for i, key in ipairs(keys) do
    words[i] = #keys == 1 and tostring(row.grid[key]) or key .. "=" .. tostring(row.grid[key])
  end
  return table.concat(words, " ")
end

-- what is drawn: rows with both numbers, in the units of the axes
local function measure(rows)
  local c = { points = {}, most_x = 0, most_y = 0, keep = {} }
  c.is_time = true
  for _, row in ipairs(rows) do c.is_time = c.is_time and row.time_trusted end
  local most = 1
  for _, row in ipairs(rows) do
    most = math.max(most, row.measured_peak_bytes or 0, row.keep_all_peak_bytes or 0)
  end
  local bytes_a_unit, unit = unit_of(most)
  c.unit, c.most_x = unit, most / bytes_a_unit
  for _, row in ipairs(rows) do
    local y = c.is_time and row.step_seconds_median and 1000 * row.step_seconds_median
      or not c.is_time and 100 * row.extra_cost
    if row.status == "ok" and row.measured_peak_bytes and y then
      c.points[#c.points + 1] = { row = row, x = row.measured_peak_bytes / bytes_a_unit, y = y }
      c.most_y = math.max(c.most_y, y)
    end
    if row.keep_all_peak_bytes then c.keep[row.keep_all_peak_bytes / bytes_a_unit] = true end
  end
  c.most_x, c.most_y = c.most_x * 1.08, math.max(c.most_y * 1.12, 1e-9)
  return c
end

local function at(c, x, y)
  return LEFT + x / c.most_x * (WIDTH - LEFT - RIGHT),
    HEIGHT - BOTTOM - y / c.most_y * (HEIGHT - TOP - BOTTOM)
end

local function axes(c, out)
  local function line(x1, y1, x2, y2)
    out[#out + 1] = string.format('<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>',
      x1, y1, x2, y2)
  end
  local function text(x, y, anchor, value)
    out[#out + 1] = string.format('<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>', x, y,
      anchor, value)
  end
  local step = step_of(c.most_x)
  for k = 0, math.floor(c.most_x / step) do
    local x, y = at(c, k * step, 0)
    line(x, y, x, TOP)
    text(x, y + 18, "middle", string.format("%.4g", k * step))
  end
  step = step_of(c.most_y)
  for k = 0, math.floor(c.most_y / step) do
    local x, y = at(c, 0, k * step)
    line(x, y, WIDTH - RIGHT, y)
    text(x - 8, y + 4, "end", string.format("%.4g", k * step))
  end
  text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "middle", "measured peak of a step, " .. c.unit)
  out[#out + 1] = string.format('<text transform="translate(18 %d) rotate(-90)" '
    .. 'text-anchor="middle">%s</text>', (TOP + HEIGHT - BOTTOM) / 2,
    c.is_time and "time a step, ms" or "FLOPs beside keep-all, %")
end

-- keep-all's peaks: one for each model that is swept, as long as lines can be told apart
local function keep_all(c, out)
  local list = {}
  for x in pairs(c.keep) do list[#list + 1] = x end
  table.sort(list)
  for i, peak in ipairs(list) do
    local x, y = at(c, peak, 0)
    out[#out + 1] = string.format('<line class="keep" x1="%.1f" x2="%.1f" y1="%.1f" y2="%d"/>', x,
      x, y, TOP)
    if i == #list then
      out[#out + 1] = string.format('<text x="%.1f" y="%d" text-anchor="end">keep-all</text>', x,
        TOP - 8)
    end
  end
end

local function draw_points(c, front, keys, out)
  local best, corners = {}, {}
  for _, point in ipairs(c.points) do
    if front[point.row] then best[#best + 1] = point end
  end
  table.sort(best, function(a, b) return a.x < b.x end)
  for i, point in ipairs(best) do
    corners[i] = string.format("%.1f,%.1f", at(c, point.x, point.y))
  end
  out[#out + 1] = '<polyline class="front" points="' .. table.concat(corners, " ") .. '"/>'
  for _, point in ipairs(c.points) do
    local x, y = at(c, point.x, point.y)
    local label = M.escape(M.label(point.row, keys))
    out[#out + 1] = string.format('<circle class="point%s" data-trial="%d" cx="%.1f" cy="%.1f" '
      .. 'r="5"><title>%s: %.4g %s, %.4g %s</title></circle>', front[point.row] and " best" or "",
      point.row.trial, x, y, label, point.x, c.unit, point.y, c.is_time and "ms" or "%")
    if front[point.row] then
      local left = x > WIDTH * 0.7
      out[#out + 1] = string.format('<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>',
        x + (left and -9 or 9), y - 7, left and "end" or "start", label)
    end
  end
end

--- The picture as an SVG element; its colours are those of STYLE.
---@param rows table[]
---@param keys string[]  of the grid
---@param style string|nil  to hold inside, for a file of its own
---@return string
function M.svg(rows, keys, style)
  local c, front = measure(rows), tables.front(rows)
  local out = { string.format('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" '
    .. 'role="img" aria-label="memory against time">', WIDTH, HEIGHT) }
  if style then
    out[#out + 1] = "<style>" .. style .. "</style>"
    out[#out + 1] = '<rect class="paper" width="100%" height="100%"/>'
  end
  axes(c, out)
  keep_all(c, out)
  draw_points(c, front, keys, out)
  out[#out + 1] = "</svg>"
  return table.concat(out, "\n") .. "\n"
end

return M
