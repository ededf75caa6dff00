-- dropout(x, p): zeroes elements with probability p and scales the others by 1 / (1 - p). Saves
-- nothing: the mask is a function of (seed, step, item, stage, call), drawn again in backward.
local apply = require("neap.op.apply")
local run = apply.bind1("dropout")

return function(x, p)
  if type(p) ~= "number" then apply.number("dropout", "p", p) end
  return run(x, p)
end
