-- examples/sweep.lua as a person runs it: a small model, every kind of end, its files, going on.
local json = require("neap.json")
local script = require("spec.support.script")
local trials = require("spec.support.trials")

describe("a sweep", function()
  local directory, data

  setup(function()
    directory = script.directory()
    data = trials.data(directory)
  end)
  teardown(function() script.remove(directory) end)

  local function statuses(out)
    local list = {}
    for i, row in ipairs(trials.rows(directory .. "/" .. out)) do list[i] = row.status end
    return list
  end

  -- a shell script; `await FILE` waits twenty seconds at most
  local function shell(text)
    local path = script.write(directory .. "/shell.sh", string.format(
      "cd '%s'\nawait() { n=0; while [ ! -f \"$1\" ] && [ $n -lt 400 ]; do sleep 0.05; "
      .. "n=$((n + 1)); done; }\n", directory) .. text)
    local pipe = io.popen("timeout 120 sh " .. path .. " 2>&1")
    local out = pipe:read("*a")
    pipe:close()
    return out
  end

  describe("of trials that end in all ways", function()
    local first, rows

    -- dry-run's table: the bytes a trial
    local function predicted(arguments)
      local list = {}
      for line in trials.run(arguments, directory).out:gmatch("[^\n]+") do
        local trial, n_bytes = line:match("^ +(%d+) +lr=.-B +(%d+) ")
        if trial then list[tonumber(trial)] = tonumber(n_bytes) end
      end
      return list
    end

    local GRID = { "--grid", "lr=1e-3,1e38", "--grid", "budget=1GiB,100KiB" }

    setup(function()
      first = trials.run({ "--out", "ends", unpack(GRID) }, directory)
      rows = trials.rows(directory .. "/ends")
    end)

    it("goes on after those that did not work, and ends with the status that stands for all",
      function()
        assert.same({ "ok", "infeasible", "diverged", "infeasible" }, statuses("ends"))
        assert.equal(4, first.status, first.err)
      end)

    it("says why a trial did not work", function()
      assert.matches("needs %d+ bytes .*the budget is 102400 bytes", rows[2].error)
      assert.matches("step %d: the loss is ", rows[3].error)
    end)

    it("names each trial by grid, index and id", function()
      assert.same({ lr = "1e38", budget = "1GiB" }, { lr = rows[3].grid.lr,
        budget = rows[3].grid.budget })
      assert.matches("^%x+$", rows[1].id)
      assert.is_true(rows[1].id ~= rows[2].id)
    end)

    it("has what the trial itself would report", function()
      local alone = script.train({ directory .. "/ends/trials/" .. rows[1].id .. ".lua", "--out",
        "alone" }, directory).report
      for _, name in ipairs({ "loss_bits", "val_loss", "state_hash", "measured_peak_bytes",
        "activation_peak_bytes", "eval_peak_bytes", "recomputed_forwards", "parameters" }) do
        assert.is_not_nil(rows[1][name])
        assert.equal(alone[name], rows[1][name])
      end
    end)

    it("predicts the measured peaks to the byte on null, running nothing", function()
      local dry = predicted({ "--dry-run", unpack(GRID) })
      assert.equal(4, #dry)
      assert.equal(rows[1].measured_peak_bytes, dry[1])
      assert.equal(rows[1].measured_peak_bytes, dry[3])
    end)

    it("writes the same into CSV, JSON and Markdown", function()
      local path = directory .. "/ends/results."
      assert.same(rows, (json.decode(trials.contents(path .. "json"))))
      local csv, md = trials.contents(path .. "csv"), trials.contents(path .. "md")
      local heads, n = csv:match("^[^\n]+"), 0
      assert.matches("^trial,id,status,grid%.lr,grid%.budget,plan,", heads)
      for line in csv:gmatch("[^\n]+") do
        if n > 0 then
          local row = rows[n]
          assert.equal(table.concat({ row.trial, row.id, row.status, row.grid.lr, row.grid.budget },
            ","), line:match("^[^,]+,[^,]+,[^,]+,[^,]+,[^,]+"))
          assert.is_truthy(line:find("," .. (row.loss_bits or "") .. ",", 1, true))
          assert.is_truthy(md:find(string.format("\n| %d | `%s` | `%s` | %s | ", row.trial,
            row.grid.lr, row.grid.budget, row.status), 1, true))
        end
        n = n + 1
      end
      assert.equal(5, n)
    end)

    it("is not run again unasked, and resuming runs nothing that has a row", function()
      local again = trials.run({ "--out", "ends", unpack(GRID) }, directory)
      assert.equal(2, again.status)
      assert.matches("'ends' holds this sweep already; go on with %-%-resume", again.err)
      local before = trials.contents(directory .. "/ends/results.jsonl")
      local resumed = trials.run({ "--resume", "--out", "ends", unpack(GRID) }, directory)
      assert.equal(4, resumed.status)
      assert.matches("0 of 4 trials to run", resumed.out)
      assert.equal(before, trials.contents(directory .. "/ends/results.jsonl"))
    end)

    it("refuses a changed grid, config or number of repeats", function()
      for message, arguments in pairs({
        ["its grid is lr=1e%-3,1e38 budget=1GiB,100KiB, not lr=1e%-3"] = { "--grid", "lr=1e-3" },
        ["its config or %-%-set is another one"] = { "--set", "steps=4", unpack(GRID) },
        ["its %-%-repeat is 1, not 2"] = { "--repeat", "2", unpack(GRID) },
      }) do
        local refused = trials.run({ "--resume", "--out", "ends", unpack(arguments) }, directory)
        assert.equal(2, refused.status)
        assert.matches(message, refused.err)
      end
    end)

    it("cuts a line that was not written to its end", function()
      local path = directory .. "/ends/results.jsonl"
      local whole = trials.contents(path)
      script.write(path, whole .. '{"trial":9,"id":"to')
      assert.equal(4, trials.run({ "--resume", "--out", "ends", unpack(GRID) }, directory).status)
      assert.equal(whole, trials.contents(path))
    end)
  end)

  it("runs those that failed again with --retry, and only those", function()
    -- no file longer than 25 KiB: the wider model cannot save its state
    local command = trials.command({ "--grid", "width=4,16", "--out", "retry" }, data)
    local out = shell("(ulimit -f 50; " .. command .. "); echo status $?")
    assert.matches("status 1\n$", out)
    assert.same({ "ok", "failed" }, statuses("retry"))
    local again = shell(command .. " --retry; echo status $?")
    assert.matches("1 of 2 trials to run", again)
    assert.matches("status 0\n$", again)
    assert.same({ "ok", "ok" }, statuses("retry"))
  end)

  it("takes medians of repeats", function()
    local result = trials.run({ "--grid", "seed=7", "--repeat", "3", "--out", "repeat" }, directory)
    assert.equal(0, result.status, result.err)
    local row = trials.rows(directory .. "/repeat")[1]
    assert.equal(3, row.repeats)
    assert.is_true(row.step_seconds_least <= row.step_seconds_median)
    assert.is_true(row.step_seconds_median <= row.step_seconds_most)
    assert.is_true(row.step_seconds_least < row.step_seconds_most)
  end)

  it("does not repeat what did not work", function()
    local result = trials.run({ "--grid", "lr=1e38", "--repeat", "2", "--out", "once" }, directory)
    assert.equal(4, result.status, result.err)
    assert.equal(1, trials.rows(directory .. "/once")[1].repeats)
  end)

  it("ends a trial that takes too long, which can be tried again from its start", function()
    local arguments = { "--grid", "steps=1000000", "--timeout", "0.7", "--out", "slow" }
    local result = trials.run(arguments, directory)
    assert.equal(1, result.status, result.err)
    assert.same({ "timeout" }, statuses("slow"))
    local again = trials.run({ "--retry", unpack(arguments) }, directory)
    assert.equal(1, again.status, again.err)
    assert.same({ "timeout" }, statuses("slow"))
  end)

  it("prints commands that run as they are, one a trial, which one more run gathers", function()
    local arguments = { "--grid", "checkpoint=[by_name:block.0,block.1, none]", "--out", "list" }
    local listed = trials.run({ "--list", unpack(arguments) }, directory)
    assert.equal(0, listed.status, listed.err)
    assert.is_nil(trials.contents(directory .. "/list/sweep.json"))
    local _, n = listed.out:gsub("\n", "")
    assert.equal(2, n)
    local out = shell("set -e\nunset LUA_PATH\n" .. listed.out .. "echo all done")
    assert.matches("all done", out)
    local gathered = trials.run({ "--resume", unpack(arguments) }, directory)
    assert.equal(0, gathered.status, gathered.err)
    assert.matches("0 of 2 trials to run", gathered.out)
    local rows = trials.rows(directory .. "/list")
    assert.same({ "by_name:block.0,block.1", "none" },
      { rows[1].grid.checkpoint, rows[2].grid.checkpoint })
    assert.same({ false, "2/2" }, { rows[2].time_trusted, rows[2].shard })
    assert.is_nil(trials.contents(directory .. "/list/results.1-of-2.jsonl"))
  end)

  it("reads the number of a Slurm array's task", function()
    local command = trials.command({ "--grid", "seed=1,2,3", "--out", "slurm", "--shard",
      "$SLURM_ARRAY_TASK_ID/3" }, data)
    assert.matches("trial 2/3 seed=2: ok", shell("export SLURM_ARRAY_TASK_ID=2\n" .. command))
    assert.matches("is no share; expected i/n with i from 1 to n",
      shell("export SLURM_ARRAY_TASK_ID=0\n" .. command))
  end)

  it("stopped by Ctrl-C ends its trials and says how to go on; meanwhile nobody else writes",
    function()
      local command = trials.command({ "--grid", "steps=100000", "--grid", "seed=1,2,3", "-j", "2",
        "--out", "stop" }, data)
      local out = shell(([[
setsid env %s >said 2>&1 &
n=0; while [ $(ls stop/trials/*/metrics.csv 2>/dev/null | wc -l) -lt 2 ] && [ $n -lt 400 ]; do
  sleep 0.05; n=$((n + 1)); done
%s --resume; echo second $?
kill -INT $!
wait $!; echo first $?
cat said
]]):format(command, command))
      assert.matches("sweep directory 'stop' is in use by another process", out)
      assert.matches("second 1\n", out)
      assert.matches("first 130\n", out)
      assert.matches("stopped; go on with: luajit .*sweep%.lua .*%-%-resume\n", out)
      assert.equal("", trials.contents(directory .. "/stop/results.jsonl"))
      local _, n = out:gsub("to run, 2 at a time", "")
      assert.equal(1, n)
      -- both saved their states
      assert.matches("^2\n", shell("ls stop/trials/*/state-*.safetensors | wc -l"))
    end)

  it("killed at any moment and resumed has the rows of one that was not", function()
    local long = os.getenv("NEAP_LONG") == "1"
    local n_kills, grid = long and 3 or 2, { "--grid", "checkpoint=none,segments:2", "--grid",
      long and "seed=1:12:+1" or "seed=1,2" }
    local now = require("neap.ffi").C.neap_now
    local started = now()
    local straight = trials.run({ "--out", "straight", unpack(grid) }, directory)
    local whole = now() - started
    assert.equal(0, straight.status, straight.err)
    local state, n_killed = 4711, 0
    for _ = 1, n_kills do
      state = state * 16807 % 2147483647
      local command = trials.command({ "--resume", "--out", "killed", unpack(grid) }, data)
      local out = shell(string.format("timeout -s KILL %.3f %s; echo status $?",
        whole * (0.3 + 0.3 * state / 2147483647), command))
      if out:find("status 137") then n_killed = n_killed + 1 end
    end
    assert.is_true(n_killed >= 1)
    local last = trials.run({ "--resume", "--out", "killed", unpack(grid) }, directory)
    assert.equal(0, last.status, last.err)
    assert.same(trials.timeless(trials.rows(directory .. "/straight")),
      trials.timeless(trials.rows(directory .. "/killed")))
    local _, n_lines = trials.contents(directory .. "/killed/results.jsonl"):gsub("\n", "")
    assert.equal(long and 24 or 4, n_lines)
  end)
end)

describe("a sweep's command line", function()
  local directory
  setup(function()
    directory = script.directory()
    trials.data(directory)
  end)
  teardown(function() script.remove(directory) end)

  for text, arguments in pairs({
    ["unknown option '%-%-gird', did you mean '%-%-grid'"] = { "--gird", "seed=1" },
    ["unknown key 'sede', did you mean 'seed'"] = { "--grid", "sede=1" },
    ["trial checkpoint=segments:99: .*this model has 4 stages"] = { "--grid",
      "checkpoint=none,segments:99" },
    ["%-%-set stpes=3: unknown key 'stpes', did you mean 'steps'"] = { "--grid", "seed=1", "--set",
      "stpes=3" },
    ["%-j: '0' is no whole number from 1 to 1024"] = { "--grid", "seed=1", "-j", "0" },
    ["%-%-repeat: '1%.5' is no whole number"] = { "--grid", "seed=1", "--repeat", "1.5" },
    ["%-%-timeout: '%-1' is no number of seconds above 0"] = { "--grid", "seed=1", "--timeout",
      "-1" },
    ["%-%-shard: '3/2' is no share"] = { "--grid", "seed=1,2", "--shard", "3/2" },
    ["%-%-shard 1/3: there are 2 trials"] = { "--grid", "seed=1,2", "--shard", "1/3" },
    ["leave %-j and %-%-shard out"] = { "--grid", "seed=1", "--list", "-j", "2" },
  }) do
    it("is refused before anything is made: " .. table.concat(arguments, " "), function()
      local result = trials.run({ "--out", "made", unpack(arguments) }, directory)
      assert.equal(2, result.status)
      assert.matches(text, result.err)
      assert.is_nil(require("lfs").attributes(directory .. "/made", "mode"))
    end)
  end

  it("has to name a directory", function()
    local result = trials.run({ "--grid", "seed=1" }, directory)
    assert.equal(2, result.status)
    assert.matches("%-%-out is missing", result.err)
  end)

  it("is explained by --help", function()
    local result = script.run("examples/sweep.lua", { "--help" }, directory)
    assert.equal(0, result.status)
    for _, option in ipairs(require("neap.sweep.options").OPTIONS) do
      assert.is_truthy(result.out:find(option.name, 1, true), option.name)
    end
    for line in result.out:gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
  end)
end)
