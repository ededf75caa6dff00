-- LSTMCell(in, width) and GRUCell(in, width): one step over time of a batch, x (N, in) and a state
-- of (N, width) to the next state. cell:start(n, device) gives the state of zeros before the first.
local Linear = require("neap.nn.linear")
local add = require("neap.op.add")
local argument = require("neap.argument")
local ffi_neap = require("neap.ffi")
local gru_cell = require("neap.op.gru_cell")
local lstm_cell = require("neap.op.lstm_cell")
local module = require("neap.nn.module")
local tensor = require("neap.tensor")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local function check_sizes(kind, n_in, width)
  argument.whole(n_in, kind .. ": the number of inputs", 1)
  argument.whole(width, kind .. ": the width", 1)
end

local LSTMCell = module.class("LSTMCell")

local option_names = { "forget_bias" }
local one_dim = ffi.new("double[1]")

-- a part of the bias starts at another value
local function fill_part(bias, first, n, value)
  one_dim[0] = n
  local part = check(C.neap_tensor_view(bias.id, 1, one_dim, first))
  C.neap_tensor_fill(part, value)
  C.neap_tensor_free(part)
end

--- The gates are i, f, g, o; they have one bias, that of the input's product. That of the forget
--- gates starts at 1, so that a new cell remembers (Jozefowicz et al. 2015).
---@param n_in integer
---@param width integer
---@param options? { forget_bias?: number }
function LSTMCell:init(n_in, width, options)
  check_sizes("LSTMCell", n_in, width)
  local forget_bias = argument.options(options, "LSTMCell", option_names).forget_bias
  if forget_bias == nil then forget_bias = 1 end
  argument.number(forget_bias, "LSTMCell: forget_bias")
  self.width = width
  self.input = Linear(n_in, 4 * width)
  self.hidden = Linear(width, 4 * width, { bias = false })
  fill_part(self.input.bias, width, width, forget_bias)
end

---@return neap.Tensor h
---@return neap.Tensor c
function LSTMCell:start(n, device)
  return tensor.on(device, { n, self.width }):fill(0), tensor.on(device, { n, self.width }):fill(0)
end

--- h and c after x.
function LSTMCell:forward(x, h, c)
  return lstm_cell(add(self.input:forward(x), self.hidden:forward(h)), c)
end

local GRUCell = module.class("GRUCell")

--- The gates are r, z, n, with the reset gate after the product, as in PyTorch.
---@param n_in integer
---@param width integer
function GRUCell:init(n_in, width)
  check_sizes("GRUCell", n_in, width)
  self.width = width
  self.input = Linear(n_in, 3 * width)
  self.hidden = Linear(width, 3 * width)
end

---@return neap.Tensor h
function GRUCell:start(n, device) return tensor.on(device, { n, self.width }):fill(0) end

--- h after x.
function GRUCell:forward(x, h)
  return gru_cell(self.input:forward(x), self.hidden:forward(h), h)
end

return { LSTMCell = LSTMCell, GRUCell = GRUCell }
