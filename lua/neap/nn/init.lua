-- Layers by name, and how to write one: nn.class("Name").
local activation = require("neap.nn.activation")
local cell = require("neap.nn.cell")
local module = require("neap.nn.module")

return {
  class = module.class,
  parameter = module.parameter,
  Linear = require("neap.nn.linear"),
  LayerNorm = require("neap.nn.layernorm"),
  RMSNorm = require("neap.nn.rmsnorm"),
  Embedding = require("neap.nn.embedding"),
  Dropout = require("neap.nn.dropout"),
  Attention = require("neap.nn.attention"),
  GELU = activation.GELU,
  ReLU = activation.ReLU,
  SiLU = activation.SiLU,
  LSTMCell = cell.LSTMCell,
  GRUCell = cell.GRUCell,
  Sequential = require("neap.nn.sequential"),
  Recurrent = require("neap.nn.recurrent"),
  GPT = require("neap.nn.gpt"),
}
