-- Tensors held for somebody: handles of their own, which no scope ends.
local N = require("neap.ffi")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

--- The handle inside a tensor, or nil when the value is none.
---@param value any
---@return number|nil
function M.id(value)
  if ffi.istype("neap_tensor", value) then return value.id end
  local id = type(value) == "table" and rawget(value, "id")
  return type(id) == "number" and id or nil
end

---@param id number
---@return number[]
function M.dims(id)
  local dims = {}
  for d = 1, check(C.neap_tensor_n_dims(id)) do dims[d] = check(C.neap_tensor_dim(id, d - 1)) end
  return dims
end

---@param value any
---@return boolean  whether it is what hold gives
function M.is_handle(value) return ffi.istype("neap_tensor", value) end

local function free(tensor) C.neap_tensor_free(tensor.id) end

--- Another handle of the same storage, without a copy. The collector frees one that was forgotten.
---@param id number
---@return ffi.cdata* tensor  a neap_tensor
function M.hold(id)
  local tensor = ffi.new("neap_tensor", { check(C.neap_tensor_detach(id)) })
  check(C.neap_scope_leave(tensor.id))
  return ffi.gc(tensor, free)
end

---@param tensor ffi.cdata*  of hold
function M.let_go(tensor)
  ffi.gc(tensor, nil)
  C.neap_tensor_free(tensor.id)
end

return M
