-- Training on images, as trainer.lua does it on text: forecast, plan, steps of chunks, SGD.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local bytes = require("neap.bytes")
local device_module = require("neap.device")
local executor_module = require("neap.checkpoint.executor")
local fail = require("neap.fail")
local forecast_module = require("neap.forecast")
local images = require("neap.images")
local module = require("neap.nn.module")
local optim = require("neap.optim")
local policy = require("neap.checkpoint.policy")
local rng = require("neap.rng")
local scope = require("neap.scope")
local tensor = require("neap.tensor")
local text_trainer = require("neap.trainer")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.ImageTrainer
local Trainer = {}
Trainer.__index = Trainer

local GENERATED, CLASSES = 2000, 10

local function optimizer_of(model)
  return optim.SGD(model:parameters(), { momentum = 0.9, weight_decay = 1e-4 })
end

local function open_data(o)
  if o.images then return images.open(o.images, o.labels, o.seed) end
  return images.generated({ n = GENERATED, side = o.side, classes = CLASSES, seed = o.seed })
end

-- tensors of n images on the current device, without contents
local function empty_batch(data, n)
  return {
    inputs = tensor.empty({ n, 1, data.height, data.width }, { tag = C.NEAP_TAG_BATCH }),
    targets = tensor.empty({ n }, { dtype = "i32", tag = C.NEAP_TAG_BATCH }),
  }
end

--- Reads the images, opens the device and forecasts; nothing is trained yet.
---@param o table  options of examples/resnet.lua, checked
---@param tell fun(line: string)  takes lines for stderr
---@return neap.ImageTrainer
function M.new(o, tell)
  argument.table(o, "image_trainer.new: its options")
  argument.fn(tell, "image_trainer.new: tell")
  local self = setmetatable({ options = o, step = 0, seconds = {} }, Trainer)
  device_module.threads(o.threads or C.neap_cores_physical())
  policy.parse(o.checkpoint, 2 ^ 53)
  self.build = function()
    module.manual_seed(o.seed)
    return require("neap").nn.ResNet({ depth = o.depth, width = o.width, block = o.block,
      classes = self.data.classes })
  end
  self.data = open_data(o)
  self.device = device_module.open(o.device, { budget = o.budget })
  tell(string.format("device %s (%s), %d thread%s", self.device.name, self.device.reason,
    C.neap_threads_get(), C.neap_threads_get() == 1 and "" or "s"))
  local available = C.neap_memory_available(self.device.id)
  self.spec = policy.parse(o.checkpoint, available >= 0 and available or nil)
  self.chunks = forecast_module.chunks(o.batch, o.chunk)
  self.forecast = forecast_module.new({ build = self.build, optimizer = optimizer_of,
    chunks = self.chunks, batch = function(n) return empty_batch(self.data, n) end,
    modes = policy.modes(self.spec), budget = self.device.budget_bytes })
  self.prediction = self.forecast:predict(self.spec)
  return self
end

--- Raises "does not fit" when the predicted peak is above the device budget, or no plan keeps the
--- plan budget.
function Trainer:check_budget()
  self.forecast:refuse(self.spec.text, self.prediction, self.device.budget_bytes)
end

--- Builds the model on the device: everything that exists before step 1.
function Trainer:prepare()
  local o = self.options
  self.model = self.build()
  self.model:zero_grad()
  self.optimizer = optimizer_of(self.model)
  self.norm = optim.grad_norm(self.model:parameters())
  self.schedule = optim.schedule.cosine({ lr = o.lr, min_lr = 0,
    warmup = math.min(10, math.floor(o.steps / 10)), steps = o.steps })
  self.executor = executor_module.new(self.model)
  self.host = ffi.new("float[?]", o.chunk * self.data.pixels)
  self.labels = ffi.new("int32_t[?]", o.chunk)
  self.position, self.measured_peak, self.activation_peak = 0, 0, 0
end

-- what is in the host buffers, in new tensors of the running scope
local function upload(self, n)
  local batch = empty_batch(self.data, n)
  check(C.neap_tensor_write(batch.inputs.id, self.host, n * self.data.pixels * 4))
  check(C.neap_tensor_write(batch.targets.id, self.labels, n * 4))
  return batch
end

-- one chunk, forward and backward; returns its share of the loss
local function run_chunk(self, n, offset)
  self.data:batch(self.position + offset, n, self.host, self.labels)
  local batch = upload(self, n)
  rng.place(self.options.seed, self.step, offset, n)
  self.executor:use_profile(self.forecast.profiles[n])
  local weight = n / self.options.batch
  return self.executor:run(batch, self.prediction.plans[n], weight) * weight
end

