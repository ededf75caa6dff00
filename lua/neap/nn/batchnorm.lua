-- BatchNorm(channels): over the batch, for (N, C) to (N, C, .., .., ..). In training the batch's
-- own statistics, which the running ones follow; in evaluation the running ones.
local add = require("neap.op.add")
local argument = require("neap.argument")
local batchnorm = require("neap.op.batchnorm")
local batchnorm_inference = require("neap.op.batchnorm_inference")
local fail = require("neap.fail")
local module = require("neap.nn.module")
local scale = require("neap.op.scale")
local tensor = require("neap.tensor")

local BatchNorm = module.class("BatchNorm")

local option_names = { "eps", "momentum" }
local ONE = { 1 }

---@param channels integer
---@param options? { eps?: number, momentum?: number }  momentum: how far the running statistics
---  move towards the batch's, 0.1
function BatchNorm:init(channels, options)
  options = argument.options(options, "BatchNorm", option_names)
  argument.whole(channels, "BatchNorm: the number of channels", 1)
  local eps, momentum = options.eps, options.momentum
  self.channels = channels
  self.eps = eps == nil and 1e-5 or argument.positive(eps, "BatchNorm: eps")
  if momentum == nil then momentum = 0.1 end
  if type(momentum) ~= "number" or not (momentum >= 0 and momentum <= 1) then
    fail.usage("BatchNorm: momentum must be a number, 0 to 1, found %s", argument.shown(momentum))
  end
  self.momentum = momentum
  self.gain = module.parameter({ channels }, { fill = 1 })
  self.bias = module.parameter({ channels }, { fill = 0 })
  self.running_mean = module.buffer({ channels }, 0)
  self.running_variance = module.buffer({ channels }, 1)
  self.batches_tracked = module.buffer(ONE, 0)
end

function BatchNorm:forward(x)
  if not self.training then
    return batchnorm_inference(x, self.gain, self.bias, self.running_mean, self.running_variance,
      self.eps)
  end
  local y, mean, variance = batchnorm(x, self.gain, self.bias, self.eps)
  local n = y:numel() / self.channels
  if n < 2 then
    fail.raise("shape mismatch", string.format("x is (%s): in training a channel needs 2 or more "
      .. "numbers", table.concat(x:dims(), ", ")))
  end
  self.running_mean:lerp(mean, self.momentum)
  -- of the population, as the batch is a sample of it
  self.running_variance:lerp(scale(variance:detach(), n / (n - 1)), self.momentum)
  self.batches_tracked:copy_from(add(self.batches_tracked, tensor.full(ONE, 1)))
  return y
end

return BatchNorm
