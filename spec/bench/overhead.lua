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
local bases = { { "scale", 1, 1.01 }, { "gelu", 1 }, { "relu", 1 }, { "silu", 1 },
  { "dropout", 1, 0.1 }, { "add", 2 }, { "multiply", 2 }, { "layernorm", 3, 1e-5 },
  { "rmsnorm", 2, 1e-5 }, { "transpose", 1 } }
local other = neap.full({ SIDE, SIDE }, 1)
local gain, bias = neap.full({ SIDE }, 1), neap.full({ SIDE }, 0)
local kinds = {}
for k = 1, N_KINDS do
  local base = bases[(k - 1) % #bases + 1]
  local id = k <= #bases and N.check(C.neap_op_find(base[1]))
    or N.check(C.neap_op_copy(C.neap_op_find(base[1]), base[1] .. "_" .. k))
  local name = base[1]
  kinds[k] = { n = base[2], p = base[3] or 0, name = name,
    second = name == "rmsnorm" and gain or other,
    run = base[2] == 1 and apply.bind1(id) or base[2] == 2 and apply.bind2(id) or apply.bind3(id) }
end

local x0 = neap.full({ SIDE, SIDE }, 0.5, { requires_grad = true })
x0:zero_grad()
local sum = neap.op.sum

-- the chain as a training script would write it: an op after another
local steps = {}
for i = 1, N_OPS do steps[i] = kinds[(i - 1) % N_KINDS + 1] end

local function chain()
  local x = x0
  for i = 1, N_OPS do
    local kind = steps[i]
    if kind.n == 1 then
      x = kind.run(x, kind.p)
    elseif kind.n == 2 then
      x = kind.run(x, kind.second, kind.p)
    else
      x = kind.run(x, gain, bias, kind.p)
    end
  end
  sum(x, nil):backward()
end

local function measure()
  for _ = 1, 3 do scope.run(chain) end
  collectgarbage()
  collectgarbage()
  local garbage, before = collectgarbage("count"), device:memory()
  local times = {}
  for r = 1, rounds do
    local t = C.neap_now()
    scope.run(chain)
    times[r] = (C.neap_now() - t) / N_OPS
  end
  local after = device:memory()
  table.sort(times)
  return times[math.ceil(#times / 2)], times[1],
    after.n_device_allocations - before.n_device_allocations,
    after.live_bytes - before.live_bytes,
      (collectgarbage("count") - garbage) * 1024 / rounds / N_OPS
end

local median, least, allocations, leaked, garbage = measure()
print(string.format("chain of %d ops, %d kinds, forward and backward: median %.0f ns an op, "
  .. "least %.0f",
  N_OPS, N_KINDS, median * 1e9, least * 1e9))
print(string.format("device allocations after the first steps: %d; bytes left: %d; Lua "
  .. "garbage: %.1f "
  .. "bytes an op", allocations, leaked, garbage))
