-- Rows: statuses from exit statuses, medians of repeats, the exit status of a sweep, the tables.
local row = require("neap.sweep.row")
local tables = require("neap.sweep.tables")

local function of(runs, about)
  for _, run in ipairs(runs) do run.seconds = run.seconds or 1 end
  about = about or {}
  return row.of({ index = 1, id = "x", point = { seed = "1" } }, runs, { keys = { "seed" },
    jobs = about.jobs or 1, shard = about.shard,
    prediction = { peak_bytes = 100, keep_all_bytes = 200, extra_cost = 0.25 } })
end

local function status(run) return of({ run }).status end

describe("the status of a trial", function()
  it("is ok where it ended with 0 and said so", function()
    assert.equal("ok", status({ exit = 0, report = {} }))
    assert.equal("failed", status({ exit = 0 }))
  end)

  it("tells what was predicted not to fit from what ran out of memory", function()
    assert.equal("infeasible", status({ exit = 3, report = { error_kind = "does not fit" } }))
    assert.equal("out of memory", status({ exit = 3, report = { error_kind = "out of memory" } }))
    assert.equal("out of memory", status({ exit = 3 }))
  end)

  it("is diverged, failed or timeout", function()
    assert.equal("diverged", status({ exit = 4, report = { error = "x" } }))
    assert.equal("failed", status({ exit = 1 }))
    assert.equal("failed", status({ exit = 2 }))
    assert.equal("failed", status({ signal = 11 }))
    assert.equal("failed", status({ error = "cannot start" }))
    assert.equal("timeout", status({ exit = 143, timed_out = true }))
    assert.equal("timeout", status({ signal = 9, timed_out = true }))
    assert.equal("ok", status({ exit = 0, timed_out = true, report = {} }))
  end)

  it("comes with a reason", function()
    assert.equal("x", of({ { exit = 1, report = { error = "x" } } }).error)
    assert.equal("exit status 7", of({ { exit = 7 } }).error)
    assert.matches("signal 9, as the system does when its memory runs out",
      of({ { signal = 9 } }).error)
    assert.equal("cannot start", of({ { error = "cannot start" } }).error)
  end)

  it("of repeats is that of the last", function()
    assert.equal("failed", of({ { exit = 0, report = {} }, { exit = 1 } }).status)
  end)
end)

describe("the times of a row", function()
  local function run(seconds)
    return { exit = 0, seconds = 10, report = { step_seconds_median = seconds,
      tokens_per_second = 6 / seconds } }
  end

  it("are medians of its runs, with the least and the most", function()
    local r = of({ run(3), run(1), run(2) })
    assert.same({ 2, 1, 3, 3, 30, 3 }, { r.step_seconds_median, r.step_seconds_least,
      r.step_seconds_most, r.tokens_per_second, r.seconds, r.repeats })
    assert.equal(1.5, of({ run(2), run(1) }).step_seconds_median)
  end)

  it("are trusted where nothing ran beside", function()
    assert.is_true(of({ run(1) }).time_trusted)
    assert.is_false(of({ run(1) }, { jobs = 2 }).time_trusted)
    assert.is_false(of({ run(1) }, { shard = "1/2" }).time_trusted)
  end)
end)

describe("the exit status of a sweep", function()
  local function of_statuses(...)
    local rows = {}
    for i, one in ipairs({ ... }) do rows[i] = { status = one } end
    return row.exit_status(rows)
  end

  it("is the first that applies of 1, 4, 3, and 0 where all is ok", function()
    assert.equal(0, of_statuses())
    assert.equal(0, of_statuses("ok", "ok"))
    assert.equal(3, of_statuses("ok", "infeasible"))
    assert.equal(3, of_statuses("out of memory", "ok"))
    assert.equal(4, of_statuses("infeasible", "diverged"))
    assert.equal(1, of_statuses("diverged", "infeasible", "timeout"))
    assert.equal(1, of_statuses("failed", "diverged"))
  end)
end)

describe("the tables", function()
  local function ok_row(trial, peak, seconds)
    local r = of({ { exit = 0, report = { measured_peak_bytes = peak,
      step_seconds_median = seconds, tokens_per_second = 1 } } })
    r.trial = trial
    return r
  end

  it("mark what no other trial beats in memory and time", function()
    local rows = { ok_row(1, 100, 3), ok_row(2, 200, 2), ok_row(3, 200, 4), ok_row(4, 300, 2),
      ok_row(5, 400, 1) }
    local front, marked = tables.front(rows), {}
    for i, r in ipairs(rows) do marked[i] = front[r] or false end
    assert.same({ true, true, false, false, true }, marked)
  end)

  it("quote what CSV needs quoted", function()
    local r = of({ { exit = 1, report = { error = 'a "b", c' } } })
    assert.matches(',1,"a ""b"", c"\n$', tables.csv({ r }, { "seed" }))
  end)

  it("keep bars and ends of lines out of Markdown's cells", function()
    local r = of({ { exit = 1, report = { error = "a|b\nc" } } })
    r.grid.seed = "x|y"
    local text = tables.markdown({ r }, { "seed" }, "t")
    assert.matches("`x\\|y`", text, 1, true)
    assert.is_truthy(text:find("failed: a\\|b c\n", 1, true))
  end)

  it("say when times are not to be trusted", function()
    assert.matches("Times are not to be trusted: up to 3 trials ran at a time",
      tables.markdown({ of({ { exit = 0, report = {} } }, { jobs = 3 }) }, { "seed" }, "t"))
  end)
end)
