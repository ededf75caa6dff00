-- The main job's step loop: time, Lua garbage and peak a step, under keep-all and under
-- recomputation, in turn. luajit spec/bench/main_job.lua [rounds]
local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/../.."
package.path = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;" .. root .. "/build/?.lua;"
  .. package.path
local neap = require("neap")
local C = require("neap.ffi").C
local config_module = require("neap.config")
local trainer_module = require("neap.trainer")

local rounds = tonumber(arg[1]) or 5
local STEPS = 20

local function build(config, data)
  return neap.nn.GPT({ vocabulary = data.n_vocabulary, context = config.context,
    width = config.width, n_layer = config.n_layer, n_head = config.n_head })
end

local function new(checkpoint)
  local config = config_module.load(root .. "/examples/configs/shakespeare_char_cpu.lua",
    { "checkpoint=" .. checkpoint, "threads=1", "budget=4GiB" })
  local trainer = trainer_module.new(config, { build = build, tell = function() end })
  trainer:prepare()
  return trainer
end

local specs = { "none", "all", "segments:2" }
local trainers, results = {}, {}
for i, spec in ipairs(specs) do
  trainers[i], results[i] = new(spec), { seconds = {}, garbage = {} }
  for _ = 1, 3 * STEPS do trainers[i]:train_step() end
end

for _ = 1, rounds do
  for i, trainer in ipairs(trainers) do
    collectgarbage()
    collectgarbage("stop")
    local before, started = collectgarbage("count"), C.neap_now()
    for _ = 1, STEPS do trainer:train_step() end
    local seconds = results[i].seconds
    seconds[#seconds + 1] = (C.neap_now() - started) / STEPS
    results[i].garbage[#results[i].garbage + 1] = (collectgarbage("count") - before) * 1024 / STEPS
    collectgarbage("restart")
  end
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local base
for i, spec in ipairs(specs) do
  local seconds = median(results[i].seconds)
  base = base or seconds
  print(string.format("%-12s %7.1f ms a step, ratio to none %.2f, Lua garbage %.0f bytes a step, "
    .. "peak %.1f MiB", spec, seconds * 1000, seconds / base, median(results[i].garbage),
    trainers[i].measured_peak / 2 ^ 20))
end
