-- Shared by the optimizers: options, state tensors, the norm of all gradients.
local argument = require("neap.argument")
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
  for name, value in pairs(argument.options(given, who, names)) do
    if type(value) ~= type(defaults[name]) then
      fail.usage("%s: %s must be a %s, found %s", who, name, type(defaults[name]), type(value))
    end
    if type(value) == "number" then argument.number(value, who .. ": " .. name, 0) end
    out[name] = value
  end
  return out
end

--- A list of parameters with their names, as model:parameters() gives it.
function M.parameters(who, list)
  if type(list) ~= "table" or (#list == 0 and next(list) ~= nil) then
    fail.usage("%s: expected a list of parameters (model:parameters()), found %s", who,
      argument.shown(list))
  end
  for i, p in ipairs(list) do
    local t = type(p) == "table" and p.tensor
    if not tensor.is(t) or type(p.name) ~= "string" then
      fail.usage("%s: parameter %d must be { name = , tensor = }, found %s", who, i,
        type(p) == "table" and "other fields" or argument.shown(p))
    end
    if t:dtype() ~= "f32" then
      fail.raise("dtype", string.format("%s: '%s' is %s, expected f32", who, p.name, t:dtype()))
    end
  end
  return list
end

local copy_dims = ffi.new("double[8]")

--- The two numbers of a step.
function M.rates(who, lr, grad_scale)
  local is_rate = type(lr) == "number" and lr >= 0 and lr < math.huge
  if not is_rate then
    fail.raise("invalid argument", string.format("%s: the learning rate must be a finite number "
      .. "of at least 0, found %s", who, argument.shown(lr)))
  end
  if grad_scale == nil then return end
  local is_scale = type(grad_scale) == "number" and grad_scale > -math.huge
    and grad_scale < math.huge
  if not is_scale then
    fail.raise("invalid argument", string.format("%s: grad_scale must be a finite number, found "
      .. "%s", who, argument.shown(grad_scale)))
  end
end

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
  M.parameters("grad_norm", parameters)
  local n = #parameters
  local self = setmetatable({ n = n, ids = ffi.new("double[?]", math.max(n, 1)),
    out = ffi.new("double[1]") }, GradNorm)
  for i, p in ipairs(parameters) do self.ids[i - 1] = p.tensor:grad().id end
  return self
end

--- Sets all these gradients to zero; no table is made.
function GradNorm:zero()
  argument.self(self, GradNorm, "grad_norm:zero")
  for i = 0, self.n - 1 do check(C.neap_tensor_fill(self.ids[i], 0)) end
end

---@return number
function GradNorm:measure()
  argument.self(self, GradNorm, "grad_norm:measure")
  local code = C.neap_global_norm(self.n, self.ids, self.out)
  if memory.make_room(code) then code = C.neap_global_norm(self.n, self.ids, self.out) end
  check(code)
  return self.out[0]
end

return M
