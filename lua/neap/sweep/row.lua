-- A trial's row: its status, and numbers of its runs; times are medians of the repeats.
local json = require("neap.json")

local M = {}

--- Of a row, in this order; grid is an object, in CSV a column a key.
M.COLUMNS = { "trial", "id", "status", "grid", "plan", "predicted_peak_bytes",
  "measured_peak_bytes", "activation_peak_bytes", "eval_peak_bytes", "keep_all_peak_bytes",
  "extra_cost", "recomputed_forwards", "step_seconds_median", "step_seconds_least",
  "step_seconds_most", "tokens_per_second", "train_loss", "val_loss", "loss_bits", "grad_norm",
  "grad_norm_bits", "state_hash", "steps", "chunk", "global_batch", "parameters", "device",
  "threads", "repeats", "jobs", "shard", "time_trusted", "seconds", "exit", "error" }

-- taken as the last run says
local REPORTED = { "plan", "predicted_peak_bytes", "measured_peak_bytes", "activation_peak_bytes",
  "eval_peak_bytes", "recomputed_forwards", "train_loss", "val_loss", "loss_bits", "grad_norm",
  "grad_norm_bits", "state_hash", "steps", "chunk", "global_batch", "parameters", "device",
  "threads" }

--- Statuses whose trials --retry runs again: the next run may well end otherwise.
M.RETRIED = { failed = true, timeout = true, ["out of memory"] = true }

-- exit status of a sweep: the first of these that any trial has
local WORST = { { 1, failed = true, timeout = true }, { 4, diverged = true },
  { 3, infeasible = true, ["out of memory"] = true } }

---@class neap.sweep.Run  one process
---@field exit integer|nil      exit status; nil: it could not be started
---@field signal integer|nil    that ended it
---@field timed_out boolean|nil
---@field report table|nil      its JSON object
---@field error string|nil      why it could not be started
---@field seconds number

---@param run neap.sweep.Run
---@return string status
---@return string|nil error
local function status_of(run)
  local report = run.report or {}
  if run.timed_out and run.exit ~= 0 then return "timeout", report.error or "took too long" end
  if run.signal == 9 then
    return "failed", "ended by signal 9, as the system does when its memory runs out"
  elseif run.signal then
    return "failed", "ended by signal " .. run.signal
  end
  if run.exit == 0 then
    if run.report then return "ok" end
    return "failed", "it printed no JSON object"
  end
  if run.exit == 4 then return "diverged", report.error end
  if run.exit == 3 then
    return report.error_kind == "does not fit" and "infeasible" or "out of memory", report.error
  end
  return "failed", run.error or report.error or "exit status " .. tostring(run.exit)
end

local function median(list)
  table.sort(list)
  local middle = (#list + 1) / 2
  return (list[math.floor(middle)] + list[math.ceil(middle)]) / 2
end

local function times_of(row, runs)
  local seconds, rates = {}, {}
  for _, run in ipairs(runs) do
    local report = run.report or {}
    if report.step_seconds_median then
      seconds[#seconds + 1] = report.step_seconds_median
      rates[#rates + 1] = report.tokens_per_second
    end
  end
  if #seconds == 0 then return end
  row.step_seconds_median = median(seconds)
  row.step_seconds_least, row.step_seconds_most = seconds[1], seconds[#seconds]
  row.tokens_per_second = median(rates)
end

--- The row of a trial whose runs have ended; the last one decides on its status.
---@param trial neap.sweep.Trial
---@param runs neap.sweep.Run[]
---@param about { prediction: neap.sweep.Prediction, jobs: integer, shard: string|nil,
---  keys: string[] }
---@return table
function M.of(trial, runs, about)
  local last, p = runs[#runs], about.prediction
  local row = { trial = trial.index, id = trial.id, grid = json.object({}, about.keys),
    predicted_peak_bytes = p.peak_bytes, keep_all_peak_bytes = p.keep_all_bytes,
    extra_cost = p.extra_cost, repeats = #runs, jobs = about.jobs, shard = about.shard,
    time_trusted = about.jobs == 1 and about.shard == nil, exit = last.exit, seconds = 0 }
  for key, value in pairs(trial.point) do row.grid[key] = value end
  row.status, row.error = status_of(last)
  for _, name in ipairs(REPORTED) do
    local value = last.report and last.report[name]
    if value ~= nil then row[name] = value end
  end
  times_of(row, runs)
  for _, run in ipairs(runs) do row.seconds = row.seconds + run.seconds end
  return row
end

--- The exit status that stands for all rows.
---@param rows table[]
---@return integer
function M.exit_status(rows)
  for _, class in ipairs(WORST) do
    for _, row in ipairs(rows) do
      if class[row.status] then return class[1] end
    end
  end
  return 0
end

return M
