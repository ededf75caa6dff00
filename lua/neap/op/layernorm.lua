-- layernorm(x, gain, bias, eps): over the last dimension of x (.., C), gain (C), bias (C). Saves x,
-- gain, and mean and 1/deviation a row.
local apply = require("neap.op.apply")
local run = apply.bind3("layernorm")

return function(x, gain, bias, eps)
  if eps ~= nil and type(eps) ~= "number" then apply.number("layernorm", "eps", eps) end
  return run(x, gain, bias, eps or 1e-5)
end
