-- Recurrent(options): a chain whose stages are steps in time, t.0 .. t.T-1, all with the same
-- parameters: embedding, cell, head. Stage t takes the state and the sum of the losses so far,
-- reads token t of the batch's inputs and targets (N, T), and hands both on; the last one gives the
-- mean loss. The stages are small tables over one net: 10,000 of them cost little.
local Embedding = require("neap.nn.embedding")
local Linear = require("neap.nn.linear")
local add = require("neap.op.add")
local argument = require("neap.argument")
local cells = require("neap.nn.cell")
local cross_entropy = require("neap.op.cross_entropy")
local fail = require("neap.fail")
local ffi_neap = require("neap.ffi")
local module = require("neap.nn.module")
local scale = require("neap.op.scale")
local select_index = require("neap.op.select")
local tensor = require("neap.tensor")
local C, check = ffi_neap.C, ffi_neap.check

local Recurrent = module.class("Recurrent")

local option_names = { "vocabulary", "time", "width", "hidden", "cell" }
local CELLS = { lstm = cells.LSTMCell, gru = cells.GRUCell }
local MOST_STEPS = 60000 -- below the number of tapes that can be open

-- the token of step t as the cell's input
local function token(net, inputs, t) return net.embed:forward(select_index(inputs, 2, t)) end

-- the sum of the losses up to step t; their mean at the last one
local function loss_at(net, h, before, ctx, t)
  local loss = cross_entropy(net.head:forward(h), select_index(ctx.batch.targets, 2, t))
  if before then loss = add(before, loss) end
  return t == net.time and scale(loss, 1 / t) or loss
end

local function lstm(net, inputs, h, c, loss, ctx, t)
  h, c = net.cell:forward(token(net, inputs, t), h, c)
  loss = loss_at(net, h, loss, ctx, t)
  if t == net.time then return loss end
  return h, c, loss
end

local function gru(net, inputs, h, loss, ctx, t)
  h = net.cell:forward(token(net, inputs, t), h)
  loss = loss_at(net, h, loss, ctx, t)
  if t == net.time then return loss end
  return h, loss
end

local function check_part(net, name, given)
  local id = tensor.id_of(given, "Recurrent: the batch's " .. name)
  if check(C.neap_tensor_n_dims(id)) ~= 2 or C.neap_tensor_dim(id, 1) ~= net.time then
    fail.raise("shape mismatch", string.format("Recurrent: the batch's %s are (%s), expected "
      .. "(N, %d), a token a step", name, table.concat(given:dims(), ", "), net.time))
  end
end

-- the batch is (N, T), both parts of it; returns N and the device
local function check_batch(net, inputs, ctx)
  local targets = type(ctx) == "table" and type(ctx.batch) == "table" and ctx.batch.targets
  if not targets then
    fail.usage("Recurrent: ctx.batch.targets is missing, expected the tokens to predict, (N, %d)",
      net.time)
  end
  check_part(net, "inputs", inputs)
  check_part(net, "targets", targets)
  return C.neap_tensor_dim(inputs.id, 0), C.neap_tensor_device(inputs.id)
end

local function step_class(forward)
  local class = module.class("Step")
  class.forward = forward
  return class
end

-- what the stages are: the first step and the later ones, by cell
local STEPS = {
  lstm = {
    first = step_class(function(self, inputs, ctx)
      local h, c = self.net.cell:start(check_batch(self.net, inputs, ctx))
      return lstm(self.net, inputs, h, c, nil, ctx, 1)
    end),
    later = step_class(function(self, h, c, loss, ctx)
      return lstm(self.net, ctx.batch.inputs, h, c, loss, ctx, self.t)
    end),
  },
  gru = {
    first = step_class(function(self, inputs, ctx)
      local h = self.net.cell:start(check_batch(self.net, inputs, ctx))
      return gru(self.net, inputs, h, nil, ctx, 1)
    end),
    later = step_class(function(self, h, loss, ctx)
      return gru(self.net, ctx.batch.inputs, h, loss, ctx, self.t)
    end),
  },
}

local nothing = {}

-- by hand, so that 10,000 of them share what is empty and nobody finds the net's parameters in each
local function step_new(class, net, t)
  return setmetatable({ net = net, t = t, _parameters = nothing, _buffers = nothing,
    _children = nothing }, class)
end

--- The parameters are the chain's own children: the stages only refer to them.
---@param o { vocabulary: integer, time: integer, width?: integer, hidden: integer,
---  cell?: "lstm"|"gru" }  time: steps; width of the embedding: hidden where nothing is said; lstm
function Recurrent:init(o)
  argument.options(argument.table(o, "Recurrent: its argument"), "Recurrent", option_names)
  local width, kind = o.width, o.cell
  if width == nil then width = o.hidden end
  if kind == nil then kind = "lstm" end
  argument.whole(o.time, "Recurrent: time", 1, MOST_STEPS)
  argument.whole(o.vocabulary, "Recurrent: vocabulary", 1)
  argument.whole(o.hidden, "Recurrent: hidden", 1)
  argument.whole(width, "Recurrent: width", 1)
  if type(kind) ~= "string" or not CELLS[kind] then
    fail.usage("Recurrent: %s", fail.unknown("cell", argument.word(kind), { "lstm", "gru" }))
  end
  self.time, self.cell_kind = o.time, kind
  self.embed = Embedding(o.vocabulary, width, { std = 1 })
  self.cell = CELLS[kind](width, o.hidden)
  self.head = Linear(o.hidden, o.vocabulary)
  local steps, stages = STEPS[kind], {}
  for t = 1, o.time do
    stages[t] = { name = "t." .. t - 1,
      module = step_new(t == 1 and steps.first or steps.later, self, t) }
  end
  self.stages = stages
end

--- All steps one after another, without a plan: the mean loss.
function Recurrent:forward(inputs, ctx)
  local stages, is_lstm = self.stages, self.cell_kind == "lstm"
  local a, b, c = stages[1].module:forward(inputs, ctx)
  for t = 2, #stages do
    if is_lstm then
      a, b, c = stages[t].module:forward(a, b, c, ctx)
    else
      a, b = stages[t].module:forward(a, b, ctx)
    end
  end
  return a
end

return Recurrent
