-- Attention(width, heads): causal self-attention with one packed projection for queries, keys and
-- values.
local Linear = require("neap.nn.linear")
local attention = require("neap.op.attention")
local fail = require("neap.fail")
local module = require("neap.nn.module")

local Attention = module.class("Attention")

---@param width integer
---@param heads integer  divides width
---@param options? { causal?: boolean, std?: number, out_std?: number }
function Attention:init(width, heads, options)
  options = options or {}
  if type(heads) ~= "number" or heads % 1 ~= 0 or heads < 1 or width % heads ~= 0 then
    fail.usage("Attention: width %s does not split into %s heads", tostring(width), tostring(heads))
  end
  self.heads, self.causal = heads, options.causal ~= false
  self.qkv = Linear(width, 3 * width, { std = options.std })
  self.out = Linear(width, width, { std = options.out_std or options.std })
end

function Attention:forward(x)
  return self.out(attention(self.qkv(x), self.heads, self.causal))
end

return Attention
