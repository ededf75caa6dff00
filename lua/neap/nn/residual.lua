-- Residual(body, shortcut): body(x) + x, or body(x) + shortcut(x) where the shapes differ.
local add = require("neap.op.add")
local argument = require("neap.argument")
local fail = require("neap.fail")
local module = require("neap.nn.module")

local Residual = module.class("Residual")

local function check_layer(layer, what)
  if type(layer) ~= "table" or not rawget(layer, "_children") then
    fail.usage("Residual: %s must be a layer that was made, found %s", what,
      argument.shown(layer))
  end
  return layer
end

---@param body neap.Module
---@param shortcut? neap.Module
function Residual:init(body, shortcut)
  self.body = check_layer(body, "the body")
  if shortcut ~= nil then self.shortcut = check_layer(shortcut, "the shortcut") end
end

function Residual:forward(x, ctx)
  local shortcut = rawget(self, "shortcut")
  return add(self.body(x, ctx), shortcut and shortcut(x, ctx) or x)
end

return Residual
