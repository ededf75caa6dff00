-- A whole training run: steps, validation, state files, signals, and going on where one stopped.
local ffi_neap = require("neap.ffi")
local config_module = require("neap.config")
local state = require("neap.state")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.Run
---@field trainer neap.Trainer
---@field directory neap.RunDirectory
---@field best_loss number|nil  least validation loss so far
local Run = {}
Run.__index = Run

---@param trainer neap.Trainer
---@param directory neap.RunDirectory
---@param o { say: fun(line: string), report: table, resume_command: string }
---@return neap.Run
function M.new(trainer, directory, o)
  return setmetatable({ trainer = trainer, directory = directory, say = o.say, report = o.report,
    resume_command = o.resume_command }, Run)
end

--- What is written beside the tensors, so that a later run can say what is different.
---@param trainer neap.Trainer
---@return table<string, string>
function M.notes(trainer)
  local kernel = trainer.device:computes() and ffi.string(C.neap_gemm_name()) or "none"
  return {
    config = config_module.dump(trainer.config), device = trainer.device.name, kernel = kernel,
    threads = tostring(C.neap_threads_get()), chunk = tostring(trainer.chunk),
    global_batch = tostring(trainer.config.global_batch), data_hash = trainer.data.hash,
  }
end

function Run:save(path)
  local t, notes = self.trainer, M.notes(self.trainer)
  if self.best_loss then notes.best_loss = string.format("%.17g", self.best_loss) end
  notes.train_loss = string.format("%.17g", t.loss)
  notes.grad_norm = string.format("%.17g", t.grad_norm)
  state.save(path, { model = t.model, optimizer = t.optimizer, notes = notes,
    counts = { step = t.step, position = t.position, seed = t.config.seed } })
end

--- Saves the step's state and keeps the last three.
function Run:save_step()
  local path = self.directory:state_path(self.trainer.step)
  self:save(path)
  self.directory:prune()
  self.saved_step = self.trainer.step
  return path
end

--- Goes on from a state file. Returns sentences on what keeps the bits from being those of a run
--- that never stopped.
---@param path string
---@return string[]
function Run:load(path)
  local t = self.trainer
  local counts, metadata = state.load(path, { model = t.model, optimizer = t.optimizer })
  t.step, t.position = counts.step, counts.position
  t.loss, t.grad_norm = tonumber(metadata.train_loss), tonumber(metadata.grad_norm)
  self.best_loss, self.saved_step = tonumber(metadata.best_loss), counts.step
  self.directory:rewind(counts.step)
  local now, remarks = M.notes(t), {}
  now.seed, metadata.seed = tostring(t.config.seed), string.format("%.0f", counts.seed)
  for _, key in ipairs({ "device", "kernel", "threads", "chunk", "global_batch", "seed",
    "data_hash" }) do
    if now[key] ~= metadata[key] then
      remarks[#remarks + 1] = string.format("%s was %s, is %s: the bits will not be those of a run "
        .. "that never stopped", key, tostring(metadata[key]), now[key])
    end
  end
  return remarks
end

local function validate(self, n_batches, is_last)
  local t = self.trainer
  local loss = t:validate(n_batches)
  if not loss then return end
  self.directory:validation({ step = t.step, val_loss = loss })
  self.say(string.format("step %d/%d val_loss %.4f (%d batches)", t.step, t.config.steps, loss,
    n_batches))
  if is_last then self.report.val_loss = loss end
  if t.device:computes() and loss == loss and loss < (self.best_loss or math.huge) then
    self.best_loss = loss
    self:save(self.directory.path .. "/best.safetensors")
  end
end

-- after a signal: everything is saved, and how to go on is said
local function stop(self, signal)
  if self.saved_step ~= self.trainer.step then self:save_step() end
  self.trainer:fill(self.report)
  self.report.state_hash = self.trainer:state_hash()
  self.say(string.format("stopped by %s after step %d; go on with: %s",
    signal == 2 and "Ctrl-C" or "SIGTERM", self.trainer.step, self.resume_command))
  return 128 + signal
end

--- Trains to the last step. Returns the exit status: 0, or 128 + the signal that asked to stop.
---@return integer
function Run:train()
  local t = self.trainer
  local config, first = t.config, t.step + 1
  local every = math.max(1, math.ceil(config.steps / 40))
  for step = first, config.steps do
    local row = t:train_step()
    self.directory:step(row)
    if step == first or step % every == 0
      or step == config.steps then self.say(t:step_line(row)) end
    local signal = C.neap_signal_pending()
    if signal ~= 0 then return stop(self, signal) end
    if config.eval_every > 0 and step % config.eval_every == 0 and step < config.steps then
      validate(self, config.eval_batches)
      self:save_step()
    end
    t:fill(self.report)
  end
  if self.saved_step ~= t.step then self:save_step() end
  if config.final_eval_batches > 0 and C.neap_signal_pending() == 0 then
    validate(self, config.final_eval_batches, true)
  end
  self.report.state_hash = t:state_hash()
  t:fill(self.report)
  local signal = C.neap_signal_pending()
  return signal ~= 0 and stop(self, signal) or 0
end

--- From here on Ctrl-C and SIGTERM are polled by train.
function M.watch_signals()
  check(C.neap_signal_watch(1))
end

return M
