-- SGD with momentum: v = momentum v + g + decay p; p -= lr v. Decay on matrices only.
local argument = require("neap.argument")
local ffi_neap = require("neap.ffi")
local state = require("neap.optim.state")
local C, check = ffi_neap.C, ffi_neap.check

---@class neap.SGD
---@field steps integer
local SGD = {}
SGD.__index = SGD

local defaults = { momentum = 0, weight_decay = 0 }

---@param parameters { name: string, tensor: neap.Tensor }[]
---@param options? { momentum?: number, weight_decay?: number }
---@return neap.SGD
local function new(parameters, options)
  local o = state.options("SGD", options, defaults)
  state.parameters("SGD", parameters)
  local self = setmetatable({ steps = 0, options = o, entries = {} }, SGD)
  for i, p in ipairs(parameters) do
    self.entries[i] = {
      name = p.name,
      param = p.tensor,
      grad = p.tensor:grad(),
      velocity = o.momentum ~= 0 and state.tensor_like(p.tensor) or nil,
      decay = #p.tensor:dims() >= 2 and o.weight_decay or 0,
    }
  end
  return self
end

--- One update of all parameters.
---@param lr number
---@param grad_scale? number
function SGD:step(lr, grad_scale)
  argument.self(self, SGD, "SGD:step")
  state.rates("SGD", lr, grad_scale)
  for i = 1, #self.entries do
    local e = self.entries[i]
    check(C.neap_sgd(e.param.id, e.grad.id, e.velocity and e.velocity.id or 0, lr,
      self.options.momentum, e.decay, grad_scale or 1))
  end
  self.steps = self.steps + 1
end

--- State tensors by name, in a fixed order.
function SGD:tensors()
  argument.self(self, SGD, "SGD:tensors")
  local out = {}
  for _, e in ipairs(self.entries) do
    if e.velocity then out[#out + 1] = { name = e.name .. ".velocity", tensor = e.velocity } end
  end
  return out
end

function SGD:free()
  argument.self(self, SGD, "SGD:free")
  for _, t in ipairs(self:tensors()) do t.tensor:free() end
end

return new
