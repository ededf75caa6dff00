-- The main job: trains a small GPT on text under a checkpoint policy and a memory budget.
-- luajit examples/train.lua --help
local here = arg[0]:match("^(.*)/[^/]*$") or "."
local link = io.popen("readlink -f '" .. arg[0]:gsub("'", "'\\''") .. "' 2>/dev/null")
if link then
  here = (link:read("*l") or arg[0]):match("^(.*)/[^/]*$") or here
  link:close()
end
local root = here .. "/.."
package.path = table.concat({ root .. "/lua/?.lua", root .. "/lua/?/init.lua",
  root .. "/build/?.lua", package.path }, ";")

local cli = require("neap.cli")

local function build(config, data)
  return require("neap").nn.GPT({ vocabulary = data.n_vocabulary, context = config.context,
    width = config.width, n_layer = config.n_layer, n_head = config.n_head,
    dropout = config.dropout })
end

local function tell(line) io.stderr:write(line, "\n") end

local function manifest_of(trainer)
  local neap_ffi = require("neap.ffi")
  local C, ffi = neap_ffi.C, neap_ffi.ffi
  return { version = C.neap_version(), device = trainer.device.name,
    kernel = trainer.device:computes() and ffi.string(C.neap_gemm_name()) or "none",
    threads = C.neap_threads_get(), seed = trainer.config.seed, data = trainer.data.name,
    data_hash = trainer.data.hash, plan = trainer.spec.text,
      parameters = trainer.forecast.n_parameters,
    predicted_peak_bytes = trainer.prediction.peak_bytes }
end

local function print_sample(trainer)
  local data, config = trainer.data, trainer.config
  local sample = require("neap.sample")
  local first = data:encode("\n") or { 0 }
  trainer.model:eval()
  local tokens = sample.continue(trainer.executor, first, 300, { context = config.context,
    vocabulary = data.n_vocabulary, temperature = 0.8, seed = config.seed })
  print("sample:")
  print((data:decode(tokens):gsub("\n", "\n  "):gsub("^", "  ")))
end

local function train(trainer, directory, report)
  local config = trainer.config
  local every = math.max(1, math.ceil(config.steps / 40))
  for step = 1, config.steps do
    local row = trainer:train_step()
    directory:step(row)
    if step == 1 or step % every == 0 or step == config.steps then print(trainer:step_line(row)) end
    if config.eval_every > 0 and step % config.eval_every == 0 and step < config.steps then
      local loss = trainer:validate(config.eval_batches)
      directory:validation({ step = step, val_loss = loss })
      print(string.format("step %d/%d val_loss %.4f", step, config.steps, loss))
    end
    trainer:fill(report)
  end
  if config.final_eval_batches > 0 then
    report.val_loss = trainer:validate(config.final_eval_batches)
    directory:validation({ step = trainer.step, val_loss = report.val_loss })
    print(string.format("step %d/%d val_loss %.4f (%d batches)", trainer.step, config.steps,
      report.val_loss, config.final_eval_batches))
  end
  report.state_hash = trainer:state_hash()
  trainer:fill(report)
end

local function main(report)
  local options = cli.train(arg)
  local config_module = require("neap.config")
  local files = require("neap.files")
  local config_path = options.config or here .. "/configs/small.lua"
  local config = config_module.load(config_path, options.sets, options.options)
  local trainer = require("neap.trainer").new(config, { build = build, say = print, tell = tell })
  trainer:fill(report)
  print(string.format("%s: %.0f tokens, vocabulary %d; GPT of %.0f parameters; chunk %d of %d",
    trainer.data.name, trainer.data.n_tokens, trainer.data.n_vocabulary,
    trainer.forecast.n_parameters, trainer.chunk, config.global_batch))
  print(trainer:memory_text())
  local budget = trainer.device.budget_bytes
  if options.dry_run then
    print(tostring(trainer.prediction.plans[trainer.chunk]))
    print(trainer.forecast:policy_table(trainer.spec.text, budget))
    trainer:check_budget()
    print(budget and "verdict: fits" or "verdict: no budget was set")
    return 0
  end
  trainer:check_budget()
  local name = files.basename(config_path, ".lua")
  local directory = require("neap.rundir").new(config.out, name, config, manifest_of(trainer))
  print("run directory: " .. directory.path)
  trainer:prepare()
  train(trainer, directory, report)
  if trainer.device:computes() and not options.json then print_sample(trainer) end
  print("what each policy would have cost (> in use):")
  print(trainer.forecast:policy_table(trainer.spec.text, budget))
  return 0
end

cli.run("train.lua", arg, main)
