-- A sweep as one HTML file that needs nothing else: the picture, and a table that can be sorted.
local chart = require("neap.sweep.chart")
local tables = require("neap.sweep.tables")

local M = {}

local PAGE_STYLE = [[
body { margin: 0 auto; max-width: 1000px; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 sans-serif; }
h1 { font-size: 1.3rem; } .wide { overflow-x: auto; } svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 13px; white-space: nowrap; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--faint); text-align: left; }
th { cursor: pointer; } td.number, th.number { text-align: right; }
tr.best { color: var(--best); } tr.on { background: var(--faint); }
p, li { color: var(--soft); }]]

-- sorting by a column; a row and its point show each other
local SCRIPT = [[
const body = document.querySelector("tbody");
document.querySelectorAll("th").forEach((head, column) => {
  let up = 1;
  head.onclick = () => {
    const value = row => row.cells[column].dataset.value;
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      return up * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
    });
    up = -up;
    rows.forEach(row => body.append(row));
  };
});
document.querySelectorAll("[data-trial]").forEach(one => {
  const set = on => document.querySelectorAll(`[data-trial="${one.dataset.trial}"]`)
    .forEach(other => other.classList.toggle("on", on));
  one.onmouseenter = () => set(true);
  one.onmouseleave = () => set(false);
});]]

local function mebibytes(row, name)
  return row[name] and string.format("%.2f", row[name] / 2 ^ 20) or ""
end

local COLUMNS = {
  { "predicted peak, MiB", function(row) return mebibytes(row, "predicted_peak_bytes") end },
  { "measured peak, MiB", function(row) return mebibytes(row, "measured_peak_bytes") end },
  { "extra FLOPs, %", function(row) return string.format("%.1f", 100 * row.extra_cost) end },
  { "time a step, ms", function(row)
    return row.step_seconds_median and string.format("%.1f", 1000 * row.step_seconds_median) or ""
  end },
  { "tokens/s", function(row)
    return row.tokens_per_second and string.format("%.0f", row.tokens_per_second) or ""
  end },
  { "train loss", function(row) return row.train_loss and string.format("%.4f", row.train_loss)
    or "" end },
  { "validation loss", function(row) return row.val_loss and string.format("%.4f", row.val_loss)
    or "" end },
}

local function cell(text, is_number)
  text = chart.escape(text)
  return string.format('<td%s data-value="%s">%s</td>', is_number and ' class="number"' or "", text,
    text)
end

local function table_of(rows, keys)
  local out, front = { "<table><thead><tr><th class=number>trial</th>" }, tables.front(rows)
  for _, key in ipairs(keys) do out[#out + 1] = "<th>" .. chart.escape(key) .. "</th>" end
  out[#out + 1] = "<th>status</th>"
  for _, column in ipairs(COLUMNS) do
    out[#out + 1] = '<th class="number">' .. column[1] .. "</th>"
  end
  out[#out + 1] = "</tr></thead><tbody>"
  for _, row in ipairs(rows) do
    local cells = { cell(row.trial, true) }
    for _, key in ipairs(keys) do cells[#cells + 1] = cell(row.grid[key]) end
    cells[#cells + 1] = cell(row.status)
    for _, column in ipairs(COLUMNS) do cells[#cells + 1] = cell(column[2](row), true) end
    out[#out + 1] = string.format('<tr data-trial="%d"%s>%s</tr>', row.trial,
      front[row] and ' class="best"' or "", table.concat(cells))
  end
  out[#out + 1] = "</tbody></table>"
  return table.concat(out, "\n")
end

--- The page.
---@param rows table[]
---@param keys string[]  of the grid
---@param title string
---@return string
function M.html(rows, keys, title)
  local out = { "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    "<title>" .. chart.escape(title) .. "</title>",
    "<style>" .. chart.STYLE .. "\n" .. PAGE_STYLE .. "</style></head><body>",
    "<h1>" .. chart.escape(title) .. ": memory against time</h1>", chart.svg(rows, keys) }
  for _, line in ipairs(tables.remarks(rows)) do
    out[#out + 1] = "<p>" .. chart.escape(line) .. "</p>"
  end
  out[#out + 1] = '<div class="wide">' .. table_of(rows, keys) .. "</div>"
  out[#out + 1] = "<ul>"
  for _, row in ipairs(rows) do
    if row.error then
      out[#out + 1] = string.format("<li>Trial %d, %s: %s</li>", row.trial,
        chart.escape(row.status), chart.escape(row.error))
    end
  end
  out[#out + 1] = "</ul><script>" .. SCRIPT .. "</script></body></html>\n"
  return table.concat(out, "\n")
end

return M
