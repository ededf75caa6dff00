-- Runs trials, each in a process of its own, some at a time; a row for each that ends by itself.
local ffi_neap = require("neap.ffi")
local fail = require("neap.fail")
local files = require("neap.files")
local json = require("neap.json")
local process = require("neap.process")
local row_module = require("neap.sweep.row")
local C = ffi_neap.C

local M = {}

-- from SIGTERM, after which a run saves its state, to SIGKILL
local GRACE_SECONDS = 20
local PAUSE_SECONDS = 0.02

---@class neap.sweep.Job  a trial that runs
---@field trial neap.sweep.Trial
---@field runs neap.sweep.Run[]  that have ended
---@field process neap.Process
---@field paths neap.sweep.Paths
---@field started number

local function start(job, o)
  local paths = o.store:prepare(job.trial, #job.runs + 1)
  job.paths, job.started, job.timed_out = paths, C.neap_now(), nil
  local ok, result = pcall(process.start, { o.interpreter, o.script, "--json", paths.config,
    "--out", paths.directory }, paths.out, paths.err)
  if not ok and not fail.is(result, "input/output") then error(result, 0) end
  job.process, job.failure = ok and result or nil, not ok and result.message or nil
end

-- the run that has ended
local function run_of(job)
  local run = { seconds = C.neap_now() - job.started, timed_out = job.timed_out,
    error = job.failure }
  local status = job.process and job.process.status
  if status and status < 0 then run.signal = -status else run.exit = status end
  local text = status and files.read(job.paths.out, 2 ^ 24)
  local report = text and json.decode(text)
  run.report = type(report) == "table" and report or nil
  return run
end

local function check_time(job, seconds)
  local taken = C.neap_now() - job.started
  if not seconds or taken < seconds then return end
  if not job.timed_out then
    job.timed_out = true
    job.process:signal("terminate")
  elseif taken > seconds + GRACE_SECONDS then
    job.process:signal("kill")
  end
end

-- whether it is done with the trial: after its last repeat, or one that was not ok
local function settle(job, o)
  local run = run_of(job)
  job.runs[#job.runs + 1] = run
  if #job.runs > 1 then o.store:forget(job.paths) end
  local is_last = #job.runs == o.repeats or run.exit ~= 0
  if not is_last then
    start(job, o)
    return false
  end
  local row = row_module.of(job.trial, job.runs, { prediction = o.predictions[job.trial.id],
    jobs = o.jobs, shard = o.shard, keys = o.keys })
  o.store:append(row)
  o.done(row, job.trial)
  return true
end

local function was_stopped(job)
  local status = job.process and job.process.status
  return status == 130 or status == 143 or status == -2 or status == -15
end

-- after a signal: runs save their states and end; those that were at their end still make a row
local function stop(running, o)
  for _, job in ipairs(running) do
    if job.process then job.process:signal("interrupt") end
  end
  for _, job in ipairs(running) do
    while job.process and not job.process:has_ended() do process.sleep(PAUSE_SECONDS) end
    if not was_stopped(job) and #job.runs + 1 == o.repeats then settle(job, o) end
  end
end

---@class neap.sweep.Runner
---@field store neap.sweep.Store
---@field trials neap.sweep.Trial[]  to run
---@field predictions table<string, neap.sweep.Prediction>
---@field jobs integer      at a time
---@field repeats integer
---@field timeout number|nil  seconds, of one run
---@field shard string|nil
---@field keys string[]     of the grid
---@field interpreter string
---@field script string     examples/train.lua
---@field done fun(row: table, trial: neap.sweep.Trial)

--- Runs all of them. Returns the signal that asked to stop, or 0.
---@param o neap.sweep.Runner
---@return integer
function M.run(o)
  local running, next_one = {}, 1
  while next_one <= #o.trials or #running > 0 do
    local signal = C.neap_signal_pending()
    if signal ~= 0 then
      stop(running, o)
      return signal
    end
    while #running < o.jobs and next_one <= #o.trials do
      local job = { trial = o.trials[next_one], runs = {} }
      start(job, o)
      running[#running + 1], next_one = job, next_one + 1
    end
    for i = #running, 1, -1 do
      local job = running[i]
      if not job.process or job.process:has_ended() then
        if settle(job, o) then table.remove(running, i) end
      else
        check_time(job, o.timeout)
      end
    end
    if #running == o.jobs or next_one > #o.trials then process.sleep(PAUSE_SECONDS) end
  end
  return 0
end

return M
