-- scale(x, factor): x times a number. Saves nothing.
local apply = require("neap.op.apply")
local run = apply.bind1("scale")

return function(x, factor)
  if type(factor) ~= "number" then apply.number("scale", "the factor", factor) end
  return run(x, factor)
end
