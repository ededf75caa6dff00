-- narrow(x, first, n): n rows of dimension 1 from row first (from 1); shares the memory of x. Saves
-- nothing.
local apply = require("neap.op.apply")
local run = apply.bind1("narrow")

return function(x, first, n)
  return run(x, apply.number("narrow", "the first row", first) - 1,
    apply.number("narrow", "the number of rows", n))
end
