-- RMSNorm(width): over the last dimension, with gain.
local argument = require("neap.argument")
local module = require("neap.nn.module")
local rmsnorm = require("neap.op.rmsnorm")

local RMSNorm = module.class("RMSNorm")

local option_names = { "eps" }

---@param width integer
---@param options? { eps?: number }
function RMSNorm:init(width, options)
  local eps = argument.options(options, "RMSNorm", option_names).eps
  argument.whole(width, "RMSNorm: the width", 1)
  self.eps = eps == nil and 1e-5 or argument.positive(eps, "RMSNorm: eps")
  self.gain = module.parameter({ width }, { fill = 1 })
end

function RMSNorm:forward(x) return rmsnorm(x, self.gain, self.eps) end

return RMSNorm
