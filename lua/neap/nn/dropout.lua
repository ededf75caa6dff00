-- Dropout(p): in training, zeroes elements with probability p and scales the rest by 1 / (1 - p).
local argument = require("neap.argument")
local dropout = require("neap.op.dropout")
local fail = require("neap.fail")
local module = require("neap.nn.module")

local Dropout = module.class("Dropout")

---@param p number  0 <= p < 1
function Dropout:init(p)
  if type(p) ~= "number" or not (p >= 0 and p < 1) then
    fail.usage("Dropout: p must be at least 0 and below 1, found %s", argument.shown(p))
  end
  self.p = p
end

function Dropout:forward(x)
  if self.p == 0 or not self.training then return x end
  return dropout(x, self.p)
end

return Dropout
