-- LayerNorm(width): over the last dimension, with gain and bias.
local argument = require("neap.argument")
local layernorm = require("neap.op.layernorm")
local module = require("neap.nn.module")

local LayerNorm = module.class("LayerNorm")

local option_names = { "eps" }

---@param width integer
---@param options? { eps?: number }
function LayerNorm:init(width, options)
  local eps = argument.options(options, "LayerNorm", option_names).eps
  argument.whole(width, "LayerNorm: the width", 1)
  self.eps = eps == nil and 1e-5 or argument.positive(eps, "LayerNorm: eps")
  self.gain = module.parameter({ width }, { fill = 1 })
  self.bias = module.parameter({ width }, { fill = 0 })
end

function LayerNorm:forward(x) return layernorm(x, self.gain, self.bias, self.eps) end

return LayerNorm
