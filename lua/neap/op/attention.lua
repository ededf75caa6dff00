-- attention(qkv, heads, causal): packed queries, keys, values (B, T, 3C) -> (B, T, C), scaled by
-- 1 / sqrt(C / heads); causal unless false. Blockwise: never holds T x T. Saves qkv, the output,
-- log-sum-exp.
local apply = require("neap.op.apply")
local argument = require("neap.argument")
local run = apply.bind1("attention")

return function(qkv, heads, causal)
  if type(heads) ~= "number" then apply.number("attention", "the number of heads", heads) end
  if causal ~= nil and type(causal) ~= "boolean" then
    argument.flag(causal, "attention: causal")
  end
  return run(qkv, heads, causal == false and 0 or 1)
end
