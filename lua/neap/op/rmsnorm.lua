-- rmsnorm(x, gain, eps): x / sqrt(mean(x^2) + eps) * gain over the last dimension. Saves x, gain,
-- 1/rms a row.
local apply = require("neap.op.apply")
local run = apply.bind2("rmsnorm")

return function(x, gain, eps)
  if eps ~= nil and type(eps) ~= "number" then apply.number("rmsnorm", "eps", eps) end
  return run(x, gain, eps or 1e-5)
end
