-- What a session runs: trials that change nothing, and steps that can be taken back whole.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local undo = require("neap.repl.undo")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

local function key_of(row) return row.spec.text .. " " .. row.chunks[1] end

---@class neap.Measured
---@field peak_bytes number        of the step, without what the session's user holds
---@field activation_bytes number  in forward and backward
---@field seconds number|nil
---@field user_bytes number
---@field tags table<string, number>  alive at the peak, by tag

local function keep(self, row, others, peak, work, seconds)
  local old = self.measured[key_of(row)]
  work = work - others.work_bytes
  local plan = row.prediction.plans[row.chunk]
  if plan then plan.measured_peak_bytes = work end
  self.measured[key_of(row)] = {
    peak_bytes = math.max(peak - others.bytes, old and old.peak_bytes or 0),
    activation_bytes = work, user_bytes = others.bytes,
    tags = self.trainer.device:memory().tags_at_peak,
    seconds = self.trainer.device:computes() and seconds or nil }
end

-- bytes that are alive beside the training: tensors made at the prompt. Restarts both meters
local function others_of(trainer)
  local device = trainer.device.id
  check(C.neap_memory_restart(device, C.NEAP_METER_STEP))
  check(C.neap_memory_restart(device, C.NEAP_METER_WORK))
  return { work_bytes = C.neap_memory_peak(device, C.NEAP_METER_WORK),
    bytes = math.max(0, C.neap_memory_live(device) - trainer.forecast.fixed_bytes) }
end

--- What was measured under a policy, nil where it never ran.
function M.measured_of(self, row) return self.measured[key_of(row)] end

--- Forward and backward of the next step's items under a policy, without an update: parameters,
--- optimizer, random numbers and position stay. Not run where it does not fit the device.
---@param row neap.SessionRow
---@return neap.Measured|nil
function M.trial(self, row)
  local trainer = self.trainer
  local budget = trainer.device.budget_bytes
  if row.prediction.infeasible or budget and row.prediction.peak_bytes > budget then return nil end
  local device, rng = trainer.device.id, ffi_neap.ffi.new("neap_rng_state")
  local before = { trainer.forecast, trainer.prediction, trainer.chunks }
  local buffers = undo.copy(trainer.model:buffers(), trainer.device:computes())
  check(C.neap_rng_get(rng))
  local others = others_of(trainer)
  trainer.forecast, trainer.prediction, trainer.chunks = row.forecast, row.prediction,
    row.chunks
  local started = C.neap_now()
  local ok, err = pcall(function()
    trainer.norm:zero()
    trainer:accumulate()
    trainer.norm:measure()
  end)
  local seconds = C.neap_now() - started
  trainer.forecast, trainer.prediction, trainer.chunks = unpack(before)
  trainer.norm:zero()
  undo.put_back(buffers)
  C.neap_rng_set(rng)
  if not ok then error(err, 0) end
  keep(self, row, others, C.neap_memory_peak(device, C.NEAP_METER_STEP),
    C.neap_memory_peak(device, C.NEAP_METER_WORK), seconds)
  return self:measured_of(row)
end

local function steps(self, n)
  local trainer = self.trainer
  for i = 1, n do
    self.running = i
    local row = trainer:train_step()
    if self.stop_asked() then fail.raise("interrupted", "after a step") end
    if n <= 20 or i == 1 or i == n or i % math.ceil(n / 20) == 0 then
      self.say(trainer:step_line(row))
    end
  end
end

--- Optimizer updates. After Ctrl-C or an error everything is as before: none of them was done.
---@param n integer
---@return neap.SessionRow
function M.step(self, n)
  local trainer = self:need()
  argument.whole(n, "step: its argument", 1, 1e9)
  local row = self:row(trainer.spec)
  self:check_fits(row)
  local kept, others = undo.take(trainer), others_of(trainer)
  trainer.measured_peak, trainer.activation_peak = 0, 0
  local ok, err = pcall(steps, self, n)
  if not ok then
    undo.restore(trainer, kept)
    if not fail.is(err, "interrupted") then error(err, 0) end
    fail.raise("interrupted", string.format("step: stopped by Ctrl-C in step %d of %d; the model, "
      .. "its optimizer, random numbers and position in the data are as before", self.running, n))
  end
  keep(self, row, others, trainer.measured_peak, trainer.activation_peak, trainer:median_seconds())
  return row
end

return M
