-- Tensors: handles of device memory, and how to make them. Row-major; dimensions count from 1. What
-- a handle can do is in tensor_methods.lua.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local device_module = require("neap.device")
local fail = require("neap.fail")
local memory = require("neap.memory")
local scope = require("neap.scope")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

---@class neap.Tensor : ffi.cdata*
---@field id number

local M = {
  methods = {}, -- of the handles; tensor_methods.lua and autograd.lua add theirs before seal
}

local tensor_t = ffi.typeof("neap_tensor")
local istype = ffi.istype

local DTYPES = { f32 = C.NEAP_F32, bf16 = C.NEAP_BF16, i32 = C.NEAP_I32 }
local MAX_DIMS = C.NEAP_MAX_DIMS
local dims_buffer = ffi.new("double[8]")

--- A handle for an id of the library; raises when the id is an error.
---@param id number
---@return neap.Tensor
function M.wrap(id)
  if id < 0 then check(id) end
  if scope.depth == 0 then return ffi.gc(tensor_t(id), scope.finalize) end
  return tensor_t(id)
end
local wrap = M.wrap

--- Whether a value is a tensor handle (alive or not).
function M.is(value)
  return istype(tensor_t, value)
end

--- The id of a tensor, or an error that says who wanted it.
function M.id_of(value, who)
  if not istype(tensor_t, value) then
    fail.raise("invalid argument", string.format("%s: expected a tensor, found %s", who,
      type(value)))
  end
  return value.id
end

--- Fills the shared buffer with dimensions given as a list; returns their number.
function M.dims_to_buffer(dims, who)
  if type(dims) ~= "table" then
    fail.raise("shape mismatch", string.format("%s: expected a list of dimensions, found %s", who,
      type(dims)))
  end
  local n = #dims
  if n > MAX_DIMS then
    fail.raise("shape mismatch", string.format("%s: expected at most %d dimensions, found %d", who,
      MAX_DIMS, n))
  end
  for i = 1, n do
    local d = dims[i]
    if type(d) ~= "number" then
      fail.raise("shape mismatch", string.format("%s: dimension %d is %s, expected a whole number",
        who, i, argument.shown(d)))
    end
    dims_buffer[i - 1] = d
  end
  return n, dims_buffer
end

local function dtype_of(name)
  if name == nil then return C.NEAP_F32 end
  local dtype = type(name) == "string" and DTYPES[name]
  if not dtype then
    fail.usage("tensor: %s", fail.unknown("dtype", argument.word(name), { "f32", "bf16", "i32" }))
  end
  return dtype
end

local option_names = { "dtype", "requires_grad", "device", "tag" }

--- Makes a tensor with undefined contents.
---@param dims integer[]
---@param options? { dtype?: string, requires_grad?: boolean, device?: neap.Device, tag?: integer }
---@return neap.Tensor
function M.empty(dims, options)
  options = argument.options(options, "tensor", option_names)
  local n, buffer = M.dims_to_buffer(dims, "tensor")
  local device = options.device
  if device == nil then device = device_module.current() end
  device_module.checked(device, "tensor: device")
  local dtype, tag = dtype_of(options.dtype), -1
  local is_leaf = argument.flag(options.requires_grad, "tensor: requires_grad", false)
  if options.tag ~= nil then
    tag = argument.whole(options.tag, "tensor: tag", 0, 2 ^ 31 - 1)
  end
  local id = C.neap_tensor_new(device.id, dtype, n, buffer, tag)
  if id < 0 and memory.make_room(id) then
    M.dims_to_buffer(dims, "tensor")
    id = C.neap_tensor_new(device.id, dtype, n, buffer, tag)
  end
  local tensor = wrap(id)
  if is_leaf then
    local code = C.neap_tensor_requires_grad(tensor.id, 1)
    if code < 0 then
      C.neap_tensor_free(tensor.id)
      check(code)
    end
  end
  return tensor
end

--- An f32 tensor with undefined contents on the device of that id.
function M.on(device, dims)
  local n, buffer = M.dims_to_buffer(dims, "tensor")
  return wrap(C.neap_tensor_new(device, C.NEAP_F32, n, buffer, -1))
end

--- Makes a tensor from a flat list of numbers (row-major); dims default to its length.
---@param numbers number[]
---@param dims? integer[]
---@return neap.Tensor
function M.from(numbers, dims, options)
  if type(numbers) ~= "table" then
    fail.raise("invalid argument", "tensor: expected a list of numbers, found " .. type(numbers))
  end
  if dims == nil then dims = { #numbers } end
  local tensor = M.empty(dims, options)
  local n = tensor:numel()
  if n ~= #numbers then
    tensor:free()
    fail.raise("shape mismatch", string.format("tensor: %d numbers for a shape of %d elements",
      #numbers, n))
  end
  if tensor:dtype() == "bf16" then
    tensor:free()
    fail.raise("dtype", "tensor: bf16 has no numbers on the Lua side; make it f32 or i32")
  end
  local is_int = tensor:dtype() == "i32"
  local host = ffi.new(is_int and "int32_t[?]" or "float[?]", math.max(n, 1))
  for i = 1, n do
    local x = numbers[i]
    if type(x) ~= "number" or (is_int
      and not (x % 1 == 0 and x >= -2147483648 and x < 2147483648)) then
      tensor:free()
      fail.raise("invalid argument", string.format("tensor: element %d is %s, expected %s", i,
        argument.word(x), is_int and "a whole number of 32 bits" or "a number"))
    end
    host[i - 1] = x
  end
  check(C.neap_tensor_write(tensor.id, host, n * 4))
  return tensor
end

--- Raises: a number was expected.
function M.no_number(who, value)
  fail.raise("invalid argument", string.format("%s: expected a number, found %s", who,
    argument.shown(value)))
end

--- Makes a tensor full of one value.
function M.full(dims, value, options)
  if type(value) ~= "number" then M.no_number("full", value) end
  local tensor = M.empty(dims, options)
  local code = C.neap_tensor_fill(tensor.id, value)
  if code < 0 then
    C.neap_tensor_free(tensor.id)
    check(code)
  end
  return tensor
end

function M.zeros(dims, options) return M.full(dims, 0, options) end

return M
