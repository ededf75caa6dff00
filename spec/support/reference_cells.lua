-- What the ops of chains over time mean, in plain f64; see reference.lua.
local value = require("spec.support.reference").value

local M = {}

local function copy_of(list) return { unpack(list) } end

local function sigmoid(v) return 1 / (1 + math.exp(-v)) end

--- One index (from 1) of one dimension (from 1).
function M.select(x, dim, index)
  local dims, data = copy_of(x.dims), {}
  local length, inner = table.remove(dims, dim), 1
  for i = dim + 1, #x.dims do inner = inner * x.dims[i] end
  for at = 0, #x.data - 1 do
    if math.floor(at / inner) % length == index - 1 then data[#data + 1] = x.data[at + 1] end
  end
  return value(dims, data)
end

-- element j of gate k in row r, of n gates a row
local function gate(gates, n, k, r, j)
  local width = gates.dims[2] / n
  return gates.data[r * n * width + (k - 1) * width + j + 1]
end

--- Returns h and c'.
function M.lstm_cell(gates, c)
  local width, h, c_new = c.dims[2], {}, {}
  for at = 0, #c.data - 1 do
    local r, j = math.floor(at / width), at % width
    local i, f = sigmoid(gate(gates, 4, 1, r, j)), sigmoid(gate(gates, 4, 2, r, j))
    local g, o = math.tanh(gate(gates, 4, 3, r, j)), sigmoid(gate(gates, 4, 4, r, j))
    c_new[at + 1] = f * c.data[at + 1] + i * g
    h[at + 1] = o * math.tanh(c_new[at + 1])
  end
  return value(copy_of(c.dims), h), value(copy_of(c.dims), c_new)
end

function M.gru_cell(x, g, h)
  local width, out = h.dims[2], {}
  for at = 0, #h.data - 1 do
    local row, j = math.floor(at / width), at % width
    local r = sigmoid(gate(x, 3, 1, row, j) + gate(g, 3, 1, row, j))
    local z = sigmoid(gate(x, 3, 2, row, j) + gate(g, 3, 2, row, j))
    local n = math.tanh(gate(x, 3, 3, row, j) + r * gate(g, 3, 3, row, j))
    out[at + 1] = (1 - z) * n + z * h.data[at + 1]
  end
  return value(copy_of(h.dims), out)
end

return M
