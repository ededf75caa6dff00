-- All ops by name. One file each; most names are those of the op table in src/neap.h.
local M = {}

for _, name in ipairs({ "add", "multiply", "scale", "gelu", "relu", "silu", "transpose",
  "layernorm", "rmsnorm", "embedding", "dropout", "linear", "matmul", "attention",
  "cross_entropy", "sum", "mean", "subtract", "sigmoid", "tanh", "select", "lstm_cell", "gru_cell",
  "cross_entropy", "sum", "mean", "conv2d", "batchnorm", "batchnorm_inference", "maxpool2d",
  "avgpool2d", "global_avgpool2d", "flatten",
  "narrow", "reshape", "define" }) do
  M[name] = require("neap.op." .. name)
end

return M
