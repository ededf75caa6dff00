-- linear(x, weight, bias): x (.., K), weight (N, K), bias (N) or nil -> x weight^T + bias, (.., N).
-- Saves x where the weight needs a gradient, and the weight where x does.
local apply = require("neap.op.apply")
local plain, biased = apply.bind2("linear"), apply.bind3("linear")

return function(x, weight, bias)
  if bias == nil then return plain(x, weight) end
  return biased(x, weight, bias)
end
