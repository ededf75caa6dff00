-- Layers by name, and how to write one: nn.class("Name").
local activation = require("neap.nn.activation")
local cell = require("neap.nn.cell")
local images = require("neap.nn.images")
local module = require("neap.nn.module")

return {
  class = module.class,
  parameter = module.parameter,
  buffer = module.buffer,
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
  BatchNorm = require("neap.nn.batchnorm"),
  Conv2d = require("neap.nn.conv2d"),
  MaxPool2d = images.MaxPool2d,
  AvgPool2d = images.AvgPool2d,
  GlobalAvgPool2d = images.GlobalAvgPool2d,
  Flatten = images.Flatten,
  Residual = require("neap.nn.residual"),
  ResNet = require("neap.nn.resnet"),
}
