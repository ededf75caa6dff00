-- GELU(), ReLU(), SiLU(): layers around the ops, for chains of layers.
local module = require("neap.nn.module")

local function layer(kind, op)
  local class = module.class(kind)
  function class:forward(x) return op(x) end -- luacheck: ignore 212
  return class
end

return {
  GELU = layer("GELU", require("neap.op.gelu")),
  ReLU = layer("ReLU", require("neap.op.relu")),
  SiLU = layer("SiLU", require("neap.op.silu")),
}
