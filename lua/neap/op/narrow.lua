-- narrow(x, first, n): n rows of dimension 1 from row first (from 1); shares the memory of x. Saves
-- nothing.
local run = require("neap.op.apply").bind1("narrow")

return function(x, first, n) return run(x, first - 1, n) end
