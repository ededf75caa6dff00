-- Shared by the optimizers: options, state tensors, the norm of all gradients.
local ffi_neap = require("neap.ffi")
local fail = require("neap.fail")
local scope = require("neap.scope")
local tensor = require("neap.tensor")
local memory = require("neap.memory")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

--- Options over defaults; an unknown one is an error that names the nearest.
function M.options(who, given, defaults)
  local names, out = {}, {}
  for name, value in pairs(defaults) do
    names[#names + 1] = name
    out[name] = value
  end
  table.sort(names)
  for name, value in pairs(given or {}) do
    if defaults[name] == nil then fail.usage("%s: %s", who, fail.unknown("option", name, names)) end
    if type(value) ~= type(defaults[name]) then
      fail.usage("%s: %s must be a %s, found %s", who, name, type(defaults[name]), type(value))
    end
    out[name] = value
  end
  return out
end

local copy_dims = ffi.new("double[8]")

--- Zeros of a parameter's shape on its device, tag optimizer, in no scope.
function M.tensor_like(param)
  local dims = param:dims()
  for i = 1, #dims do copy_dims[i - 1] = dims[i] end
  local device = check(C.neap_tensor_device(param.id))
  local id = C.neap_tensor_new(device, C.NEAP_F32, #dims, copy_dims, C.NEAP_TAG_OPTIMIZER)
  if id < 0 and memory.make_room(id) then
    id = C.neap_tensor_new(device, C.NEAP_F32, #dims, copy_dims, C.NEAP_TAG_OPTIMIZER)
  end
  local t = ffi.gc(tensor.wrap(id), scope.finalize)
  check(C.neap_scope_leave(t.id))
  check(C.neap_tensor_fill(t.id, 0))
  return t
end

---@class neap.GradNorm
local GradNorm = {}
GradNorm.__index = GradNorm

--- Measures the norm of all gradients of these parameters; buffers are made once.
---@param parameters { name: string, tensor: neap.Tensor }[]
function M.grad_norm(parameters)
  local n = #parameters
  local self = setmetatable({ n = n, ids = ffi.new("double[?]", math.max(n, 1)),
    out = ffi.new("double[1]") }, GradNorm)
  for i, p in ipairs(parameters) do self.ids[i - 1] = p.tensor:grad().id end
  return self
end

--- Sets all these gradients to zero; no table is made.
function GradNorm:zero()
  for i = 0, self.n - 1 do check(C.neap_tensor_fill(self.ids[i], 0)) end
end

---@return number
function GradNorm:measure()
  local code = C.neap_global_norm(self.n, self.ids, self.out)
  if memory.make_room(code) then code = C.neap_global_norm(self.n, self.ids, self.out) end
  check(code)
  return self.out[0]
end

return M
