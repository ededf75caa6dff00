-- matmul(a, b, transpose_a, transpose_b): (.., M, K) x (.., K, N) -> (.., M, N); b may be one
-- matrix for all. Saves a where b needs a gradient, and b where a does.
local argument = require("neap.argument")
local run = require("neap.op.apply").bind2("matmul")

return function(a, b, transpose_a, transpose_b)
  argument.flag(transpose_a, "matmul: transpose_a")
  argument.flag(transpose_b, "matmul: transpose_b")
  return run(a, b, transpose_a and 1 or 0, transpose_b and 1 or 0)
end
