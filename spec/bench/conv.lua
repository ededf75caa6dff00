-- Convolution, forward and backward, against PyTorch's in turn: medians and the ratio, by shape.
-- NEAP_PYTHON names a python that has torch; without one ours is measured alone.
-- luajit spec/bench/conv.lua [rounds] [threads]
local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/../.."
package.path = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;" .. root .. "/build/?.lua;"
  .. package.path
local neap = require("neap")
local C = require("neap.ffi").C

local rounds, threads = tonumber(arg[1]) or 7, tonumber(arg[2]) or 1

-- images, channels, side, outputs, kernel, stride, padding
local SHAPES = {
  { 32, 3, 32, 16, 3, 1, 1 }, { 32, 16, 32, 16, 3, 1, 1 }, { 32, 16, 32, 32, 3, 2, 1 },
  { 32, 32, 16, 32, 3, 1, 1 }, { 32, 64, 8, 64, 3, 1, 1 }, { 32, 16, 32, 32, 1, 2, 0 },
  { 32, 64, 16, 64, 1, 1, 0 }, { 4, 64, 56, 64, 3, 1, 1 }, { 32, 16, 8, 16, 3, 1, 1 },
}

local SERVER = [[
import sys, time, torch
import torch.nn.functional as F
torch.set_num_threads(int(sys.argv[1]))
for line in sys.stdin:
    n, c, side, o, k, stride, padding, times = map(int, line.split())
    x = torch.rand(n, c, side, side, requires_grad=True)
    w = torch.rand(o, c, k, k, requires_grad=True)
    b = torch.rand(o, requires_grad=True)
    with torch.no_grad():
        dy = torch.ones_like(F.conv2d(x, w, b, stride, padding))
    best = []
    for _ in range(times + 2):
        started = time.perf_counter()
        F.conv2d(x, w, b, stride, padding).backward(dy)
        best.append(time.perf_counter() - started)
    best = sorted(best[2:])
    print(best[len(best) // 2], flush=True)
]]

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- the same work: forward, and backward into gradients that accumulate
local function ours(shape, times)
  local n, c, side, o, k, stride, padding = unpack(shape)
  return neap.scope(function()
    local x = neap.full({ n, c, side, side }, 0.5, { requires_grad = true })
    local w = neap.full({ o, c, k, k }, 0.5, { requires_grad = true })
    local b = neap.full({ o }, 0.5, { requires_grad = true })
    local seconds = {}
    for i = -1, times do
      local started = C.neap_now()
      neap.scope(function() neap.op.sum(neap.op.conv2d(x, w, b, stride, padding)):backward() end)
      if i > 0 then seconds[i] = C.neap_now() - started end
    end
    return median(seconds)
  end)
end

local python = os.getenv("NEAP_PYTHON")
local has_torch = python and os.execute(python .. " -c 'import torch' 2>/dev/null") == 0

-- times of PyTorch, one process for all shapes of a round
local function theirs(times)
  local script, list = os.tmpname(), os.tmpname()
  local file = assert(io.open(script, "w"))
  file:write(SERVER)
  file:close()
  file = assert(io.open(list, "w"))
  for _, shape in ipairs(SHAPES) do file:write(table.concat(shape, " "), " ", times, "\n") end
  file:close()
  local pipe = assert(io.popen(("%s %s %d <%s"):format(python, script, threads, list)))
  local seconds = {}
  for i = 1, #SHAPES do seconds[i] = assert(pipe:read("*n")) end
  pipe:close()
  os.remove(script)
  os.remove(list)
  return seconds
end

neap.threads(threads)
neap.device("cpu")
local mine, other = {}, {}
for i = 1, #SHAPES do mine[i], other[i] = {}, {} end
for _ = 1, rounds do
  for i, shape in ipairs(SHAPES) do table.insert(mine[i], ours(shape, 5)) end
  if has_torch then
    for i, seconds in ipairs(theirs(5)) do table.insert(other[i], seconds) end
  end
end
print(string.format("conv2d forward and backward, %d thread%s, medians of %d rounds%s", threads,
  threads == 1 and "" or "s", rounds, has_torch and ""
    or "; pending: PyTorch (name a python that has torch by NEAP_PYTHON)"))
for i, shape in ipairs(SHAPES) do
  local n, c, side, o, k, stride, padding = unpack(shape)
  local out = math.floor((side + 2 * padding - k) / stride) + 1
  local flops = 6 * n * out * out * o * c * k * k
  local seconds = median(mine[i])
  local line = string.format("(%d, %d, %d, %d) to %d, %dx%d, stride %d: %8.2f ms %6.1f GFLOP/s", n,
    c, side, side, o, k, k, stride, seconds * 1e3, flops / seconds / 1e9)
  if has_torch then
    local peer = median(other[i])
    line = line .. string.format(", PyTorch %8.2f ms, ratio %.2f", peer * 1e3, seconds / peer)
  end
  print(line)
end
