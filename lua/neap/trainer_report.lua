-- What a trainer says of its run: the line of a step, the JSON report, sentences about memory.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local bytes = require("neap.bytes")
local C, ffi = ffi_neap.C, ffi_neap.ffi

local M = {}

local Trainer = {}
M.methods = Trainer -- of neap.Trainer

local f32, u32 = ffi.new("float[1]"), ffi.new("uint32_t[1]")

--- The bits of a number as f32, as eight hexadecimal digits.
---@param x number
---@return string
function M.bits(x)
  f32[0] = type(x) == "number" and x or argument.number(x, "bits: its argument")
  -- not through a cast pointer: compiled code assumes that different types do not alias
  ffi.copy(u32, f32, 4)
  return string.format("%08x", u32[0])
end

---@return number
function Trainer:median_seconds()
  local sorted = { unpack(self.seconds) }
  table.sort(sorted)
  return sorted[math.ceil(#sorted / 2)] or 0
end

local function duration(seconds)
  if seconds < 100 then return string.format("%.0fs", seconds) end
  if seconds < 6000 then return string.format("%.0fm", seconds / 60) end
  return string.format("%.1fh", seconds / 3600)
end

--- The line of a step, made to be grepped.
---@param row table
---@return string
function Trainer:step_line(row)
  local eta = math.max(0, self.config.steps - row.step) * self:median_seconds()
  local function mib(b) return string.format("%.1f", b / 2 ^ 20) end
  return string.format("step %d/%d loss %.4f gnorm %.2f lr %.1e %.0f ms %.0f tok/s peak %s/%s MiB "
    .. "(predicted/measured) eta %s", row.step, self.config.steps, row.loss, row.grad_norm, row.lr,
    row.seconds * 1000, row.tokens_per_second, mib(row.predicted_peak_bytes),
    mib(row.measured_peak_bytes), duration(eta))
end

--- Fills the JSON report with what is known so far.
function Trainer:fill(report)
  report.chunk, report.global_batch = self.chunk, self.config.global_batch
  report.plan, report.device = self.spec.text, self.device.name
  report.threads, report.parameters = C.neap_threads_get(), self.forecast.n_parameters
  report.predicted_peak_bytes = self.prediction.peak_bytes
  report.steps = self.step
  if self.loss and self.grad_norm then -- of the last step, perhaps of the run that was resumed
    report.train_loss, report.loss_bits = self.loss, M.bits(self.loss)
    report.grad_norm, report.grad_norm_bits = self.grad_norm, M.bits(self.grad_norm)
  end
  if #self.seconds > 0 then
    report.measured_peak_bytes = self.measured_peak
    local plan = self.prediction.plans[self.prediction.chunk]
    if plan then plan.measured_peak_bytes = self.activation_peak end
    report.activation_peak_bytes = self.activation_peak
    report.eval_peak_bytes = self.eval_peak
    report.recomputed_forwards = self.executor.recomputed
    report.step_seconds_median = self:median_seconds()
    report.tokens_per_second = self.config.global_batch * self.config.context
      / self:median_seconds()
  end
end

--- Sentences about memory, for people: fixed, activations, the peak.
function Trainer:memory_text()
  local f, p = self.forecast, self.prediction
  return string.format("memory of a step: %s fixed (parameters %s, gradients %s, optimizer %s) "
    .. "+ up to %s in forward and backward = %s, most in %s", bytes.format(f.fixed_bytes),
    bytes.format(f.fixed.parameters), bytes.format(f.fixed.gradients),
    bytes.format(f.fixed.optimizer), bytes.format(p.plan_bytes), bytes.format(p.peak_bytes),
    p.where)
end

return M
