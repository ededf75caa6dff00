-- Command lines of the scripts: options, one-sentence errors, exit statuses, one JSON object.
local fail = require("neap.fail")
local json = require("neap.json")
local M = {}

--- Exit statuses by kind of failure; every other kind is 1.
M.STATUS = {
  usage = 2,
  ["out of memory"] = 3,
  ["does not fit"] = 3,
  diverged = 4,
}

--- Keys of a run's JSON object, in this order; others follow, sorted.
M.REPORT_KEYS = {
  "steps", "train_loss", "val_loss", "loss_bits", "grad_norm", "grad_norm_bits", "chunk",
  "global_batch", "plan", "predicted_peak_bytes", "measured_peak_bytes", "activation_peak_bytes",
  "eval_peak_bytes", "recomputed_forwards", "step_seconds_median", "tokens_per_second", "device",
  "threads", "parameters", "state_hash", "exit", "error",
}

---@class neap.cli.Option
---@field name string  "--steps"
---@field value string|nil  how the value is called in the help; nil: a flag
---@field help string  what it does, unit, default
---@field repeated boolean|nil

local function option_names(options)
  local names, takes_value = { "--help" }, {}
  for _, option in ipairs(options) do
    names[#names + 1] = option.name
    takes_value[option.name] = option.value ~= nil
  end
  table.sort(names)
  return names, takes_value
end

-- "--steps -1" becomes "--steps=-1": argparse would take -1 for an option; unknown ones are named
local function normalize(arguments, options)
  local names, takes_value = option_names(options)
  local out, i, only_values = {}, 1, false
  while i <= #arguments do
    local word = arguments[i]
    local name = not only_values and word:match("^(%-%-[^=]+)")
    local value = arguments[i + 1]
    if name and name ~= "--help" and takes_value[name] == nil then
      local near = fail.nearest(name, names)
      fail.usage("unknown option '%s'%s; --help lists the options", name,
        near and string.format(", did you mean '%s'?", near) or "")
    end
    if name == word and takes_value[name] and value and value:sub(1, 2) ~= "--" then
      out[#out + 1] = word .. "=" .. value
      i = i + 1
    else
      out[#out + 1] = word
    end
    only_values = only_values or word == "--"
    i = i + 1
  end
  return out
end

--- Reads a command line. Raises "usage" with one sentence; --help prints and ends the process.
---@param about { name: string, description: string, epilog: string, config: string? }
---@param options neap.cli.Option[]
---@param arguments string[]
---@return table<string, any>  by option, dashes as underscores; `config` where it was given
function M.parse(about, options, arguments)
  local parser = require("argparse")(about.name, about.description, about.epilog)
  parser:usage_max_width(100)
  parser:help_description_margin(24)
  parser:help_max_width(100)
  if about.config then
    parser:argument("config", about.config):args("?"):argname("CONFIG")
  end
  for _, option in ipairs(options) do
    if option.value then
      local made = parser:option(option.name, option.help):argname(option.value)
      if option.repeated then made:count("*") else made:count("0-1"):overwrite(true) end
    else
      parser:flag(option.name, option.help)
    end
  end
  function parser.error(_, message)
    fail.raise("usage", message:gsub("\n", "; ") .. "; --help lists the options")
  end
  return parser:parse(normalize(arguments, options))
end

M.TRAIN_OPTIONS = {
  { name = "--set", value = "KEY=VALUE", repeated = true,
    help = "Any key of the config, again and again: --set width=64 --set betas=0.9,0.95." },
  { name = "--data", value = "FILE",
    help = "Text, or 16-bit tokens (.bin, .u16). Default: this machine's licence texts." },
  { name = "--device", value = "NAME",
    help = "auto, cpu or null; null counts bytes and computes nothing. Default: auto." },
  { name = "--threads", value = "N", help = "Threads of the kernels. Default: physical cores." },
  { name = "--checkpoint", value = "SPEC",
    help = "What is kept for backward: none, all, every_n:N, by_name:prefix,prefix, greedy:BYTES, "
      .. "segments:K, segments:auto, revolve:S, optimal:BYTES, optimal:auto, selective:OPS "
      .. "(selective:matmul). Default: none." },
  { name = "--budget", value = "BYTES",
    help = "Most bytes alive on the device: 512MiB, 1.5GiB, 80% of what is free. Default: none." },
  { name = "--chunk", value = "N", help = "Items (sequences) one forward sees. Default: 12." },
  { name = "--global-batch", value = "N",
    help = "Items one step sees, in chunks. Default: the config's chunk." },
  { name = "--steps", value = "N", help = "Optimizer updates. Default: 2000." },
  { name = "--seed", value = "N", help = "Of parameters, data order and dropout. Default: 1." },
  { name = "--out", value = "DIR", help = "The run's directory. Default: runs/<config>-<number>." },
  { name = "--resume", help = "Go on with the run in --out, or the newest under runs." },
  { name = "--dry-run", help = "Print the plan and what it would take, run nothing." },
  { name = "--json", help = "Print one JSON object on stdout, all else on stderr." },
  { name = "-i", help = "Go on at a prompt with the trained model, as in examples/repl.lua." },
}

local TRAIN = {
  name = "train.lua",
  description = "Trains a small GPT on text, with activation checkpointing under a memory budget.",
  config = "A config file. Default: examples/configs/small.lua.",
  epilog = [[
The defaults above stand where the config is silent; the command line goes over the config.

Examples:
   luajit examples/train.lua
   luajit examples/train.lua --data book.txt --steps 500 --budget 64MiB --checkpoint segments:2
   luajit examples/train.lua examples/configs/shakespeare_char_cpu.lua --set lr=5e-4 --threads 2
   luajit examples/train.lua --budget 40MiB --checkpoint optimal:auto
   luajit examples/train.lua --device null --checkpoint segments:4 --dry-run

Exit status: 0 done, 1 failure, 2 wrong option, key or value, 3 does not fit in memory,
   4 diverged, 130 and 143 stopped by Ctrl-C or SIGTERM with its state saved.]],
}

---@class neap.cli.Train
---@field config string|nil  the config's path as given
---@field sets string[]  "key=value"
---@field options table<string, string>  texts by config key, for config.load
---@field dry_run boolean
---@field resume boolean
---@field json boolean
---@field interactive boolean|nil

--- The command line of examples/train.lua. Values are checked by config.load, not here.
---@param arguments string[]
---@return neap.cli.Train
function M.train(arguments)
  local parsed = M.parse(TRAIN, M.TRAIN_OPTIONS, arguments)
  if parsed.i and parsed.json then
    fail.usage("-i and --json: a prompt and one JSON object do not go together")
  end
  local options = {}
  for _, option in ipairs(M.TRAIN_OPTIONS) do
    local key = option.name:sub(3):gsub("-", "_")
    if option.value and not option.repeated then options[key] = parsed[key] end
  end
  return {
    config = parsed.config,
    sets = parsed.set or {},
    options = options,
    dry_run = parsed.dry_run or false,
    resume = parsed.resume or false,
    json = parsed.json or false,
    interactive = parsed.i or nil,
  }
end

M.REPL_OPTIONS = {
  { name = "--set", value = "KEY=VALUE", repeated = true,
    help = "Any key of the config, again and again: --set width=64." },
  { name = "--data", value = "FILE",
    help = "Text, or 16-bit tokens (.bin, .u16). Default: this machine's licence texts." },
  { name = "--device", value = "NAME",
    help = "auto, cpu or null; null counts bytes and computes nothing. Default: auto." },
  { name = "--threads", value = "N", help = "Threads of the kernels. Default: physical cores." },
  { name = "--batch", help = "Exit with 1 at the first error." },
  { name = "--ascii", help = "Draw charts without Unicode blocks (as where TERM is dumb)." },
}

local REPL = {
  name = "repl.lua",
  description = "Loads a config's model and tunes its segments live: what is kept, what it takes, "
    .. "what it costs. help() lists the words.",
  config = "A config file. Default: examples/configs/small.lua.",
  epilog = [[
The command line goes over every config that is loaded. stdin may be a pipe: answers go to stdout,
errors (one sentence each) to stderr.

Examples:
   luajit examples/repl.lua
   luajit examples/repl.lua examples/configs/small.lua --set n_layer=8 --device null
   echo 'frontier()' | luajit examples/repl.lua --ascii
   printf 'segments(4)\nstep(2)\n' | luajit examples/repl.lua --batch

Exit status: 0 done, 1 failure, or with --batch the first error, 2 wrong option, key or value,
   3 does not fit in memory, 130 and 143 stopped by Ctrl-C or SIGTERM.]],
}

---@class neap.cli.Repl
---@field config string|nil
---@field sets string[]
---@field options table<string, string>  texts by config key
---@field batch boolean
---@field ascii boolean

--- The command line of examples/repl.lua.
---@param arguments string[]
---@return neap.cli.Repl
function M.repl(arguments)
  local parsed = M.parse(REPL, M.REPL_OPTIONS, arguments)
  return { config = parsed.config, sets = parsed.set or {}, batch = parsed.batch or false,
    ascii = parsed.ascii or false,
    options = { data = parsed.data, device = parsed.device, threads = parsed.threads } }
end

--- The exit status that stands for a caught error.
---@param err any
---@return integer
function M.status(err)
  if fail.is(err, "interrupted") then
    return 128 + math.max(require("neap.ffi").C.neap_signal_pending(), 2)
  end
  if fail.is(err) then return M.STATUS[err.kind] or 1 end
  local message = tostring(err)
  -- what LuaJIT itself raises
  if message:find("interrupted!", 1, true) then return 130 end
  if message == "not enough memory" then return 3 end
  return 1
end

local function one_line(err)
  local message = fail.message(err)
  if not fail.is(err) then
    message = message:match("^[^\n]*") .. " (NEAP_TRACEBACK=1 shows where)"
  end
  return (message:gsub("%s*\n%s*", " "))
end

local function contains(arguments, word)
  for _, argument in ipairs(arguments) do
    if argument == word then return true end
  end
  return false
end

-- with --json everything but the object goes to stderr, also what `print` says
local function redirect_to_stderr()
  io.output(io.stderr)
  rawset(_G, "print", function(...)
    local parts = {}
    for i = 1, select("#", ...) do parts[i] = tostring((select(i, ...))) end
    io.stderr:write(table.concat(parts, "\t"), "\n")
  end)
end

--- Runs a script's main function and ends the process with its status. An error becomes one
--- sentence on stderr; with --json one object is printed on stdout in every case.
---@param name string  the script's name, in front of the sentence
---@param arguments string[]
---@param main fun(report: table): integer|nil  fills the report; returns the status, nil: 0
function M.run(name, arguments, main)
  io.stdout:setvbuf("line")
  local wants_json = contains(arguments, "--json")
  if wants_json then redirect_to_stderr() end
  local report, trace = {}, nil
  local ok, result = xpcall(function() return main(report) end, function(err)
    trace = debug.traceback(tostring(err), 2)
    return err
  end)
  local status = ok and (result or 0) or M.status(result)
  if not ok then
    report.error = one_line(result)
    report.error_kind = fail.is(result) and result.kind or nil
    io.stderr:write(name, ": ", report.error, "\n")
    if os.getenv("NEAP_TRACEBACK") == "1" then io.stderr:write(trace, "\n") end
  end
  if wants_json then
    report.exit = status
    if report.error == nil then report.error = json.null end
    io.stdout:write(json.encode(report, M.REPORT_KEYS), "\n")
  end
  io.stdout:flush()
  os.exit(status, true)
end

return M
