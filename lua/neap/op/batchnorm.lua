-- batchnorm(x, gain, bias, eps): each channel of x (N, C, ..) to mean 0 and variance 1 over the
-- batch, times gain (C), plus bias (C). Returns y, and the mean (C) and the variance (C, divided by
-- the count) that were used; gradients flow through all three. Saves x, gain, mean and variance.
local apply = require("neap.op.apply")
local run, output = apply.bind3("batchnorm"), apply.output

return function(x, gain, bias, eps)
  if eps ~= nil and type(eps) ~= "number" then apply.number("batchnorm", "eps", eps) end
  local y = run(x, gain, bias, eps or 1e-5)
  return y, output(1), output(2)
end
