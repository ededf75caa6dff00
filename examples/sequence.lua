-- Trains a recurrent network over many steps in time, whose activations would not fit: the chain is
-- time, and its segments are recomputed. luajit examples/sequence.lua --help
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = table.concat({ here .. "/../lua/?.lua", here .. "/../lua/?/init.lua",
  here .. "/../build/?.lua", here .. "/../../lua/5.1/?.lua",
  here .. "/../../lua/5.1/?/init.lua", package.path }, ";")
local cli = require("neap.cli")

local OPTIONS = {
  { name = "--task", value = "NAME",
    help = "text: predict the next byte; copy: tell symbols again at the end. Default: text." },
  { name = "--data", value = "FILE", help = "The text. Default: this machine's licence texts." },
  { name = "--cell", value = "NAME", help = "lstm or gru. Default: lstm." },
  { name = "--hidden", value = "N", help = "Width of the cell and the embedding. Default: 64." },
  { name = "--steps-in-time", value = "N", help = "Length of a sequence. Default: 1000." },
  { name = "--chunk", value = "N", help = "Sequences one forward sees. Default: 8." },
  { name = "--global-batch", value = "N", help = "Sequences a step, in chunks. Default: chunk." },
  { name = "--steps", value = "N", help = "Optimizer updates. Default: 20." },
  { name = "--lr", value = "RATE", help = "Learning rate after 5 steps. Default: 3e-3." },
  { name = "--checkpoint", value = "SPEC",
    help = "What is kept for backward: none, all, every_n:N, segments:K, segments:auto, revolve:S, "
      .. "optimal:BYTES. Default: segments:auto." },
  { name = "--budget", value = "BYTES", help = "Most bytes alive: 64MiB, 80%. Default: none." },
  { name = "--device", value = "NAME", help = "auto, cpu or null. Default: auto." },
  { name = "--threads", value = "N", help = "Threads of the kernels. Default: physical cores." },
  { name = "--seed", value = "N", help = "Of parameters and data order. Default: 1." },
  { name = "--dry-run", help = "Print what the policies would take, run nothing." },
  { name = "--json", help = "Print one JSON object on stdout, all else on stderr." },
}

local ABOUT = {
  name = "sequence.lua",
  description = "Trains an LSTM or GRU over many steps in time, with activation checkpointing.",
  epilog = [[
Examples:
   luajit examples/sequence.lua
   luajit examples/sequence.lua --steps-in-time 4000 --checkpoint segments:64 --budget 48MiB
   luajit examples/sequence.lua --task copy --cell gru --steps-in-time 200 --steps 2000
   luajit examples/sequence.lua --device null --steps-in-time 10000 --dry-run

Exit status: 0 done, 1 failure, 2 wrong option or value, 3 does not fit in memory, 4 diverged,
   130 and 143 stopped by Ctrl-C or SIGTERM (no state is saved).]],
}

-- config keys by option, where they are called otherwise
local KEYS = { ["--hidden"] = "width", ["--steps-in-time"] = "context", ["--data"] = "data",
  ["--chunk"] = "chunk", ["--global-batch"] = "global_batch", ["--steps"] = "steps",
  ["--lr"] = "lr", ["--checkpoint"] = "checkpoint", ["--budget"] = "budget",
  ["--device"] = "device", ["--threads"] = "threads", ["--seed"] = "seed" }

local function one_of(option, text, names)
  local fail = require("neap.fail")
  for _, name in ipairs(names) do
    if text == name then return name end
  end
  fail.usage("%s: %s", option, fail.unknown("name", text, names))
end

local function config_of(parsed)
  local config_module = require("neap.config")
  local values = { n_layer = 1, n_head = 1, width = 64, context = 1000, chunk = 8, steps = 20,
    lr = 3e-3, warmup = 5 }
  for option, key in pairs(KEYS) do
    local text = parsed[option:sub(3):gsub("-", "_")]
    if text then values[key] = config_module.value(key, text, option) end
  end
  values.checkpoint = values.checkpoint or "segments:auto"
  values.global_batch = values.global_batch or tonumber(values.chunk)
  return config_module.load(nil, nil, values)
end

local function open_data(task)
  return function(config)
    if task == "text" then
      return require("neap.data").open(config.data, { context = config.context,
        seed = config.seed })
    end
    return require("neap.copy_task").open({ context = config.context, seed = config.seed })
  end
end

local function describe(trainer, task, cell)
  local c, data = trainer.config, trainer.data
  print(string.format("%s: vocabulary %d; %s of %d, %.0f parameters, over %d steps in time; "
    .. "chunk %d of %d", data.name, data.n_vocabulary, cell:upper(), c.width,
    trainer.forecast.n_parameters, c.context, trainer.chunk, c.global_batch))
  print(trainer:memory_text())
  if task == "copy" then print(string.format("guessing costs %.4f", data:guess_loss())) end
end

-- to the last step, or to a signal: then 128 + its number
local function train(trainer, report)
  local C = require("neap.ffi").C
  local every = math.max(1, math.ceil(trainer.config.steps / 40))
  for step = 1, trainer.config.steps do
    local row = trainer:train_step()
    if step == 1 or step % every == 0 or step == trainer.config.steps then
      print(trainer:step_line(row))
    end
    trainer:fill(report)
    local signal = C.neap_signal_pending()
    if signal ~= 0 then
      print(string.format("stopped after step %d", step))
      return 128 + signal
    end
  end
  local loss = trainer:validate(2)
  if loss then print(string.format("val_loss %.4f (2 batches)", loss)) end
  report.val_loss, report.state_hash = loss, trainer:state_hash()
  trainer:fill(report)
  return 0
end

local function main(report)
  local parsed = cli.parse(ABOUT, OPTIONS, arg)
  local task = one_of("--task", parsed.task or "text", { "text", "copy" })
  local cell = one_of("--cell", parsed.cell or "lstm", { "lstm", "gru" })
  local config = config_of(parsed)
  require("neap.run").watch_signals()
  local trainer = require("neap.trainer").new(config, {
    tell = function(line) io.stderr:write(line, "\n") end,
    open_data = open_data(task),
    build = function(c, data)
      return require("neap").nn.Recurrent({ vocabulary = data.n_vocabulary, time = c.context,
        hidden = c.width, cell = cell })
    end,
  })
  trainer:fill(report)
  report.cell, report.hidden, report.steps_in_time = cell, config.width, config.context
  describe(trainer, task, cell)
  local budget = trainer.device.budget_bytes
  if parsed.dry_run then
    print(trainer.forecast:policy_table(trainer.spec.text, budget))
    trainer:check_budget()
    print(budget and "verdict: fits" or "verdict: no budget was set")
    return 0
  end
  trainer:check_budget()
  trainer:prepare()
  local status = train(trainer, report)
  if status == 0 then
    print("what each policy would have cost (> in use):")
    print(trainer.forecast:policy_table(trainer.spec.text, budget))
  end
  trainer:free()
  return status
end

cli.run("sequence.lua", arg, main)
