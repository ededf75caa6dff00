-- lstm_cell(gates, c): gates (N, 4H) = i, f, g, o before their activations, c (N, H) -> h, c', both
-- (N, H): c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c'). Saves gates and c.
local ffi_neap = require("neap.ffi")
local tensor = require("neap.tensor")
local C = ffi_neap.C
local run = require("neap.op.apply").bind2("lstm_cell")

return function(gates, c)
  local h = run(gates, c)
  return h, tensor.wrap(C.neap_apply_output(1))
end
