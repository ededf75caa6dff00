-- rmsnorm(x, gain, eps): x / sqrt(mean(x^2) + eps) * gain over the last dimension. Saves x, gain,
-- 1/rms a row.
local run = require("neap.op.apply").bind2("rmsnorm")

return function(x, gain, eps) return run(x, gain, eps or 1e-5) end
