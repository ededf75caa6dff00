-- layernorm(x, gain, bias, eps): over the last dimension of x (.., C), gain (C), bias (C). Saves x,
-- gain, and mean and 1/deviation a row.
local run = require("neap.op.apply").bind3("layernorm")

return function(x, gain, bias, eps) return run(x, gain, bias, eps or 1e-5) end
