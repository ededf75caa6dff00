-- Four kinds of net, small: a transformer with dropout, a residual net with batch norm, a recurrent
-- net, and blocks of nested checkpointed regions.
local module = require("neap.nn.module")
local neap = require("neap")
local nn, op = neap.nn, neap.op

local M = {}

local function ids(n, modulus, factor)
  local out = {}
  for i = 1, n do out[i] = i * factor % modulus end
  return out
end

local function i32(list, dims) return neap.tensor(list, dims, { dtype = "i32" }) end

local function waves(n)
  local out = {}
  for i = 1, n do out[i] = math.sin(0.37 * i) end
  return out
end

-- a block whose two halves are checkpointed regions, inside a third one
local Nested = nn.class("Nested")

function Nested:init(width)
  self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
  self.down, self.dropout = nn.Linear(2 * width, width), nn.Dropout(0.1)
end

function Nested:forward(x)
  return neap.checkpoint(function(h)
    local wide = neap.checkpoint(function(y) return op.gelu(self.up(self.norm(y))) end, h)
    return h + neap.checkpoint({ keep = "matmul" }, function(y)
      return self.dropout(self.down(y))
    end, wide)
  end, x)
end

local Mean = nn.class("Mean")

function Mean:forward(x) return op.mean(op.multiply(x, x)) end -- luacheck: ignore 212

M.list = {
  { name = "a transformer with dropout 0.1", build = function()
    return nn.GPT({ vocabulary = 13, context = 8, width = 16, n_layer = 3, n_head = 2,
      dropout = 0.1 }), { inputs = i32(ids(16, 13, 5), { 2, 8 }),
      targets = i32(ids(16, 13, 7), { 2, 8 }) }
  end },
  { name = "a residual net with batch norm", build = function()
    return nn.ResNet({ depth = 8, width = 4, channels = 1, classes = 3 }),
      { inputs = neap.tensor(waves(256), { 4, 1, 8, 8 }), targets = i32({ 0, 1, 2, 1 }, { 4 }) }
  end },
  { name = "a recurrent net", build = function()
    return nn.Recurrent({ vocabulary = 7, time = 9, hidden = 8, cell = "lstm" }),
      { inputs = i32(ids(18, 7, 3), { 2, 9 }), targets = i32(ids(18, 7, 5), { 2, 9 }) }
  end },
  { name = "blocks of nested checkpointed regions", build = function()
    return nn.Sequential({ { "a", Nested(16) }, { "b", Nested(16) }, { "c", Nested(16) },
      { "loss", Mean() } }), { inputs = neap.tensor(waves(64), { 4, 16 }) }
  end },
}

--- A model of its own with its batch: each starts from the same parameters and buffers.
---@return neap.Chain model
---@return table batch
function M.fresh(net)
  module.manual_seed(3)
  return net.build()
end

function M.free(model, batch)
  model:free()
  batch.inputs:free()
  if batch.targets then batch.targets:free() end
end

return M
