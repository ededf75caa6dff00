-- What the ops on images mean, in plain f64, beside reference.lua and like it: written from the
-- definitions, without a look at the kernels.
local reference = require("spec.support.reference")

local value = reference.value
local M = {}

local function places(length, kernel, stride, padding)
  return math.floor((length + 2 * padding - kernel) / stride) + 1
end

-- calls f(i of the output from 1, image, channel or output channel, row, column)
local function each(dims, f)
  local i = 0
  for n = 0, dims[1] - 1 do
    for c = 0, dims[2] - 1 do
      for row = 0, dims[3] - 1 do
        for column = 0, dims[4] - 1 do
          i = i + 1
          f(i, n, c, row, column)
        end
      end
    end
  end
end

-- an element of (N, C, H, W), from 0; nil outside the image
local function at(x, n, c, row, column)
  local d = x.dims
  if row < 0 or row >= d[3] or column < 0 or column >= d[4] then return nil end
  return x.data[((n * d[2] + c) * d[3] + row) * d[4] + column + 1]
end

function M.conv2d(x, weight, bias, stride, padding)
  local w = weight.dims
  local out = value({ x.dims[1], w[1], places(x.dims[3], w[3], stride, padding),
    places(x.dims[4], w[4], stride, padding) })
  each(out.dims, function(i, n, o, row, column)
    local sum = bias and bias.data[o + 1] or 0
    for c = 0, w[2] - 1 do
      for ky = 0, w[3] - 1 do
        for kx = 0, w[4] - 1 do
          local v = at(x, n, c, row * stride + ky - padding, column * stride + kx - padding)
          sum = sum + (v or 0) * weight.data[((o * w[2] + c) * w[3] + ky) * w[4] + kx + 1]
        end
      end
    end
    out.data[i] = sum
  end)
  return out
end

-- the values of one window that lie inside the image
local function window(x, n, c, row, column, kernel, stride, padding)
  local list = {}
  for ky = 0, kernel - 1 do
    for kx = 0, kernel - 1 do
      list[#list + 1] = at(x, n, c, row * stride + ky - padding, column * stride + kx - padding)
    end
  end
  return list
end

local function pool(x, kernel, stride, padding, f)
  local out = value({ x.dims[1], x.dims[2], places(x.dims[3], kernel, stride, padding),
    places(x.dims[4], kernel, stride, padding) })
  each(out.dims, function(i, n, c, row, column)
    out.data[i] = f(window(x, n, c, row, column, kernel, stride, padding))
  end)
  return out
end

function M.maxpool2d(x, kernel, stride, padding)
  return pool(x, kernel, stride, padding, function(list)
    local best = -math.huge
    for _, v in ipairs(list) do best = math.max(best, v) end
    return best
  end)
end

function M.avgpool2d(x, kernel, stride, padding)
  return pool(x, kernel, stride, padding, function(list)
    local sum = 0
    for _, v in ipairs(list) do sum = sum + v end
    return sum / kernel ^ 2
  end)
end

-- the channel (from 1) of element i (from 0) of x (N, C, ..)
local function channel(x, i)
  local inner = 1
  for d = 3, #x.dims do inner = inner * x.dims[d] end
  return math.floor(i / inner) % x.dims[2] + 1
end

--- Mean and variance (divided by the count) of each channel.
function M.statistics(x)
  local mean, variance = value({ x.dims[2] }), value({ x.dims[2] })
  local count = #x.data / x.dims[2]
  for i = 0, #x.data - 1 do
    local c = channel(x, i)
    mean.data[c] = mean.data[c] + x.data[i + 1] / count
  end
  for i = 0, #x.data - 1 do
    local c = channel(x, i)
    variance.data[c] = variance.data[c] + (x.data[i + 1] - mean.data[c]) ^ 2 / count
  end
  return mean, variance
end

function M.batchnorm_inference(x, gain, bias, mean, variance, eps)
  return value({ unpack(x.dims) }, function(i)
    local c = channel(x, i)
    return (x.data[i + 1] - mean.data[c]) / math.sqrt(variance.data[c] + eps) * gain.data[c]
      + bias.data[c]
  end)
end

function M.batchnorm(x, gain, bias, eps)
  local mean, variance = M.statistics(x)
  return M.batchnorm_inference(x, gain, bias, mean, variance, eps)
end

return M
