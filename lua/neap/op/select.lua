-- select(x, dim, index): one index (from 1) of one dimension (from 1), a copy without that
-- dimension: select(x, 2, t) of (N, T) is column t, (N). Any dtype. Saves nothing.
local apply = require("neap.op.apply")
local run = apply.bind1("select")

return function(x, dim, index)
  return run(x, apply.number("select", "the dimension", dim) - 1,
    apply.number("select", "the index", index) - 1)
end
