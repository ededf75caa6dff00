-- GPT(options): a decoder-only transformer as a chain: embed, block.0 .. block.L-1, head (which
-- ends in the loss). Starts as GPT-2 does: normal(0, 0.02), residual projections divided by sqrt(2
-- L), tied embedding.
local Attention = require("neap.nn.attention")
local Dropout = require("neap.nn.dropout")
local LayerNorm = require("neap.nn.layernorm")
local Linear = require("neap.nn.linear")
local Sequential = require("neap.nn.sequential")
local add = require("neap.op.add")
local argument = require("neap.argument")
local cross_entropy = require("neap.op.cross_entropy")
local embedding = require("neap.op.embedding")
local fail = require("neap.fail")
local gelu = require("neap.op.gelu")
local linear = require("neap.op.linear")
local module = require("neap.nn.module")
local narrow = require("neap.op.narrow")

local STD = 0.02

local MLP = module.class("MLP")

function MLP:init(width, out_std)
  self.up = Linear(width, 4 * width, { std = STD })
  self.down = Linear(4 * width, width, { std = out_std })
end

function MLP:forward(x) return self.down(gelu(self.up(x))) end

local Block = module.class("Block")

function Block:init(width, heads, dropout, out_std)
  self.norm1 = LayerNorm(width)
  self.attention = Attention(width, heads, { std = STD, out_std = out_std })
  self.norm2 = LayerNorm(width)
  self.mlp = MLP(width, out_std)
  self.dropout = Dropout(dropout)
end

function Block:forward(x)
  x = add(x, self.dropout(self.attention(self.norm1(x))))
  return add(x, self.dropout(self.mlp(self.norm2(x))))
end

local Embed = module.class("Embed")

function Embed:init(vocabulary, context, width, dropout)
  self.tokens = module.parameter({ vocabulary, width }, { normal = STD })
  self.positions = module.parameter({ context, width }, { normal = STD })
  self.dropout = Dropout(dropout)
end

function Embed:forward(ids)
  local x = embedding(ids, self.tokens)
  return self.dropout(add(x, narrow(self.positions, 1, ids:dims()[2])))
end

-- shares its weight with the embedding; ctx.batch.targets nil: gives logits instead of the loss
local Head = module.class("Head")

function Head:init(width, tokens)
  self.norm = LayerNorm(width)
  self.tokens = tokens
end

function Head:forward(x, ctx)
  local logits = linear(self.norm(x), self.tokens)
  local targets = ctx and ctx.batch and ctx.batch.targets
  return targets and cross_entropy(logits, targets) or logits
end

local option_names = { "vocabulary", "context", "width", "n_head", "n_layer", "dropout" }

---@param o { vocabulary: integer, context: integer, width: integer, n_layer: integer,
---  n_head: integer, dropout?: number }
---@return neap.Chain
local function GPT(o)
  argument.options(argument.table(o, "GPT: its argument"), "GPT", option_names)
  for i = 1, 4 do argument.whole(o[option_names[i]], "GPT: " .. option_names[i], 1) end
  argument.whole(o.n_layer, "GPT: n_layer", 0, 100000)
  if o.width % o.n_head ~= 0 then
    fail.usage("GPT: width %.0f does not split into %.0f heads", o.width, o.n_head)
  end
  local dropout = o.dropout
  if dropout == nil then dropout = 0 end
  local embed = Embed(o.vocabulary, o.context, o.width, dropout)
  local stages = { { "embed", embed } }
  for i = 0, o.n_layer - 1 do
    stages[#stages + 1] = { "block." .. i,
      Block(o.width, o.n_head, dropout, STD / math.sqrt(2 * o.n_layer)) }
  end
  stages[#stages + 1] = { "head", Head(o.width, embed.tokens) }
  return Sequential(stages)
end

return GPT
