-- Sweeps: trials of a config over a grid, in processes of their own, and what came of them.
local ffi_neap = require("neap.ffi")
local bytes = require("neap.bytes")
local chart = require("neap.sweep.chart")
local fail = require("neap.fail")
local files = require("neap.files")
local grid = require("neap.sweep.grid")
local predictions = require("neap.sweep.predictions")
local report = require("neap.report")
local row_module = require("neap.sweep.row")
local runner = require("neap.sweep.runner")
local store_module = require("neap.sweep.store")
local tables = require("neap.sweep.tables")
local trials_module = require("neap.sweep.trials")
local C = ffi_neap.C

local M = {}

local TABLE_SECONDS = 5 -- between two times that the tables are written while trials run

local function quote(word)
  if word:find("^[%w_./:=,+%-]+$") then return word end
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

--- Words as a shell reads them.
---@param words string[]
---@return string
function M.command(words)
  local out = {}
  for i, word in ipairs(words) do out[i] = quote(word) end
  return table.concat(out, " ")
end

-- the trials of this shard: every n-th, so that neighbours are spread
local function share(trials, shard)
  if not shard then return trials end
  local out = {}
  for _, trial in ipairs(trials) do
    if (trial.index - shard.index) % shard.count == 0 then out[#out + 1] = trial end
  end
  return out
end

local function list(o, about, trials)
  local words = { "luajit", about.sweep_script, about.config_path }
  for _, text in ipairs(o.grids) do
    words[#words + 1] = "--grid"
    words[#words + 1] = text
  end
  for _, text in ipairs(o.sets) do
    words[#words + 1] = "--set"
    words[#words + 1] = text
  end
  if o.repeats > 1 then words[#words + 1] = "--repeat=" .. o.repeats end
  if o.timeout then words[#words + 1] = "--timeout=" .. o.timeout_text end
  words[#words + 1] = "--out=" .. o.out
  words[#words + 1] = o.retry and "--retry" or "--resume"
  for _, trial in ipairs(trials) do
    words[#words + 1] = string.format("--shard=%d/%d", trial.index, #trials)
    about.say(M.command(words))
    words[#words] = nil
  end
  return 0
end

local function dry_run(trials, about)
  local predicted = predictions.of(trials, about.tell)
  about.say(predictions.table(trials, predicted))
  local status = 0
  for _, trial in ipairs(trials) do
    local p = predicted[trial.id]
    if p.why then
      about.say(string.format("trial %d: %s", trial.index, p.why))
      status = 3
    end
  end
  return status
end

local function line_of(row, trial, n)
  local text = string.format("trial %d/%d %s: %s", trial.index, n, trial.text, row.status)
  if row.status == "ok" then
    local peak, seconds = row.measured_peak_bytes, row.step_seconds_median
    return string.format("%s, peak %s, %s ms a step, loss %s", text,
      peak and bytes.format(peak) or "?", seconds and string.format("%.1f", 1000 * seconds) or "?",
      row.train_loss and string.format("%.4f", row.train_loss) or "?")
  end
  return row.error and text .. ": " .. row.error or text
end

-- those of the share that have no row yet, or one that is tried again
local function left_of(mine, by_id, retry)
  local out = {}
  for _, trial in ipairs(mine) do
    local row = by_id[trial.id]
    if not row or retry and row_module.RETRIED[row.status] then out[#out + 1] = trial end
  end
  return out
end

local function rows_of(trials, store)
  local rows, _, by_id = {}, store:rows()
  for _, trial in ipairs(trials) do rows[#rows + 1] = by_id[trial.id] end
  return rows
end

-- each whole or not at all
local function write_tables(store, keys, title)
  local rows, path = store:rows(), store.path .. "/"
  files.write(path .. "results.csv", tables.csv(rows, keys))
  files.write(path .. "results.json", tables.json(rows))
  files.write(path .. "results.md", tables.markdown(rows, keys, title))
  files.write(path .. "report.svg", chart.svg(rows, keys, chart.FILE_STYLE))
  files.write(path .. "report.html", report.html(rows, keys, title))
end

local function run(o, about, axes, trials)
  local keys, mine, title = {}, share(trials, o.shard), files.basename(about.config_path)
  for i, axis in ipairs(axes) do keys[i] = axis.key end
  -- whether the values suit the model is known before anything is made; going on, before it runs
  local predicted = not o.resume and predictions.of(mine, about.tell)
  local store = store_module.open(o.out, { config_path = about.config_path, axes = axes,
    trials = trials, repeats = o.repeats, resume = o.resume, shard = o.shard and o.shard.text,
    tell = about.tell })
  local _, by_id = store:rows()
  local left = left_of(mine, by_id, o.retry)
  predicted = predicted or predictions.of(left, about.tell)
  about.say(string.format("%d of %d trials to run, %d at a time, in %s", #left, #mine, o.jobs,
    o.out))
  local written = C.neap_now()
  local signal = runner.run({ store = store, trials = left, predictions = predicted, jobs = o.jobs,
    repeats = o.repeats, timeout = o.timeout, shard = o.shard and o.shard.text, keys = keys,
    interpreter = about.interpreter, script = about.train_script,
    done = function(row, trial)
      about.say(line_of(row, trial, #trials))
      if C.neap_now() - written > TABLE_SECONDS then
        write_tables(store, keys, title)
        written = C.neap_now()
      end
    end })
  write_tables(store, keys, title)
  if signal ~= 0 then
    about.say("stopped; go on with: " .. about.resume_command)
    return 128 + signal
  end
  about.say(string.format("results: %s/results.md, %s/report.html", o.out, o.out))
  return row_module.exit_status(rows_of(mine, store))
end

--- A whole sweep, as its command line says. Returns the exit status.
---@param o neap.sweep.Options
---@param about { config_path: string, sweep_script: string, train_script: string,
---  interpreter: string, resume_command: string, say: fun(line: string), tell: fun(line: string) }
---@return integer
function M.run(o, about)
  local axes = grid.read(o.grids)
  local trials = trials_module.of(about.config_path, o.sets, axes)
  if o.list then return list(o, about, trials) end
  if o.dry_run then return dry_run(share(trials, o.shard), about) end
  if o.shard and o.shard.count > #trials then
    fail.usage("--shard %s: there are %d trials; expected no more shards", o.shard.text, #trials)
  end
  return run(o, about, axes, trials)
end

return M
