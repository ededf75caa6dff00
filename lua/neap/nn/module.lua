-- What every layer is: parameters, buffers and children in the order they were set, and a forward
-- function. Calling a layer is a scope: what forward makes inside is freed, except what it returns.
local argument = require("neap.argument")
local ffi_neap = require("neap.ffi")
local fail = require("neap.fail")
local scope = require("neap.scope")
local tensor = require("neap.tensor")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

---@class neap.Module
local Module = {}
M.methods = Module

local parameter_count = 0 -- stream of the next parameter's random numbers

--- Starts the random numbers of parameters again: the same seed and the same order of layers give
--- the same parameters.
---@param seed number
function M.manual_seed(seed)
  argument.whole(seed, "manual_seed: the seed", -2 ^ 53)
  M.seed, parameter_count = seed, 0
end
M.seed = 1

local starts = { "normal", "uniform", "fill" }

--- Makes a parameter: a leaf that belongs to no scope.
---@param dims integer[]
---@param init { normal: number }|{ uniform: number }|{ fill: number }
---@return neap.Tensor
function M.parameter(dims, init)
  argument.options(argument.table(init, "parameter: its start",
    "{ normal = }, { uniform = } or { fill = }"), "parameter", starts)
  local kind = init.normal ~= nil and "normal" or init.uniform ~= nil and "uniform" or "fill"
  if kind == "fill" then
    argument.number(init.fill, "parameter: fill")
  else
    argument.number(init[kind], "parameter: " .. kind, 0)
  end
  local t = tensor.empty(dims, { tag = C.NEAP_TAG_PARAMETERS })
  check(C.neap_scope_leave(t.id))
  require("ffi").gc(t, scope.finalize)
  parameter_count = parameter_count + 1
  local stream = -parameter_count -- dropout and data use streams of 0 and more
  if kind == "normal" then
    check(C.neap_tensor_fill_normal(t.id, 0, init.normal, M.seed, stream))
  elseif kind == "uniform" then
    check(C.neap_tensor_fill_uniform(t.id, -init.uniform, init.uniform, M.seed, stream))
  else
    check(C.neap_tensor_fill(t.id, init.fill))
  end
  return t:requires_grad()
end

--- Makes a buffer: a tensor that belongs to the layer but is not trained, full of one value. Set on
--- self it is saved with the state; what forward writes into it counts once a step, whatever the
--- plan.
---@param dims integer[]
---@param value number
---@return neap.Tensor
function M.buffer(dims, value)
  argument.number(value, "buffer: its value")
  local t = tensor.full(dims, value, { tag = C.NEAP_TAG_BUFFERS })
  check(C.neap_scope_leave(t.id))
  return require("ffi").gc(t, scope.finalize)
end

-- a field set for the first time: parameters and layers are listed in that order
local function set_field(self, key, value)
  rawset(self, key, value)
  if tensor.is(value) then
    local is_leaf = C.neap_tensor_tag(value.id) == C.NEAP_TAG_PARAMETERS
    -- a recomputation finds buffers by their tag
    if not is_leaf then check(C.neap_tensor_retag(value.id, C.NEAP_TAG_BUFFERS)) end
    local list = is_leaf and self._parameters or self._buffers
    list[#list + 1] = { name = key, tensor = value }
  elseif type(value) == "table" and type(key) == "string" and value._children then
    self._children[#self._children + 1] = { name = key, module = value }
  end
end

--- A new kind of layer: define init(self, ...) and forward(self, x, ..., ctx) on the result, then
--- call it to make one. Layers and parameters set on self in init are found by themselves.
---@param kind string
function M.class(kind)
  argument.text(kind, "class: its name")
  local class = { kind = kind }
  for name, fn in pairs(Module) do class[name] = fn end
  class.__index = class
  class.__newindex = set_field
  class.__call = Module.call
  class.__tostring = function(self) return self.kind end
  return setmetatable(class, {
    __call = function(_, ...)
      local self = setmetatable({ _parameters = {}, _buffers = {}, _children = {} }, class)
      if class.init then class.init(self, ...) end
      return self
    end,
  })
end

local function place(self)
  local name = rawget(self, "_name")
  return name and string.format("%s (%s)", name, self.kind) or self.kind
end

-- layer.parameters() instead of layer:parameters(), or on something that is no layer
local function check_self(self, name)
  if type(self) ~= "table" or not rawget(self, "_children") then
    fail.usage("layer:%s: call it with a colon on a layer that was made, found %s", name,
      argument.shown(self))
  end
end

local function run(self, ...)
  if type(self.forward) ~= "function" then
    fail.usage("its class has no function forward, found %s", argument.shown(self.forward))
  end
  return self:forward(...)
end

local function finish(self, ok, ...)
  if not ok then error(fail.with_place(place(self), (...)), 0) end
  return ...
end

--- layer(x, ...) runs forward in a scope; an error says in which layer.
function Module:call(...)
  check_self(self, "call")
  return finish(self, pcall(scope.run, run, self, ...))
end

local function walk(self, prefix, field, out, seen)
  for _, entry in ipairs(self[field]) do
    local now = rawget(self, entry.name) -- it may have been set again since, as in tying weights
    if tensor.is(now) and not seen[now.id] then
      seen[now.id] = true
      out[#out + 1] = { name = prefix .. entry.name, tensor = now }
    end
  end
  for _, child in ipairs(self._children) do
    rawset(child.module, "_name", child.name)
    walk(child.module, prefix .. child.name .. ".", field, out, seen)
  end
  return out
end

--- Parameters of the layer and all inside, in order, a shared one once.
---@return { name: string, tensor: neap.Tensor }[]
function Module:parameters()
  check_self(self, "parameters")
  return walk(self, "", "_parameters", {}, {})
end

--- Buffers (tensors that are no parameters), likewise.
function Module:buffers()
  check_self(self, "buffers")
  return walk(self, "", "_buffers", {}, {})
end

---@return number elements
function Module:n_parameters()
  check_self(self, "n_parameters")
  local n = 0
  for _, p in ipairs(self:parameters()) do n = n + p.tensor:numel() end
  return n
end

--- Sets all gradients to zero; allocates them at the first call.
function Module:zero_grad()
  check_self(self, "zero_grad")
  for _, p in ipairs(self:parameters()) do p.tensor:zero_grad() end
end

--- Training mode, where dropout drops; `training` is false in evaluation.
function Module:train(on)
  check_self(self, "train")
  argument.flag(on, "layer:train: its argument")
  rawset(self, "training", on ~= false)
  for _, child in ipairs(self._children) do child.module:train(on) end
  return self
end

function Module:eval()
  check_self(self, "eval")
  return self:train(false)
end

--- Frees parameters and buffers; the layer cannot be used afterwards.
function Module:free()
  check_self(self, "free")
  for _, p in ipairs(self:parameters()) do p.tensor:free() end
  for _, b in ipairs(self:buffers()) do b.tensor:free() end
end

Module.training = true

return M
