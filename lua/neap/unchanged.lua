-- Runs a forward (or a whole micro-batch) and puts back what it changed: randomness, tags, tapes,
-- scopes, buffers and gradients, bit for bit.
local N = require("neap.ffi")
local autograd = require("neap.autograd")
local scope = require("neap.scope")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

local ELEMENT_BYTES = { [C.NEAP_F32] = 4, [C.NEAP_BF16] = 2, [C.NEAP_I32] = 4 }

local function list(tag)
  local n = check(C.neap_tensor_list(tag, 0, nil))
  local ids = ffi.new("double[?]", math.max(n, 1))
  return ids, check(C.neap_tensor_list(tag, n, ids))
end

-- host copies of all tensors of a tag
local function copy(tag, copies)
  local ids, n = list(tag)
  for i = 0, n - 1 do
    local id = ids[i]
    local bytes = check(C.neap_tensor_n_elements(id)) * ELEMENT_BYTES[C.neap_tensor_dtype(id)]
    local data = ffi.new("uint8_t[?]", math.max(bytes, 1))
    check(C.neap_tensor_read(id, data, bytes))
    copies[id] = { data = data, bytes = bytes, version = C.neap_tensor_version(id) }
  end
end

local function put_back(copies)
  for id, one in pairs(copies) do
    if C.neap_tensor_alive(id) == 1 and C.neap_tensor_version(id) ~= one.version then
      check(C.neap_tensor_write(id, one.data, one.bytes))
    end
  end
end

-- gradients that appeared meanwhile go: their leaves make new ones, zeros, when somebody asks
local function free_new(copies)
  local ids, n = list(C.NEAP_TAG_GRADIENTS)
  for i = 0, n - 1 do
    if not copies[ids[i]] then C.neap_tensor_free(ids[i]) end
  end
end

--- Calls fn(...) with a tape and a scope of its own and then, whether it failed or not, look(ok,
--- result) while the result is still alive; then everything made inside is freed and everything
--- else is as before.
---@param look fun(ok: boolean, result: any): any
---@param fn function
---@return any  what look returned; errors of look are raised when all is put back
function M.run(look, fn, ...)
  local rng, buffers, gradients = ffi.new("neap_rng_state"), {}, nil
  check(C.neap_rng_get(rng))
  copy(C.NEAP_TAG_BUFFERS, buffers)
  local depth = scope.begin()
  local tape = C.neap_tape_new()
  if tape < 0 then
    scope.stop(depth)
    check(tape)
  end
  local before_tape, before_hook = check(C.neap_tape_select(tape)), autograd.before_walk
  local tag = check(C.neap_tag_select(C.NEAP_TAG_ACTIVATIONS))
  local recomputing = check(C.neap_recomputing_set(0))
  autograd.before_walk = function()
    if gradients then return end
    gradients = {}
    copy(C.NEAP_TAG_GRADIENTS, gradients)
  end
  local looked, value = pcall(look, pcall(fn, ...))
  autograd.before_walk = before_hook
  C.neap_recomputing_set(recomputing)
  C.neap_tag_select(tag)
  C.neap_tape_select(before_tape)
  C.neap_tape_free(tape)
  scope.stop(depth)
  put_back(buffers)
  if gradients then
    put_back(gradients)
    free_new(gradients)
  end
  check(C.neap_rng_set(rng))
  if not looked then error(value, 0) end
  return value
end

return M
