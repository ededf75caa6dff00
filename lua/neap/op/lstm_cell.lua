-- lstm_cell(gates, c): gates (N, 4H) = i, f, g, o before their activations, c (N, H) -> h, c', both
-- (N, H): c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c'). Saves gates and c.
local apply = require("neap.op.apply")
local run = apply.bind2("lstm_cell")

return function(gates, c)
  local h = run(gates, c)
  return h, apply.output(1)
end
