-- Trains a deep ResNet on images under a checkpoint policy and a memory budget.
-- luajit examples/resnet.lua --help
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

local ABOUT = {
  name = "resnet.lua",
  description = "Trains a ResNet of up to 1,000 layers on images, with activation checkpointing "
    .. "under a memory budget.",
  epilog = [[
Examples:
   luajit examples/resnet.lua
   luajit examples/resnet.lua --depth 110 --checkpoint segments:4 --budget 20MiB
   luajit examples/resnet.lua --images train-images-idx3-ubyte --labels train-labels-idx1-ubyte
   luajit examples/resnet.lua --depth 1000 --width 16 --side 32 --device null --dry-run

Exit status: 0 done, 1 failure, 2 wrong option or value, 3 does not fit in memory, 4 diverged,
   130 and 143 stopped by Ctrl-C or SIGTERM.]],
}

local OPTIONS = {
  { name = "--images", value = "FILE",
    help = "Images, IDX as MNIST has them (unpacked). Default: made from the seed." },
  { name = "--labels", value = "FILE", help = "Their labels, IDX." },
  { name = "--side", value = "N", type = "integer", default = 8, least = 4, most = 512,
    help = "Height and width of images that are made. Default: 8." },
  { name = "--depth", value = "N", type = "integer", default = 20, least = 4, most = 1000,
    help = "Layers with weights, even, 4 to 1000. Default: 20." },
  { name = "--width", value = "N", type = "integer", default = 8, least = 1, most = 4096,
    help = "Channels of the first blocks, doubled twice. Default: 8." },
  { name = "--block", value = "KIND", type = "word", default = "pre", words = { "pre", "basic" },
    text = "pre or basic", help = "Kind of block, pre (norm first) or basic. Default: pre." },
  { name = "--batch", value = "N", type = "integer", default = 32, least = 1, most = 2 ^ 20,
    help = "Images a step. Default: 32." },
  { name = "--chunk", value = "N", type = "integer", least = 2, most = 2 ^ 20,
    help = "Images one forward sees, at least 2. Default: all of the step's." },
  { name = "--steps", value = "N", type = "integer", default = 100, least = 1, most = 2 ^ 40,
    help = "Optimizer updates. Default: 100." },
  { name = "--lr", value = "X", type = "number", default = 0.05, least = 0,
    help = "Learning rate of SGD with momentum 0.9, falling to 0. Default: 0.05." },
  { name = "--checkpoint", value = "SPEC", type = "checkpoint", default = "none",
    help = "What is kept for backward: none, all, every_n:N, segments:K, segments:auto, "
      .. "optimal:BYTES, optimal:auto. Default: none." },
  { name = "--budget", value = "BYTES", type = "size",
    help = "Most bytes alive on the device: 512MiB, 80% of what is free. Default: none." },
  { name = "--device", value = "NAME", type = "word", default = "auto",
    words = { "auto", "cpu", "null" }, text = "auto, cpu or null",
    help = "auto, cpu or null; null counts bytes and computes nothing. Default: auto." },
  { name = "--threads", value = "N", type = "integer", least = 1, most = 1024,
    help = "Threads of the kernels. Default: physical cores." },
  { name = "--seed", value = "N", type = "integer", default = 1, least = 0, most = 2 ^ 53,
    help = "Of parameters, order and the images that are made. Default: 1." },
  { name = "--dry-run", help = "Print the plan and what it would take, run nothing." },
  { name = "--json", help = "Print one JSON object on stdout, all else on stderr." },
}

-- the command line as values, checked as a config's are
local function read_options()
  local schema, fail = require("neap.config.schema"), require("neap.fail")
  local parsed, o = cli.parse(ABOUT, OPTIONS, arg), {}
  for _, option in ipairs(OPTIONS) do
    local key = option.name:sub(3):gsub("-", "_")
    local value = parsed[key]
    if value ~= nil and option.type then
      local spec = setmetatable({ key = option.name }, { __index = option })
      value = schema.read(spec, value)
      local objection = schema.objection(spec, value)
      if objection then fail.usage("%s", objection) end
    end
    if value == nil then value = option.default end
    o[key] = value
  end
  if (o.images == nil) ~= (o.labels == nil) then
    fail.usage("--images and --labels belong together, found one without the other")
  end
  o.chunk = math.min(o.chunk or o.batch, o.batch)
  if o.batch % o.chunk == 1 then
    fail.usage("--batch %.0f in chunks of %.0f leaves one of a single image; batch norm needs 2",
      o.batch, o.chunk)
  end
  return o
end

local function describe(trainer)
  local o, data = trainer.options, trainer.data
  print(string.format("%s: %.0f of %dx%d, %d classes; ResNet of %d layers, %.0f parameters; chunk "
    .. "%d of %d", data.name, data.n, data.height, data.width, data.classes, o.depth,
    trainer.forecast.n_parameters, o.chunk, o.batch))
  print(trainer.forecast:memory_table(trainer.prediction))
end

local function train(trainer, report)
  local o, C = trainer.options, require("neap.ffi").C
  local every = math.max(1, math.ceil(o.steps / 20))
  trainer:prepare()
  for step = 1, o.steps do
    local line = trainer:train_step()
    if step == 1 or step % every == 0 or step == o.steps then print(line) end
    trainer:fill(report)
    local signal = C.neap_signal_pending()
    if signal ~= 0 then
      print(string.format("stopped by %s after step %d", signal == 2 and "Ctrl-C" or "SIGTERM",
        step))
      return 128 + signal
    end
  end
  return 0
end

local function main(report)
  local o = read_options()
  require("neap.run").watch_signals()
  local trainer = require("neap.image_trainer").new(o, function(line)
    io.stderr:write(line, "\n")
  end)
  trainer:fill(report)
  describe(trainer)
  local budget = trainer.device.budget_bytes
  if o.dry_run then
    print(tostring(trainer.prediction.plans[o.chunk]))
    print(trainer.forecast:policy_table(trainer.spec, budget))
    trainer:check_budget()
    print(budget and "verdict: fits" or "verdict: no budget was set")
    return 0
  end
  trainer:check_budget()
  local status = train(trainer, report)
  if status ~= 0 then return status end
  local loss, accuracy = trainer:validate()
  if loss then
    report.val_loss, report.accuracy = loss, accuracy
    print(string.format("held-out images: loss %.4f, %.1f%% right", loss, 100 * accuracy))
  end
  print(trainer:peak_text())
  print("what each policy would have cost (> in use):")
  print(trainer.forecast:policy_table(trainer.spec, budget))
  trainer:free()
  return 0
end

cli.run("resnet.lua", arg, main)
