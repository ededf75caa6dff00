-- LayerNorm(width): over the last dimension, with gain and bias.
local layernorm = require("neap.op.layernorm")
local module = require("neap.nn.module")

local LayerNorm = module.class("LayerNorm")

---@param width integer
---@param options? { eps?: number }
function LayerNorm:init(width, options)
  self.eps = options and options.eps or 1e-5
  self.gain = module.parameter({ width }, { fill = 1 })
  self.bias = module.parameter({ width }, { fill = 0 })
end

function LayerNorm:forward(x) return layernorm(x, self.gain, self.bias, self.eps) end

return LayerNorm
