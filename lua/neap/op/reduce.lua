-- Shared by sum and mean: a dimension counted from 1, or nil for all.
local apply = require("neap.op.apply")

return function(name)
  local run = apply.bind1(name)
  return function(x, dim) return run(x, dim == nil and -1 or dim - 1) end
end
