-- A training's state in host memory, to go back to: parameters, buffers, optimizer, random numbers,
-- position in the data, counters.
local ffi_neap = require("neap.ffi")
local state = require("neap.state")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

local FIELDS = { "step", "position", "loss", "grad_norm", "measured_peak", "activation_peak" }
local BYTES = { f32 = 4, i32 = 4, bf16 = 2 }

local function copy_out(t, computes)
  local n = t:numel() * BYTES[t:dtype()]
  local host = computes and ffi.new("uint8_t[?]", math.max(n, 1)) or nil
  if host then check(C.neap_tensor_read(t.id, host, n)) end
  return { tensor = t, host = host, n = n }
end

--- Copies tensors to the host (on null there is nothing to copy).
---@param entries { tensor: neap.Tensor }[]
---@param computes boolean
---@return table copies
function M.copy(entries, computes)
  local copies = {}
  for i, entry in ipairs(entries) do copies[i] = copy_out(entry.tensor, computes) end
  return copies
end

--- Puts the copies back.
function M.put_back(copies)
  for _, c in ipairs(copies) do
    if c.host then check(C.neap_tensor_write(c.tensor.id, c.host, c.n)) end
  end
end

--- What a trainer is now.
---@param trainer neap.Trainer
---@return table kept
function M.take(trainer)
  local kept = { fields = {}, n_seconds = #trainer.seconds, rng = ffi.new("neap_rng_state"),
    optimizer_steps = trainer.optimizer.steps }
  for _, name in ipairs(FIELDS) do kept.fields[name] = trainer[name] end
  check(C.neap_rng_get(kept.rng))
  kept.copies = M.copy(state.entries(trainer.model, trainer.optimizer), trainer.device:computes())
  return kept
end

--- Makes the trainer what it was when `take` looked.
---@param trainer neap.Trainer
---@param kept table
function M.restore(trainer, kept)
  M.put_back(kept.copies)
  check(C.neap_rng_set(kept.rng))
  trainer.optimizer.steps = kept.optimizer_steps
  for _, name in ipairs(FIELDS) do trainer[name] = kept.fields[name] end
  for i = #trainer.seconds, kept.n_seconds + 1, -1 do trainer.seconds[i] = nil end
end

return M
