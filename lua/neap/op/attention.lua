-- attention(qkv, heads, causal): packed queries, keys, values (B, T, 3C) -> (B, T, C), scaled by
-- 1 / sqrt(C / heads); causal unless false. Blockwise: never holds T x T. Saves qkv, the output,
-- log-sum-exp.
local run = require("neap.op.apply").bind1("attention")

return function(qkv, heads, causal) return run(qkv, heads, causal == false and 0 or 1) end
