-- The command line of examples/sweep.lua.
local cli = require("neap.cli")
local fail = require("neap.fail")

local M = {}

M.OPTIONS = {
  { name = "--grid", value = "KEY=VALUES", repeated = true,
    help = "A key of the config and its values, again and again; every combination is a trial. "
      .. "a,b,c; 64MiB:512MiB:*2; 1:9:+2; '[by_name:a,b, none]' where values hold commas; or a "
      .. "file.lua that returns { key = { a, b, c } }." },
  { name = "--set", value = "KEY=VALUE", repeated = true,
    help = "Any other key of the config, for all trials." },
  { name = "--out", value = "DIR", help = "The sweep's directory." },
  { name = "-j", value = "N", help = "Trials at a time; times are trusted with 1. Default: 1." },
  { name = "--repeat", value = "K",
    help = "Runs of each trial; times are their medians. Default: 1." },
  { name = "--shard", value = "I/N",
    help = "Only the I-th of N shares of the trials, from 1: --shard $SLURM_ARRAY_TASK_ID/8." },
  { name = "--timeout", value = "SECONDS",
    help = "The most that one run may take. Default: none." },
  { name = "--resume", help = "Go on: skip the trials that have a row." },
  { name = "--retry", help = "Go on, and run those that failed, took too long or ran out of "
    .. "memory once more." },
  { name = "--list", help = "Print one shell command a trial, for GNU parallel or Slurm." },
  { name = "--dry-run", help = "Predict every trial's peak and extra cost, run nothing." },
}

local SWEEP = {
  name = "sweep.lua",
  description = "Trains a config with every combination of some values, each in a process of its "
    .. "own, and tabulates memory against time: results.jsonl, .csv, .json, .md and report.html in "
    .. "--out.",
  config = "A config file. Default: examples/configs/small.lua.",
  epilog = [[
Examples:
   luajit examples/sweep.lua --grid checkpoint=none,segments:2,segments:3,all --set steps=20 \
      --out runs/policies
   luajit examples/sweep.lua my.lua --grid 'checkpoint=[none, by_name:block.0,block.1]' \
      --grid seed=1:3:+1 --out runs/names
   luajit examples/sweep.lua --grid checkpoint=optimal:24MiB:48MiB:+4MiB --dry-run
   luajit examples/sweep.lua --grid budget=32MiB:64MiB:*2 --out runs/b --list | parallel -j 2
   luajit examples/sweep.lua --grid checkpoint=none,all --out runs/policies --resume

Exit status: 0 every trial is ok, else the first that applies of 1 (failed, timeout; also what keeps
   the sweep from running), 4 (diverged), 3 (infeasible, out of memory); 2 wrong option, key, value
   or grid; 130 and 143 stopped by Ctrl-C or SIGTERM.]],
}

local function whole(text, default, most, name)
  if text == nil then return default end
  local number = text:find("^%d+$") and tonumber(text)
  if not number or number < 1 or number > most then
    fail.usage("%s: '%s' is no whole number from 1 to %d", name, text, most)
  end
  return number
end

-- "3/8"; the variable itself where a shell did not put its value in
local function shard_of(text)
  if text == nil then return nil end
  local index, count = text:match("^(.*)/(%d+)$")
  if index == "$SLURM_ARRAY_TASK_ID" then index = os.getenv("SLURM_ARRAY_TASK_ID") or "" end
  local i, n = index and index:find("^%d+$") and tonumber(index), tonumber(count)
  if not i or i < 1 or i > n then
    fail.usage("--shard: '%s' is no share; expected i/n with i from 1 to n, like 3/8 (Slurm: "
      .. "--array=1-8)", text)
  end
  return { index = i, count = n, text = string.format("%d/%d", i, n) }
end

local function seconds_of(text)
  if text == nil then return nil end
  local seconds = text:find("^[%d.]+$") and tonumber(text)
  if not seconds or seconds <= 0 then
    fail.usage("--timeout: '%s' is no number of seconds above 0", text)
  end
  return seconds
end

---@class neap.sweep.Options
---@field config string|nil
---@field grids string[]
---@field sets string[]
---@field out string|nil  nil only with dry_run
---@field jobs integer
---@field repeats integer
---@field shard { index: integer, count: integer, text: string }|nil
---@field timeout number|nil  seconds
---@field timeout_text string|nil  as it was given
---@field resume boolean
---@field retry boolean
---@field list boolean
---@field dry_run boolean

---@param arguments string[]
---@return neap.sweep.Options
function M.read(arguments)
  local p = cli.parse(SWEEP, M.OPTIONS, arguments)
  local o = {
    config = p.config, grids = p.grid or {}, sets = p.set or {}, out = p.out,
    jobs = whole(p.j, 1, 1024, "-j"), repeats = whole(p["repeat"], 1, 1000, "--repeat"),
    shard = shard_of(p.shard), timeout = seconds_of(p.timeout), timeout_text = p.timeout,
    resume = p.resume or p.retry or false, retry = p.retry or false, list = p.list or false,
    dry_run = p.dry_run or false,
  }
  if not o.out and not o.dry_run then fail.usage("--out is missing; expected --out DIR") end
  if o.out == "" then fail.usage("--out: expected a directory, found ''") end
  if o.list and o.dry_run then
    fail.usage("--list and --dry-run: commands and predictions do not go together")
  end
  if o.list and (o.shard or o.jobs > 1) then
    fail.usage("--list prints a command for every trial; whoever runs them decides how many at a "
      .. "time, so leave -j and --shard out")
  end
  return o
end

return M
