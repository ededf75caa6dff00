-- Overhead of the harness: a chain of 1,000 tiny ops, forward and backward, with 40 kinds of op
-- mixed. Kinds that do not exist are copies of existing ones under ids of their own. Prints
-- nanoseconds an op and allocations. luajit spec/bench/overhead.lua [rounds]
local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/../.."
package.path = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;" .. root .. "/build/?.lua;"
  .. package.path
local neap = require("neap")
local apply = require("neap.op.apply")
local N = require("neap.ffi")
local scope = require("neap.scope")
local C = N.C

local N_KINDS, N_OPS, SIDE = 40, 1000, 4
local rounds = tonumber(arg[1]) or 200

neap.threads(1)
local device = neap.device("cpu")
local other = neap.full({ SIDE, SIDE }, 1)
local gain, bias = neap.full({ SIDE }, 1), neap.full({ SIDE }, 0)
local x0 = neap.full({ SIDE, SIDE }, 0.5, { requires_grad = true })
x0:zero_grad()
local sum = neap.op.sum

-- four sets of ten kinds: the built-in ops, and three copies of each under ids of their own
local names = { scale = apply.bind1, gelu = apply.bind1, relu = apply.bind1, silu = apply.bind1,
  dropout = apply.bind1, transpose = apply.bind1, add = apply.bind2, multiply = apply.bind2,
  rmsnorm = apply.bind2, layernorm = apply.bind3 }
local sets, n_kinds = {}, 0
for k = 0, 3 do
  sets[k] = {}
  for name, bind in pairs(names) do
    local id = N.check(C.neap_op_find(name))
    if k > 0 then id = N.check(C.neap_op_copy(id, name .. "_" .. k)) end
    sets[k][name] = bind(id)
    n_kinds = n_kinds + 1
  end
end
assert(n_kinds == N_KINDS)

-- ten ops as a layer would write them, with another set of kinds each time
local function chain()
  local x = x0
  for i = 1, N_OPS / 10 do
    local op = sets[i % 4]
    x = op.scale(x, 1.01)
    x = op.gelu(x)
    x = op.add(x, other)
    x = op.dropout(x, 0.1)
    x = op.layernorm(x, gain, bias, 1e-5)
    x = op.relu(x)
    x = op.transpose(x)
    x = op.multiply(x, other)
    x = op.silu(x)
    x = op.rmsnorm(x, gain, 1e-5)
  end
  sum(x):backward()
end

local function measure()
  scope.run(chain)
  local before = device:memory()
  -- LuaJIT compiles the chain in the first rounds; what it allocates for that is not the chain's
  for _ = 1, 100 do scope.run(chain) end
  collectgarbage()
  collectgarbage()
  local garbage, times = collectgarbage("count"), {}
  for r = 1, rounds do times[r] = 0 end
  for r = 1, rounds do
    local t = C.neap_now()
    scope.run(chain)
    times[r] = (C.neap_now() - t) / N_OPS
  end
  garbage = (collectgarbage("count") - garbage) * 1024 / rounds
  local after = device:memory()
  table.sort(times)
  return { median = times[math.ceil(#times / 2)], least = times[1], garbage = garbage,
    allocations = after.n_device_allocations - before.n_device_allocations,
    left = after.live_bytes - before.live_bytes }
end

local m = measure()
print(string.format("chain of %d ops, %d kinds, forward and backward: median %.0f ns an op, least "
  .. "%.0f", N_OPS, N_KINDS, m.median * 1e9, m.least * 1e9))
print(string.format("after the first step: %d device allocations, %d bytes left; Lua garbage %.2f "
  .. "bytes an op", m.allocations, m.left, m.garbage / N_OPS))
