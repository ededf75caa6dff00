-- What each op means, in plain f64: clear, not fast, and written without a look at the kernels.
-- A value is { dims = { .. }, data = { flat, row-major } }; integers are plain numbers.
local M = {}

local function count(dims, first, last)
  local n = 1
  for i = first or 1, last or #dims do n = n * dims[i] end
  return n
end

--- A value of these dims; data may be a function of the element's index from 0, or nil for zeros.
function M.value(dims, data)
  if type(data) == "table" then return { dims = dims, data = data } end
  local flat = {}
  for i = 1, count(dims) do flat[i] = data and data(i - 1) or 0 end
  return { dims = dims, data = flat }
end

local value = M.value

local function copy_of(list)
  return { unpack(list) }
end

-- rows and width of a value seen as (rows, last dim)
local function rows_of(x)
  return count(x.dims, 1, #x.dims - 1), x.dims[#x.dims]
end

local function map(x, f)
  return value(copy_of(x.dims), function(i) return f(x.data[i + 1]) end)
end

-- f over a and b, b repeated over the leading dims that only a has
local function broadcast(a, b, f)
  local n = #b.data
  return value(copy_of(a.dims), function(i) return f(a.data[i + 1], b.data[i % n + 1]) end)
end

function M.add(a, b) return broadcast(a, b, function(x, y) return x + y end) end
function M.multiply(a, b) return broadcast(a, b, function(x, y) return x * y end) end
function M.subtract(a, b) return broadcast(a, b, function(x, y) return x - y end) end
function M.scale(x, factor) return map(x, function(v) return v * factor end) end
function M.relu(x) return map(x, function(v) return v > 0 and v or 0 end) end
function M.silu(x) return map(x, function(v) return v / (1 + math.exp(-v)) end) end

local function sigmoid(v) return 1 / (1 + math.exp(-v)) end
function M.sigmoid(x) return map(x, sigmoid) end
function M.tanh(x) return map(x, math.tanh) end

function M.gelu(x)
  local c = math.sqrt(2 / math.pi)
  return map(x, function(v) return 0.5 * v * (1 + math.tanh(c * (v + 0.044715 * v * v * v))) end)
end

function M.transpose(x)
  local n = #x.dims
  local rows, columns = x.dims[n - 1], x.dims[n]
  local dims, data = copy_of(x.dims), {}
  dims[n - 1], dims[n] = columns, rows
  for base = 0, #x.data - 1, rows * columns do
    for i = 0, rows - 1 do
      for j = 0, columns - 1 do
        data[base + j * rows + i + 1] = x.data[base + i * columns + j + 1]
      end
    end
  end
  return value(dims, data)
end

-- each row of x divided by its spread and moved; spread and shift come from the row
local function normalize(x, measure, finish)
  local rows, width = rows_of(x)
  local data = {}
  for r = 0, rows - 1 do
    local row = {}
    for j = 1, width do row[j] = x.data[r * width + j] end
    local shift, rstd = measure(row, width)
    for j = 1, width do data[r * width + j] = finish((row[j] - shift) * rstd, j) end
  end
  return value(copy_of(x.dims), data)
end

function M.layernorm(x, gain, bias, eps)
  return normalize(x, function(row, width)
    local mean, variance = 0, 0
    for j = 1, width do mean = mean + row[j] / width end
    for j = 1, width do variance = variance + (row[j] - mean) ^ 2 / width end
    return mean, 1 / math.sqrt(variance + eps)
  end, function(v, j) return v * gain.data[j] + bias.data[j] end)
end

function M.rmsnorm(x, gain, eps)
  return normalize(x, function(row, width)
    local square = 0
    for j = 1, width do square = square + row[j] * row[j] / width end
    return 0, 1 / math.sqrt(square + eps)
  end, function(v, j) return v * gain.data[j] end)
end

function M.embedding(ids, weight)
  local width = weight.dims[2]
  local dims = copy_of(ids.dims)
  dims[#dims + 1] = width
  return value(dims, function(i)
    local id = ids.data[math.floor(i / width) + 1]
    return weight.data[id * width + i % width + 1]
  end)
end

--- Dropout by a given mask of 0 and 1.
function M.dropout(x, mask, p)
  return broadcast(x, mask, function(v, keep) return v * keep / (1 - p) end)
end

function M.matmul(a, b, trans_a, trans_b)
  local na, nb = #a.dims, #b.dims
  local m = a.dims[trans_a and na or na - 1]
  local k = a.dims[trans_a and na - 1 or na]
  local n = b.dims[trans_b and nb - 1 or nb]
  local dims = copy_of(a.dims)
  dims[na - 1], dims[na] = m, n
  local out = value(dims)
  for batch = 0, count(dims, 1, na - 2) - 1 do
    local base_a, base_b = batch * m * k, nb > 2 and batch * k * n or 0
    for i = 0, m - 1 do
      for j = 0, n - 1 do
        local sum = 0
        for l = 0, k - 1 do
          local at = base_a + (trans_a and l * m + i or i * k + l)
          local bt = base_b + (trans_b and j * k + l or l * n + j)
          sum = sum + a.data[at + 1] * b.data[bt + 1]
        end
        out.data[batch * m * n + i * n + j + 1] = sum
      end
    end
  end
  return out
end

function M.linear(x, weight, bias)
  local rows, width = rows_of(x)
  local y = M.matmul(value({ rows, width }, x.data), weight, false, true)
  local dims = copy_of(x.dims)
  dims[#dims] = weight.dims[1]
  y = value(dims, y.data)
  return bias and M.add(y, bias) or y
end

--- Attention of packed queries, keys and values: columns of qkv are [q | k | v], each head by head.
function M.attention(qkv, heads, causal)
  local batch, length, width = qkv.dims[1], qkv.dims[2], qkv.dims[3] / 3
  local size = width / heads
  local out = value({ batch, length, width })
  local function at(b, t, part, h, d)
    return (b * length + t) * 3 * width + part * width + h * size + d + 1
  end
  for b = 0, batch - 1 do
    for h = 0, heads - 1 do
      for t = 0, length - 1 do
        local last = causal and t or length - 1
        local weights, largest, sum = {}, -math.huge, 0
        for s = 0, last do
          local score = 0
          for d = 0, size - 1 do
            score = score + qkv.data[at(b, t, 0, h, d)] * qkv.data[at(b, s, 1, h, d)]
          end
          weights[s] = score / math.sqrt(size)
          largest = math.max(largest, weights[s])
        end
        for s = 0, last do
          weights[s] = math.exp(weights[s] - largest)
          sum = sum + weights[s]
        end
        for d = 0, size - 1 do
          local y = 0
          for s = 0, last do y = y + weights[s] / sum * qkv.data[at(b, s, 2, h, d)] end
          out.data[(b * length + t) * width + h * size + d + 1] = y
        end
      end
    end
  end
  return out
end

function M.cross_entropy(logits, targets)
  local rows, width = rows_of(logits)
  local loss = 0
  for r = 0, rows - 1 do
    local largest, sum = -math.huge, 0
    for j = 1, width do largest = math.max(largest, logits.data[r * width + j]) end
    for j = 1, width do sum = sum + math.exp(logits.data[r * width + j] - largest) end
    local chosen = logits.data[r * width + targets.data[r + 1] + 1]
    loss = loss + (largest + math.log(sum) - chosen) / rows
  end
  return value({}, { loss })
end

--- Sum over one dim (from 1), which goes away, or over all.
function M.sum(x, dim)
  if not dim then
    local total = 0
    for i = 1, #x.data do total = total + x.data[i] end
    return value({}, { total })
  end
  local dims, inner = copy_of(x.dims), count(x.dims, dim + 1)
  local n = table.remove(dims, dim)
  return value(dims, function(i)
    local base, total = math.floor(i / inner) * n * inner + i % inner, 0
    for j = 0, n - 1 do total = total + x.data[base + j * inner + 1] end
    return total
  end)
end

function M.mean(x, dim)
  return M.scale(M.sum(x, dim), 1 / (dim and x.dims[dim] or #x.data))
end

--- One step in place; step counts from 1; state = { m = {..}, v = {..} } of zeros at first.
function M.adamw(param, grad, state, o)
  for i = 1, #param do
    local g = grad[i] * (o.grad_scale or 1)
    state.m[i] = o.beta1 * state.m[i] + (1 - o.beta1) * g
    state.v[i] = o.beta2 * state.v[i] + (1 - o.beta2) * g * g
    local m = state.m[i] / (1 - o.beta1 ^ o.step)
    local v = state.v[i] / (1 - o.beta2 ^ o.step)
    param[i] = param[i] - o.lr * o.decay * param[i] - o.lr * m / (math.sqrt(v) + o.eps)
  end
end

function M.sgd(param, grad, velocity, o)
  for i = 1, #param do
    velocity[i] = o.momentum * velocity[i] + grad[i] * (o.grad_scale or 1) + o.decay * param[i]
    param[i] = param[i] - o.lr * velocity[i]
  end
end

--- Norm of many values seen as one vector.
function M.global_norm(values)
  local sum = 0
  for _, v in ipairs(values) do
    for i = 1, #v.data do sum = sum + v.data[i] * v.data[i] end
  end
  return math.sqrt(sum)
end

return M
