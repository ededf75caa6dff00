-- RMSNorm(width): over the last dimension, with gain.
local module = require("neap.nn.module")
local rmsnorm = require("neap.op.rmsnorm")

local RMSNorm = module.class("RMSNorm")

---@param width integer
---@param options? { eps?: number }
function RMSNorm:init(width, options)
  self.eps = options and options.eps or 1e-5
  self.gain = module.parameter({ width }, { fill = 1 })
end

function RMSNorm:forward(x) return rmsnorm(x, self.gain, self.eps) end

return RMSNorm
