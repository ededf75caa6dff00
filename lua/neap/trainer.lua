-- Training: config -> model -> forecast -> plan -> steps. One step is zero-grad, the chunks of the
-- global batch, clipping, the optimizer.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local chunk_choice = require("neap.chunk_choice")
local data_module = require("neap.data")
local device_module = require("neap.device")
local executor_module = require("neap.checkpoint.executor")
local fail = require("neap.fail")
local module = require("neap.nn.module")
local optim = require("neap.optim")
local policy = require("neap.checkpoint.policy")
local rng = require("neap.rng")
local scope = require("neap.scope")
local tensor = require("neap.tensor")
local trainer_report = require("neap.trainer_report")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.Trainer
local Trainer = {}
Trainer.__index = Trainer

M.bits = trainer_report.bits

for name, method in pairs(trainer_report.methods) do Trainer[name] = method end

local function optimizer_of(config)
  return function(model)
    return optim.AdamW(model:parameters(),
      { betas = config.betas, weight_decay = config.weight_decay })
  end
end

-- a percentage is of the device's memory; the run's directory keeps the bytes
local function read_policy(self)
  local available = C.neap_memory_available(self.device.id)
  self.spec = policy.parse(self.config.checkpoint, available >= 0 and available or nil)
  if self.spec.is_text then self.config.checkpoint = self.spec.text end
end

--- Reads the data, opens the device and forecasts; nothing is trained yet. Raises "does not fit"
--- when the plan's predicted peak is above the budget.
---@param config neap.Config
---@param o { build: fun(config: neap.Config, data: neap.Data): neap.Chain,
---   tell: fun(line: string), open_data?: fun(config: neap.Config): neap.Data }  tell: takes lines
---   for stderr; open_data: other items than those of a text
---@return neap.Trainer
function M.new(config, o)
  argument.table(config, "trainer.new: the config", "what config.load gave")
  argument.table(o, "trainer.new: options", "{ build =, tell = }")
  argument.fn(o.build, "trainer.new: build")
  argument.fn(o.tell, "trainer.new: tell")
  if o.open_data ~= nil then argument.fn(o.open_data, "trainer.new: open_data") end
  local self = setmetatable({ config = config, step = 0, seconds = {} }, Trainer)
  device_module.threads(config.threads or C.neap_cores_physical())
  policy.parse(config.checkpoint, 2 ^ 53) -- what is wrong in it is said before anything is opened
  self.data = o.open_data and o.open_data(config)
    or data_module.open(config.data, { context = config.context, seed = config.seed })
  self.device = device_module.open(config.device, { budget = config.budget })
  o.tell(string.format("device %s (%s), %d thread%s", self.device.name, self.device.reason,
    C.neap_threads_get(), C.neap_threads_get() == 1 and "" or "s"))
  read_policy(self)
  self.build = function()
    module.manual_seed(config.seed)
    return o.build(config, self.data)
  end
  self.tell = o.tell
  chunk_choice.forecast(self, { optimizer = optimizer_of(config) })
  return self
end

-- host memory for the items of the largest chunk that is ever tried
local function make_room(self)
  local n = self.most_items * self.config.context
  self.host_inputs, self.host_targets = ffi.new("int32_t[?]", n), ffi.new("int32_t[?]", n)
end

--- Other chunks or another policy from now on, for what was forecast before.
---@param chunks integer[]
---@param spec neap.Policy
---@param forecast neap.Forecast
---@param prediction neap.Prediction  of this policy for these chunks
function Trainer:retune(chunks, spec, forecast, prediction)
  local chunk = chunks[1]
  self.chunk, self.chunks, self.spec, forecast.chunks = chunk, chunks, spec, chunks
  self.forecast, self.prediction = forecast, prediction
  self.measured_peak, self.activation_peak, self.seconds = 0, 0, {}
  self.config.chunk, self.config.checkpoint = chunk, spec.is_text and spec.text
    or self.config.checkpoint
  if chunk > self.most_items then
    self.most_items = chunk
    make_room(self)
  end
end

--- Raises "does not fit" when the predicted peak is above the device budget, or no plan keeps the
--- plan budget.
function Trainer:check_budget()
  self.forecast:refuse(self.spec.text, self.prediction, self.device.budget_bytes)
end

--- Builds the model on the device: everything that exists before step 1.
function Trainer:prepare()
  local c = self.config
  self.model = self.build()
  self.model:zero_grad()
  self.optimizer = optimizer_of(c)(self.model)
  self.norm = optim.grad_norm(self.model:parameters())
  self.schedule = optim.schedule.cosine({ lr = c.lr, min_lr = c.min_lr, warmup = c.warmup,
    steps = c.steps })
  self.executor = executor_module.new(self.model)
  make_room(self)
  self.measured_peak, self.activation_peak, self.eval_peak, self.position = 0, 0, 0, 0
  self.batch = {}
  if self.is_auto and self.device:computes() then chunk_choice.verify(self) end
end

local dims = ffi.new("double[2]")

