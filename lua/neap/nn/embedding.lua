-- Embedding(n, width): i32 ids (..) -> (.., width).
local argument = require("neap.argument")
local embedding = require("neap.op.embedding")
local module = require("neap.nn.module")

local Embedding = module.class("Embedding")

local option_names = { "std" }

---@param n integer  ids are 0 .. n - 1
---@param width integer
---@param options? { std?: number }
function Embedding:init(n, width, options)
  local std = argument.options(options, "Embedding", option_names).std
  argument.whole(n, "Embedding: the number of ids", 1)
  argument.whole(width, "Embedding: the width", 1)
  if std == nil then std = 0.02 end
  self.weight = module.parameter({ n, width },
    { normal = argument.number(std, "Embedding: std", 0) })
end

function Embedding:forward(ids) return embedding(ids, self.weight) end

return Embedding