local function line_of(self, loss, norm, lr, seconds, peak)
  local function mib(b) return string.format("%.1f", b / 2 ^ 20) end
  return string.format("step %d/%d loss %.4f gnorm %.2f lr %.1e %.0f ms %.0f images/s peak %s/%s "
    .. "MiB (predicted/measured)", self.step, self.options.steps, loss, norm, lr, seconds * 1000,
    self.options.batch / seconds, mib(self.prediction.peak_bytes), mib(peak))
end

--- One optimizer update. Raises "diverged" when the loss or the gradient is no number.
---@return string line  made to be grepped
function Trainer:train_step()
  local device, started = self.device.id, C.neap_now()
  self.step = self.step + 1
  check(C.neap_memory_restart(device, C.NEAP_METER_STEP))
  check(C.neap_memory_restart(device, C.NEAP_METER_WORK))
  self.norm:zero()
  local loss, offset = 0, 0
  for _, n in ipairs(self.chunks) do
    loss = loss + scope.run(run_chunk, self, n, offset)
    offset = offset + n
  end
  local work = C.neap_memory_peak(device, C.NEAP_METER_WORK)
  local norm, lr = self.norm:measure(), self.schedule(self.step)
  if loss ~= loss or math.abs(loss) == math.huge or norm ~= norm or norm == math.huge then
    fail.raise("diverged", string.format("step %d: the loss is %s and the gradient's norm %s; "
      .. "lower lr (now %g)", self.step, tostring(loss), tostring(norm), lr))
  end
  self.optimizer:step(lr)
  self.position = self.position + self.options.batch
  local peak = C.neap_memory_peak(device, C.NEAP_METER_STEP)
  self.measured_peak = math.max(self.measured_peak, peak)
  self.activation_peak = math.max(self.activation_peak, work)
  local seconds = C.neap_now() - started
  self.seconds[#self.seconds + 1] = seconds
  self.loss, self.grad_norm = loss, norm
  return line_of(self, loss, norm, lr, seconds, peak)
end

local function right_ones(logits, labels, n, classes)
  local values, right = logits:table(), 0
  for k = 0, n - 1 do
    local best = 1
    for c = 2, classes do
      if values[k * classes + c] > values[k * classes + best] then best = c end
    end
    right = right + (best - 1 == labels[k] and 1 or 0)
  end
  return right
end

--- Mean loss and share of right answers on images that are held out, with the running statistics;
--- nil where nothing is computed or none are held out.
---@return number|nil loss
---@return number|nil accuracy
function Trainer:validate()
  local data, loss, right, first = self.data, 0, 0, 0
  local n_held = data.n - data.n_train
  if n_held == 0 or not self.device:computes() then return nil end
  self.model:eval()
  for _, n in ipairs(forecast_module.chunks(n_held, self.options.chunk)) do
    data:held_out(first, n, self.host, self.labels)
    first = first + n
    scope.run(function()
      local batch = upload(self, n)
      loss = loss + self.executor:evaluate(batch):item() * n
      right = right + right_ones(self.executor:evaluate({ inputs = batch.inputs }), self.labels, n,
        data.classes)
    end)
  end
  self.model:train()
  return loss / n_held, right / n_held
end

---@return number
function Trainer:median_seconds()
  local sorted = { unpack(self.seconds) }
  table.sort(sorted)
  return sorted[math.ceil(#sorted / 2)] or 0
end

--- Fills the JSON report with what is known so far.
function Trainer:fill(report)
  local o = self.options
  report.chunk, report.global_batch, report.plan = o.chunk, o.batch, self.spec.text
  report.device, report.threads = self.device.name, C.neap_threads_get()
  report.parameters, report.depth = self.forecast.n_parameters, o.depth
  report.predicted_peak_bytes, report.steps = self.prediction.peak_bytes, self.step
  if self.loss then
    report.train_loss, report.loss_bits = self.loss, text_trainer.bits(self.loss)
    report.grad_norm, report.grad_norm_bits = self.grad_norm, text_trainer.bits(self.grad_norm)
    report.measured_peak_bytes, report.activation_peak_bytes = self.measured_peak,
      self.activation_peak
    report.recomputed_forwards = self.executor.recomputed
    report.step_seconds_median = self:median_seconds()
    report.images_per_second = o.batch / report.step_seconds_median
  end
end

--- The peak of a step, predicted and measured.
---@return string
function Trainer:peak_text()
  return string.format("peak of a step: %.0f bytes predicted, %.0f measured (%s)",
    self.prediction.peak_bytes, self.measured_peak, bytes.format(self.measured_peak))
end

--- Frees the model and the optimizer; the trainer is of no use afterwards.
function Trainer:free()
  if self.model then
    self.executor:free()
    self.optimizer:free()
    self.model:free()
  end
end

return M
