-- Tensors: handles of device memory with methods. Row-major; dimensions count from 1.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local device_module = require("neap.device")
local fail = require("neap.fail")
local memory = require("neap.memory")
local scope = require("neap.scope")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.Tensor : ffi.cdata*
---@field id number
local Tensor = {}
local tensor_t = ffi.typeof("neap_tensor")
local istype = ffi.istype

local DTYPES = { f32 = C.NEAP_F32, bf16 = C.NEAP_BF16, i32 = C.NEAP_I32 }
local DTYPE_NAMES = { [C.NEAP_F32] = "f32", [C.NEAP_BF16] = "bf16", [C.NEAP_I32] = "i32" }
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

local function no_value(who, value)
  fail.raise("invalid argument", string.format("%s: expected a number, found %s", who,
    argument.shown(value)))
end

--- Makes a tensor full of one value.
function M.full(dims, value, options)
  if type(value) ~= "number" then no_value("full", value) end
  local tensor = M.empty(dims, options)
  local code = C.neap_tensor_fill(tensor.id, value)
  if code < 0 then
    C.neap_tensor_free(tensor.id)
    check(code)
  end
  return tensor
end

function M.zeros(dims, options) return M.full(dims, 0, options) end

-- x.table() instead of x:table(), or something that is no tensor
local function no_self(name, value)
  fail.raise("invalid argument", string.format("%s: expected a tensor (call it with a colon), "
    .. "found %s", name, argument.shown(value)))
end

local function host_copy(self, ctype)
  if not istype(tensor_t, self) then no_self("tensor", self) end
  if self:dtype() == "bf16" then
    fail.raise("dtype", "tensor: the contents of bf16 cannot be read from Lua")
  end
  local n = tonumber(check(C.neap_tensor_n_elements(self.id)))
  local host = ffi.new(ctype or (self:dtype() == "i32" and "int32_t[?]" or "float[?]"),
    math.max(n, 1))
  check(C.neap_tensor_read(self.id, host, n * 4))
  return host, n
end

--- The contents as a flat list of numbers.
---@return number[]
function Tensor:table()
  local host, n = host_copy(self)
  local out = {}
  for i = 1, n do out[i] = host[i - 1] end
  return out
end

--- The contents as 32-bit patterns, to compare by bits.
---@return integer[]
function Tensor:bits()
  local host, n = host_copy(self, "uint32_t[?]")
  local out = {}
  for i = 1, n do out[i] = host[i - 1] end
  return out
end

local one_f32, one_i32 = ffi.new("float[1]"), ffi.new("int32_t[1]")

--- The only element of a tensor.
---@return number
function Tensor:item()
  if not istype(tensor_t, self) then no_self("item", self) end
  local n = check(C.neap_tensor_n_elements(self.id))
  if n ~= 1 then
    fail.raise("shape mismatch", string.format("item: expected one element, found %d", n))
  end
  if C.neap_tensor_dtype(self.id) == C.NEAP_BF16 then
    fail.raise("dtype", "item: the contents of bf16 cannot be read from Lua")
  end
  local host = C.neap_tensor_dtype(self.id) == C.NEAP_I32 and one_i32 or one_f32
  check(C.neap_tensor_read(self.id, host, 4))
  return host[0]
end

---@return integer[]
function Tensor:dims()
  if not istype(tensor_t, self) then no_self("dims", self) end
  local out = {}
  for i = 1, check(C.neap_tensor_n_dims(self.id)) do out[i] = C.neap_tensor_dim(self.id, i - 1) end
  return out
end

function Tensor:numel()
  if not istype(tensor_t, self) then no_self("numel", self) end
  return check(C.neap_tensor_n_elements(self.id))
end

function Tensor:bytes()
  if not istype(tensor_t, self) then no_self("bytes", self) end
  return check(C.neap_tensor_bytes(self.id))
end

function Tensor:dtype()
  if not istype(tensor_t, self) then no_self("dtype", self) end
  return DTYPE_NAMES[check(C.neap_tensor_dtype(self.id))]
end

function Tensor:version()
  if not istype(tensor_t, self) then no_self("version", self) end
  return check(C.neap_tensor_version(self.id))
end

function Tensor:alive()
  if not istype(tensor_t, self) then no_self("alive", self) end
  return C.neap_tensor_alive(self.id) == 1
end

--- Frees the tensor; harmless when it was freed before.
function Tensor:free()
  if not istype(tensor_t, self) then no_self("free", self) end
  C.neap_tensor_free(self.id)
end

--- Another handle of the same memory, without history.
function Tensor:detach()
  if not istype(tensor_t, self) then no_self("detach", self) end
  return wrap(C.neap_tensor_detach(self.id))
end

--- Makes the tensor a leaf whose gradient is collected (or no longer).
function Tensor:requires_grad(on)
  if not istype(tensor_t, self) then no_self("requires_grad", self) end
  if on ~= nil and type(on) ~= "boolean" then
    check(C.neap_tensor_dtype(self.id)) -- a stale handle is the worse mistake
    argument.flag(on, "requires_grad: its argument")
  end
  check(C.neap_tensor_requires_grad(self.id, on == false and 0 or 1))
  return self
end

local function grad_id(id)
  local grad = C.neap_tensor_grad(id)
  if grad < 0 and memory.make_room(grad) then grad = C.neap_tensor_grad(id) end
  return check(grad)
end

--- The gradient of a leaf; owned by it.
function Tensor:grad()
  if not istype(tensor_t, self) then no_self("grad", self) end
  return tensor_t(grad_id(self.id))
end

function Tensor:zero_grad()
  if not istype(tensor_t, self) then no_self("zero_grad", self) end
  check(C.neap_tensor_fill(grad_id(self.id), 0))
end

--- Writes one value everywhere, in place.
function Tensor:fill(value)
  if not istype(tensor_t, self) then no_self("fill", self) end
  if type(value) ~= "number" then no_value("fill", value) end
  check(C.neap_tensor_fill(self.id, value))
  return self
end

--- Copies another tensor's contents into this one, in place.
function Tensor:copy_from(from)
  if not istype(tensor_t, self) then no_self("copy_from", self) end
  check(C.neap_tensor_copy(self.id, M.id_of(from, "copy_from")))
  return self
end

M.methods = Tensor -- op and autograd modules add theirs before the first use

--- Gives the handles their methods. Called once by neap itself, when all modules have added theirs.
function M.seal(metamethods)
  local meta = { __index = Tensor }
  meta.__tostring = function(self)
    if C.neap_tensor_alive(self.id) == 0 then return "tensor (freed)" end
    return string.format("tensor %s (%s)", self:dtype(), table.concat(self:dims(), ", "))
  end
  for name, fn in pairs(metamethods) do meta[name] = fn end
  ffi.metatype(tensor_t, meta)
end

return M
