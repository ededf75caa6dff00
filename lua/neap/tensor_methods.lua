-- What a tensor handle can do: reading, in-place writes, gradients.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local memory = require("neap.memory")
local tensor = require("neap.tensor")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.Tensor
local Tensor = tensor.methods
local tensor_t = ffi.typeof("neap_tensor")
local istype = ffi.istype

local DTYPE_NAMES = { [C.NEAP_F32] = "f32", [C.NEAP_BF16] = "bf16", [C.NEAP_I32] = "i32" }

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
  return tensor.wrap(C.neap_tensor_detach(self.id))
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
  if type(value) ~= "number" then tensor.no_number("fill", value) end
  check(C.neap_tensor_fill(self.id, value))
  return self
end

--- Copies another tensor's contents into this one, in place.
function Tensor:copy_from(from)
  if not istype(tensor_t, self) then no_self("copy_from", self) end
  check(C.neap_tensor_copy(self.id, tensor.id_of(from, "copy_from")))
  return self
end

--- Moves this tensor towards another one, in place: self + weight (from - self). For running means.
---@param weight number  0: nothing moves, 1: the other's contents
function Tensor:lerp(from, weight)
  if not istype(tensor_t, self) then no_self("lerp", self) end
  local id = tensor.id_of(from, "lerp")
  if type(weight) ~= "number" then tensor.no_number("lerp", weight) end
  check(C.neap_tensor_lerp(self.id, id, weight))
  return self
end

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
