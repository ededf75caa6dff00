-- The main job: trains a small GPT on text under a checkpoint policy and a memory budget.
-- luajit examples/train.lua --help
local here = arg[0]:match("^(.*)/[^/]*$") or "."
local link = io.popen("readlink -f '" .. arg[0]:gsub("'", "'\\''") .. "' 2>/dev/null")
if link then
  here = (link:read("*l") or arg[0]):match("^(.*)/[^/]*$") or here
  link:close()
end
local root = here .. "/.."
-- a checkout, or an installed tree: share/neap/examples beside share/lua/5.1
package.path = table.concat({ root .. "/lua/?.lua", root .. "/lua/?/init.lua",
  root .. "/build/?.lua", root .. "/../lua/5.1/?.lua", root .. "/../lua/5.1/?/init.lua",
  package.path }, ";")

local cli = require("neap.cli")

local function tell(line) io.stderr:write(line, "\n") end

local function manifest_of(trainer)
  local manifest = require("neap.run").notes(trainer)
  manifest.config = nil
  manifest.version = require("neap").version
  manifest.seed, manifest.data = trainer.config.seed, trainer.data.name
  manifest.plan, manifest.parameters = trainer.spec.text, trainer.forecast.n_parameters
  manifest.predicted_peak_bytes = trainer.prediction.peak_bytes
  return manifest
end

local function print_sample(trainer)
  local data, config = trainer.data, trainer.config
  local first = data:encode("\n") or { 0 }
  trainer.model:eval()
  local tokens = require("neap.sample").continue(trainer.executor, first, 300, {
    context = config.context, vocabulary = data.n_vocabulary, temperature = 0.8,
    seed = config.seed })
  print("sample:")
  print((data:decode(tokens):gsub("\n", "\n  "):gsub("^", "  ")))
end

-- the run that --resume goes on with: its directory, and its config unless one was named
local function resumed(options)
  if not options.resume then return nil end
  local path = options.options.out or require("neap.rundir").newest("runs")
  if not path then
    require("neap.fail").raise("failure", "--resume: there is no run with a saved state under "
      .. "'runs'; name one with --out DIR")
  end
  options.options.out = path
  options.config = options.config or path .. "/config.lua"
  return path
end

local function describe(trainer, config)
  print(string.format("%s: %.0f tokens, vocabulary %d; GPT of %.0f parameters; chunk %d of %d",
    trainer.data.name, trainer.data.n_tokens, trainer.data.n_vocabulary,
    trainer.forecast.n_parameters, trainer.chunk, config.global_batch))
  print(trainer:memory_text())
end

local function open_run(trainer, config, resume, name, report)
  local rundir, run_module = require("neap.rundir"), require("neap.run")
  local directory = resume and rundir.open(resume)
    or rundir.new(config.out, name, config, manifest_of(trainer))
  local run = run_module.new(trainer, directory, { say = print, report = report,
    resume_command = string.format("luajit %s --resume --out %s", arg[0], directory.path) })
  trainer:prepare()
  if resume then
    local states = directory:states()
    if #states == 0 then
      require("neap.fail").raise("failure", string.format("--resume: '%s' holds no state", resume))
    end
    for _, remark in ipairs(run:load(states[#states].path)) do tell("resume: " .. remark) end
    print(string.format("resumed from step %d", trainer.step))
  end
  print("run directory: " .. directory.path)
  return run
end

-- a prompt with the trained model
local function go_on(trainer, config_path)
  require("neap.ffi").C.neap_signal_watch(0)
  trainer.model:train()
  local repl = require("neap.repl").new({ say = print, tell = tell,
    complain = tell })
  repl.session:adopt(trainer, config_path)
  local status = repl:interact({})
  repl.session:close()
  return status
end

local function main(report)
  local options = cli.train(arg)
  require("neap.run").watch_signals()
  local resume = resumed(options)
  local config_path = options.config or here .. "/configs/small.lua"
  local config = require("neap.config").load(config_path, options.sets, options.options)
  local trainer = require("neap.trainer").new(config, { build = require("neap.main_job").build,
    tell = tell })
  trainer:fill(report)
  describe(trainer, config)
  local budget = trainer.device.budget_bytes
  if options.dry_run then
    print(trainer.forecast:memory_table(trainer.prediction))
    print(tostring(trainer.prediction.plans[trainer.chunk]))
    print(trainer.forecast:policy_table(trainer.spec, budget))
    trainer:check_budget()
    print(budget and "verdict: fits" or "verdict: no budget was set")
    return 0
  end
  trainer:check_budget()
  local name = require("neap.files").basename(config_path, ".lua")
  local run = open_run(trainer, config, resume, name, report)
  local status = run:train()
  if status ~= 0 then return status end
  if trainer.device:computes() and not options.json then print_sample(trainer) end
  print("what each policy would have cost (> in use):")
  print(trainer.forecast:policy_table(trainer.spec, budget))
  if options.interactive then return go_on(trainer, config_path) end
  trainer:free()
  return 0
end

cli.run("train.lua", arg, main)
