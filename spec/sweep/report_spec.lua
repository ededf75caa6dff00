-- The picture of a sweep and its page: every trial is there, nothing comes from elsewhere.
local chart = require("neap.sweep.chart")
local report = require("neap.report")
local tables = require("neap.sweep.tables")

local MIB = 2 ^ 20

local function row(trial, policy, peak, seconds, more)
  local r = { trial = trial, id = "x", status = "ok", grid = { checkpoint = policy },
    predicted_peak_bytes = peak * MIB, measured_peak_bytes = peak * MIB,
    keep_all_peak_bytes = 60 * MIB, extra_cost = 0.1 * trial, step_seconds_median = seconds,
    step_seconds_least = seconds, step_seconds_most = seconds, repeats = 1, jobs = 1,
    time_trusted = true }
  for key, value in pairs(more or {}) do r[key] = value end
  return r
end

local function rows()
  return { row(1, "none", 60, 0.1), row(2, "all", 30, 0.15), row(3, "every_n:2", 45, 0.2),
    { trial = 4, id = "y", status = "infeasible", grid = { checkpoint = "a<b>&\"c\"" },
      predicted_peak_bytes = 90 * MIB, keep_all_peak_bytes = 60 * MIB, extra_cost = 0,
      repeats = 1, jobs = 1, time_trusted = true, error = "needs <more>" } }
end

-- how often a text is in another one
local function count(text, plain)
  local n, from = 0, 1
  while true do
    local first, last = text:find(plain, from, true)
    if not first then return n end
    n, from = n + 1, last + 1
  end
end

describe("the picture of a sweep", function()
  local svg = chart.svg(rows(), { "checkpoint" }, chart.FILE_STYLE)

  it("has a point for each trial that was measured, those of the front marked", function()
    assert.equal(3, count(svg, "<circle "))
    assert.equal(2, count(svg, 'class="point best"'))
    assert.is_truthy(svg:find("<title>every_n:2: 45 MiB, 200 ms</title>", 1, true))
  end)

  it("puts less memory to the left and less time below", function()
    local function place(trial)
      local x, y = svg:match('data%-trial="' .. trial .. '" cx="([%d.]+)" cy="([%d.]+)"')
      return tonumber(x), tonumber(y)
    end
    local x1, y1 = place(1)
    local x2, y2 = place(2)
    local x3, y3 = place(3)
    assert.is_true(x2 < x3 and x3 < x1)
    assert.is_true(y1 > y2 and y2 > y3)
    -- 60, 45 and 30 MiB, 100, 150 and 200 ms are at equal distances
    assert.near(x1 - x3, x3 - x2, 0.2)
    assert.near(y1 - y2, y2 - y3, 0.2)
  end)

  it("says what its axes are, in units, and where keep-all is", function()
    assert.is_truthy(svg:find(">measured peak of a step, MiB<", 1, true))
    assert.is_truthy(svg:find(">time a step, ms<", 1, true))
    assert.equal(1, count(svg, ">keep-all<"))
  end)

  it("shows FLOPs where times cannot be trusted", function()
    local list = rows()
    list[1].time_trusted = false
    assert.is_truthy(chart.svg(list, { "checkpoint" }):find(">FLOPs beside keep-all, %<", 1, true))
  end)

  it("as a file has colours that every program knows, for paper and for the dark", function()
    assert.is_nil(svg:find("var(", 1, true))
    assert.equal(1, count(svg, "prefers-color-scheme: dark"))
  end)

  it("of no trial yet is empty", function()
    assert.equal(0, count(chart.svg({}, { "checkpoint" }), "<circle "))
  end)
end)

describe("the page of a sweep", function()
  local html = report.html(rows(), { "checkpoint" }, "a <title>")

  it("needs nothing from elsewhere", function()
    local rest = html:gsub('xmlns="http://www%.w3%.org/2000/svg"', "")
    for _, word in ipairs({ "http:", "https:", "src=", "href=", "url(", "@import" }) do
      assert.is_nil(rest:find(word, 1, true), word)
    end
  end)

  it("has a row for each trial, and why one did not work", function()
    assert.equal(4, count(html, "<tr data-trial="))
    assert.is_truthy(html:find("<li>Trial 4, infeasible: needs &lt;more&gt;</li>", 1, true))
    for _, line in ipairs(tables.remarks(rows())) do
      assert.is_truthy(html:find(chart.escape(line), 1, true))
    end
  end)

  it("shows what came from outside as text", function()
    assert.is_nil(html:find("a<b>", 1, true))
    assert.is_truthy(html:find("a&lt;b&gt;&amp;&quot;c&quot;", 1, true))
    assert.is_truthy(html:find("<title>a &lt;title&gt;</title>", 1, true))
  end)

  it("fits a phone and the dark", function()
    assert.is_truthy(html:find('name="viewport"', 1, true))
    assert.is_truthy(html:find("prefers-color-scheme: dark", 1, true))
  end)
end)