local function upload_one(self, host, n)
  local bytes_in = n * self.config.context * 4
  dims[0], dims[1] = n, self.config.context
  local id = C.neap_tensor_new(self.device.id, C.NEAP_I32, 2, dims, C.NEAP_TAG_BATCH)
  local handle = tensor.wrap(id)
  check(C.neap_tensor_write(id, host, bytes_in))
  return handle
end

-- n items in new tensors of the running scope
function Trainer:upload(n, read, position)
  read(self.data, position, n, self.host_inputs, self.host_targets)
  local batch = self.batch
  batch.inputs = upload_one(self, self.host_inputs, n)
  batch.targets = upload_one(self, self.host_targets, n)
  return batch
end

-- one chunk, forward and backward; returns its share of the loss
local function run_chunk(self, n, offset)
  local config = self.config
  local batch = self:upload(n, self.data.batch, self.position + offset)
  rng.place(config.seed, self.step, offset, n)
  self.executor:use_profile(self.forecast.profiles[n])
  local weight = n / config.global_batch
  return self.executor:run(batch, self.prediction.plans[n], weight) * weight
end

--- Forward and backward of a step's items, chunk by chunk. Raises "interrupted" between two of them
--- when `stop_asked` (a field that whoever drives may set) says so.
---@return number loss
function Trainer:accumulate()
  local loss, offset = 0, 0
  for _, n in ipairs(self.chunks) do
    if self.stop_asked and self.stop_asked() then
      fail.raise("interrupted", string.format("step %d: stopped before item %d of %d", self.step,
        offset + 1, self.config.global_batch))
    end
    loss = loss + scope.run(run_chunk, self, n, offset)
    offset = offset + n
  end
  return loss
end

--- Frees the model and the optimizer; the trainer is of no use afterwards.
function Trainer:free()
  if self.model then
    self.optimizer:free()
    self.model:free()
  end
end

--- One optimizer update. Raises "diverged" when the loss or the gradient is no number.
---@return table row  the step's numbers, as in metrics.jsonl
function Trainer:train_step()
  local config, device = self.config, self.device.id
  local started = C.neap_now()
  self.step = self.step + 1
  check(C.neap_memory_restart(device, C.NEAP_METER_STEP))
  check(C.neap_memory_restart(device, C.NEAP_METER_WORK))
  self.norm:zero()
  local loss = self:accumulate()
  local work = C.neap_memory_peak(device, C.NEAP_METER_WORK)
  local norm, lr = self.norm:measure(), self.schedule(self.step)
  if loss ~= loss or math.abs(loss) == math.huge or norm ~= norm or norm == math.huge then
    fail.raise("diverged", string.format("step %d: the loss is %s and the gradient's norm %s; "
      .. "lower lr (now %g) or clip more", self.step, tostring(loss), tostring(norm), lr))
  end
  self.optimizer:step(lr, config.clip > 0 and norm > config.clip and config.clip / norm or 1)
  self.position = self.position + config.global_batch
  self.measured_peak = math.max(self.measured_peak, C.neap_memory_peak(device, C.NEAP_METER_STEP))
  self.activation_peak = math.max(self.activation_peak, work)
  local seconds = C.neap_now() - started
  self.seconds[#self.seconds + 1] = seconds
  self.loss, self.grad_norm = loss, norm
  return {
    step = self.step, loss = loss, grad_norm = norm, lr = lr, seconds = seconds,
    tokens_per_second = config.global_batch * config.context / seconds,
    predicted_peak_bytes = self.prediction.peak_bytes,
    measured_peak_bytes = C.neap_memory_peak(device, C.NEAP_METER_STEP),
    recomputed_forwards = self.executor.recomputed,
  }
end

--- Mean loss over validation batches of a chunk of items, always the same ones; nil when a signal
--- came in between.
---@param n_batches integer
---@return number|nil
function Trainer:validate(n_batches)
  check(C.neap_memory_restart(self.device.id, C.NEAP_METER_STEP))
  self.model:eval()
  local sum = 0
  for b = 0, n_batches - 1 do
    if C.neap_signal_pending() ~= 0 then break end
    sum = sum + scope.run(function()
      local batch = self:upload(self.chunk, self.data.validation_batch, b * self.chunk)
      return self.executor:evaluate(batch):item()
    end)
  end
  self.model:train()
  self.eval_peak = math.max(self.eval_peak, C.neap_memory_peak(self.device.id, C.NEAP_METER_STEP))
  return C.neap_signal_pending() == 0 and sum / n_batches or nil
end

--- XXH3 of parameters, buffers and optimizer state.
---@return string
function Trainer:state_hash()
  local list = self.model:parameters()
  for _, group in ipairs({ self.model:buffers(), self.optimizer:tensors() }) do
    for _, entry in ipairs(group) do list[#list + 1] = entry end
  end
  local ids, hex = ffi.new("double[?]", math.max(#list, 1)), ffi.new("char[33]")
  for i, entry in ipairs(list) do ids[i - 1] = entry.tensor.id end
  check(C.neap_tensor_hash(#list, ids, hex))
  return ffi.string(hex)
end

return M
