-- Shared by sum and mean: a dimension counted from 1, or nil for all.
local apply = require("neap.op.apply")
local fail = require("neap.fail")

return function(name)
  local run = apply.bind1(name)
  return function(x, dim)
    if dim == nil then return run(x, -1) end
    if apply.number(name, "the dimension", dim) < 1 then
      fail.raise("shape mismatch", string.format("%s: dimensions count from 1, found %g", name,
        dim))
    end
    return run(x, dim - 1)
  end
end
