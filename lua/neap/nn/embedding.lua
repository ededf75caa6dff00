-- Embedding(n, width): i32 ids (..) -> (.., width).
local embedding = require("neap.op.embedding")
local module = require("neap.nn.module")

local Embedding = module.class("Embedding")

---@param n integer  ids are 0 .. n - 1
---@param width integer
---@param options? { std?: number }
function Embedding:init(n, width, options)
  self.weight = module.parameter({ n, width }, { normal = options and options.std or 0.02 })
end

function Embedding:forward(ids) return embedding(ids, self.weight) end

return Embedding
