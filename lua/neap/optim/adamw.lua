-- AdamW (Loshchilov & Hutter 2019): decoupled weight decay, on matrices only.
local argument = require("neap.argument")
local ffi_neap = require("neap.ffi")
local fail = require("neap.fail")
local state = require("neap.optim.state")
local C, check = ffi_neap.C, ffi_neap.check

---@class neap.AdamW
---@field steps integer  updates done
local AdamW = {}
AdamW.__index = AdamW

local defaults = { betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0.01 }

--- Its two moments a parameter are allocated here (tag optimizer).
---@param parameters { name: string, tensor: neap.Tensor }[]
---@param options? { betas?: number[], eps?: number, weight_decay?: number }
---@return neap.AdamW
local function new(parameters, options)
  local o = state.options("AdamW", options, defaults)
  argument.positive(o.eps, "AdamW: eps")
  for i = 1, 2 do
    local beta = o.betas[i]
    if type(beta) ~= "number" or not (beta >= 0 and beta < 1) or #o.betas ~= 2 then
      fail.usage("AdamW: betas must be two numbers of at least 0 and below 1")
    end
  end
  state.parameters("AdamW", parameters)
  local self = setmetatable({ steps = 0, options = o, entries = {} }, AdamW)
  for i, p in ipairs(parameters) do
    self.entries[i] = {
      name = p.name,
      param = p.tensor,
      grad = p.tensor:grad(),
      m = state.tensor_like(p.tensor),
      v = state.tensor_like(p.tensor),
      decay = #p.tensor:dims() >= 2 and o.weight_decay or 0,
    }
  end
  return self
end

--- One update of all parameters.
---@param lr number
---@param grad_scale? number  gradients are multiplied by it first (clipping)
function AdamW:step(lr, grad_scale)
  argument.self(self, AdamW, "AdamW:step")
  state.rates("AdamW", lr, grad_scale)
  local o = self.options
  for i = 1, #self.entries do
    local e = self.entries[i]
    check(C.neap_adamw(e.param.id, e.grad.id, e.m.id, e.v.id, lr, o.betas[1], o.betas[2], o.eps,
      e.decay, self.steps + 1, grad_scale or 1))
  end
  self.steps = self.steps + 1
end

--- State tensors by name, in a fixed order.
function AdamW:tensors()
  argument.self(self, AdamW, "AdamW:tensors")
  local out = {}
  for _, e in ipairs(self.entries) do
    out[#out + 1] = { name = e.name .. ".m", tensor = e.m }
    out[#out + 1] = { name = e.name .. ".v", tensor = e.v }
  end
  return out
end

function AdamW:free()
  argument.self(self, AdamW, "AdamW:free")
  for _, t in ipairs(self:tensors()) do t.tensor:free() end
end

return new
