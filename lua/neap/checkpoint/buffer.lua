-- Activations held now, by layer, against a capacity that is told, not enforced.
local N = require("neap.ffi")
local argument = require("neap.argument")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

---@class neap.ActivationBuffer
local Buffer = {}
Buffer.__index = Buffer

local pointer = ffi.typeof("neap_buffer *[1]")

---@param capacity number|ffi.cdata*  bytes
---@return neap.ActivationBuffer
function M.new(capacity)
  local out = pointer()
  check(C.neap_buffer_new(whole.u64(capacity, "activation_buffer: the capacity"), out))
  return setmetatable({ c = ffi.gc(out[0], C.neap_buffer_free) }, Buffer)
end

--- Holds a layer's activation; "duplicate" when it is held already. Beyond the capacity the
--- pressure rises above 1.
---@param layer number|ffi.cdata*
---@param bytes number|ffi.cdata*
function Buffer:push(layer, bytes)
  argument.self(self, Buffer, "buffer:push")
  check(C.neap_buffer_push(self.c, whole.u64(layer, "buffer:push: layer"),
    whole.u64(bytes, "buffer:push: bytes")))
end

--- Gives a layer's activation up; "not found" when it is not held.
---@param layer number|ffi.cdata*
---@return number bytes  that it had
function Buffer:evict(layer)
  argument.self(self, Buffer, "buffer:evict")
  local bytes = ffi.new("uint64_t[1]")
  check(C.neap_buffer_evict(self.c, whole.u64(layer, "buffer:evict: layer"), bytes))
  return whole.number(bytes[0])
end

---@param layer number|ffi.cdata*
---@return boolean
function Buffer:holds(layer)
  argument.self(self, Buffer, "buffer:holds")
  return C.neap_buffer_holds(self.c, whole.u64(layer, "buffer:holds: layer")) == 1
end

---@return number bytes  held now
function Buffer:bytes()
  argument.self(self, Buffer, "buffer:bytes")
  return whole.number(C.neap_buffer_bytes(self.c))
end

---@return number  activations held now
function Buffer:count()
  argument.self(self, Buffer, "buffer:count")
  return whole.number(C.neap_buffer_count(self.c))
end

--- Bytes held / capacity, above 1 when over-full. Of no capacity: 1 with nothing in it, else
--- infinite.
---@return number
function Buffer:pressure()
  argument.self(self, Buffer, "buffer:pressure")
  return C.neap_buffer_pressure(self.c)
end

return M
