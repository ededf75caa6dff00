-- The trainer's chunk: a number as it is; "auto" is the largest that fits the device's budget under
-- the plan in force, first by forecast, then by running it.
local bytes = require("neap.bytes")
local chunk_search = require("neap.chunk_search")
local chunk_step = require("neap.chunk_step")
local forecast_module = require("neap.forecast")
local keeping = require("neap.checkpoint.keeping")
local policy = require("neap.checkpoint.policy")
local rng = require("neap.rng")

local M = {}

-- without a memory report there is nothing to search under (config files may say more than 12)
local UNREPORTED = 12

-- what the policy keeps selectively, and what the table of policies compares it with
local function modes_of(spec)
  local modes = policy.modes("optimal:auto")
  for _, mode in ipairs(policy.modes(spec)) do keeping.add(modes, mode, spec.text) end
  return modes
end

local function peak_of(trainer, n)
  local prediction = trainer.forecast:predict(trainer.spec, { n })
  if prediction.infeasible then return nil, prediction.infeasible end
  return prediction.peak_bytes
end

-- the largest chunk by forecast; 1 when nothing fits, which the budget check then refuses
local function predicted(trainer, cap, limit)
  local found = chunk_search.find({ cap = cap, limit = limit,
    trial = function(n) return peak_of(trainer, n) end })
  local above = found.n and found.n < cap and peak_of(trainer, found.n + 1)
  trainer.tell(found.n and string.format("chunk auto: %d of at most %d items, a step takes %s of "
    .. "%s%s", found.n, cap, bytes.format(found.bytes), bytes.format(limit),
    above and string.format("; %d would take %s", found.n + 1, bytes.format(above)) or "")
    or string.format("chunk auto: not even one item fits %s", bytes.format(limit)))
  return found.n or 1
end

local function settle(trainer, chunk)
  local config = trainer.config
  trainer.chunk = chunk
  trainer.chunks = forecast_module.chunks(config.global_batch, chunk)
  trainer.forecast.chunks = trainer.chunks
  trainer.prediction = trainer.forecast:predict(trainer.spec)
  config.chunk = chunk -- what the run directory keeps, so that --resume has the same one
end

--- Sets chunk, chunks, forecast and prediction of a trainer. most_items: the largest chunk that is
--- ever uploaded.
---@param trainer neap.Trainer
---@param o { optimizer: fun(model: neap.Chain): table }
function M.forecast(trainer, o)
  local config = trainer.config
  local cap = math.min(config.global_batch, trainer.data.n_items)
  local limit = config.chunk == "auto" and chunk_step.limit(trainer.device) or nil
  local first = config.chunk
  if first == "auto" then first = limit and 1 or math.min(UNREPORTED, cap) end
  first = math.min(first, config.global_batch)
  trainer.forecast = forecast_module.new({ build = trainer.build, optimizer = o.optimizer,
    chunks = limit and { first } or forecast_module.chunks(config.global_batch, first),
    context = config.context, modes = modes_of(trainer.spec),
    budget = trainer.device.budget_bytes })
  trainer.is_auto, trainer.most_items = limit ~= nil, math.max(first, 1)
  if config.chunk == "auto" and not limit then
    trainer.tell("chunk auto: this device reports no memory to probe, taking " .. first)
  end
  if limit then
    first = predicted(trainer, cap, limit)
    trainer.most_items = cap
  end
  settle(trainer, first)
end

-- forward and backward of exactly n items, the first ones of the data again and again when it is
-- short, and what clipping takes
local function run(trainer, n)
  local config = trainer.config
  local plan = trainer.forecast:predict(trainer.spec, { n }).plans[n]
  local batch = trainer:upload(n, trainer.data.batch, trainer.position)
  rng.place(config.seed, trainer.step, 0, n)
  trainer.executor:use_profile(trainer.forecast.profiles[n])
  trainer.executor:run(batch, plan, n / config.global_batch)
  trainer.norm:measure()
  return n
end

--- Runs the chosen chunk, and one item more to see it fail; another one is taken should the
--- forecast have been wrong. Everything else is as before.
---@param trainer neap.Trainer  prepared
function M.verify(trainer)
  local device = trainer.device
  local found = chunk_step.find({ device = device, cap = trainer.most_items,
    limit = chunk_step.limit(device), guess = trainer.chunk,
    run = function(n) return run(trainer, n) end })
  trainer.tell(found.line)
  trainer.chunk_outcome = found
  if found.n and found.n ~= trainer.chunk then settle(trainer, found.n) end
end

return M
