-- Buffers (batch norm's running statistics) under recomputation: a stage that runs again sees what
-- they held when it ran first, and what it writes then is thrown away. So they are updated once a
-- step, under every plan, and no layer has to ask whether it recomputes.
local ffi_neap = require("neap.ffi")
local scope = require("neap.scope")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.StageBuffer
---@field buffer neap.Tensor
---@field first neap.Tensor  what it held when the stage ran first
---@field again neap.Tensor  what a recomputation reads and writes

local tensor_t = ffi.typeof("neap_tensor")
local dims = ffi.new("double[8]")

local function like(id)
  local n = check(C.neap_tensor_n_dims(id))
  for d = 0, n - 1 do dims[d] = C.neap_tensor_dim(id, d) end
  local made = check(C.neap_tensor_new(C.neap_tensor_device(id), C.neap_tensor_dtype(id), n, dims,
    C.NEAP_TAG_BUFFERS))
  check(C.neap_scope_leave(made))
  return ffi.gc(tensor_t(made), scope.finalize)
end

--- Two copies of every buffer of a layer, made once; nil where it has none.
---@param layer neap.Module
---@return neap.StageBuffer[]|nil
function M.of(layer)
  local list = {}
  for i, entry in ipairs(layer:buffers()) do
    list[i] = { buffer = entry.tensor, first = like(entry.tensor.id),
      again = like(entry.tensor.id) }
  end
  return list[1] and list or nil
end

--- Before a stage's first forward.
function M.remember(list)
  for k = 1, #list do check(C.neap_tensor_copy(list[k].first.id, list[k].buffer.id)) end
end

--- Before a recomputation: the buffers become what they were.
function M.enter(list)
  for k = 1, #list do
    local b = list[k]
    check(C.neap_tensor_copy(b.again.id, b.first.id))
    check(C.neap_tensor_swap(b.buffer.id, b.again.id))
  end
end

--- After it, also after an error: they are what they are.
function M.leave(list)
  for k = 1, #list do C.neap_tensor_swap(list[k].buffer.id, list[k].again.id) end
end

--- After a failed step: as before it.
function M.restore(list)
  for k = 1, #list do C.neap_tensor_copy(list[k].buffer.id, list[k].first.id) end
end

--- Frees the copies.
function M.free(list)
  for k = 1, #list do
    list[k].first:free()
    list[k].again:free()
  end
end

return M
