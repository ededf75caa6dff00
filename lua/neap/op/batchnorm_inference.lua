-- batchnorm_inference(x, gain, bias, mean, variance, eps): (x - mean) / sqrt(variance + eps) * gain
-- + bias with statistics that are given, all (C), for x (N, C, ..). Saves x and the mean only where
-- the gain or the variance needs a gradient.
local apply = require("neap.op.apply")
local run = apply.bind5("batchnorm_inference")

return function(x, gain, bias, mean, variance, eps)
  if eps ~= nil and type(eps) ~= "number" then apply.number("batchnorm_inference", "eps", eps) end
  return run(x, gain, bias, mean, variance, eps or 1e-5)
end
