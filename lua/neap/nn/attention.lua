-- Attention(width, heads): causal self-attention with one packed projection for queries, keys and
-- values.
local Linear = require("neap.nn.linear")
local argument = require("neap.argument")
local attention = require("neap.op.attention")
local fail = require("neap.fail")
local module = require("neap.nn.module")

local Attention = module.class("Attention")

local option_names = { "causal", "std", "out_std" }

---@param width integer
---@param heads integer  divides width
---@param options? { causal?: boolean, std?: number, out_std?: number }
function Attention:init(width, heads, options)
  options = argument.options(options, "Attention", option_names)
  argument.whole(width, "Attention: the width", 1)
  argument.whole(heads, "Attention: the number of heads", 1)
  if width % heads ~= 0 then
    fail.usage("Attention: width %.0f does not split into %.0f heads", width, heads)
  end
  self.heads, self.causal = heads, argument.flag(options.causal, "Attention: causal", true)
  local out_std = options.out_std
  if out_std == nil then out_std = options.std end
  self.qkv = Linear(width, 3 * width, { std = options.std })
  self.out = Linear(width, width, { std = out_std })
end

function Attention:forward(x)
  return self.out(attention(self.qkv(x), self.heads, self.causal))
end

return Attention
