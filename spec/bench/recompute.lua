-- What recomputing every block costs: GPT of 12 blocks, width 256, 4 x 256 tokens, keep-all and
-- every block recomputed in turn, and which ops run again. luajit spec/bench/recompute.lua [rounds]
local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/../.."
package.path = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;" .. root .. "/build/?.lua;"
  .. package.path
local neap = require("neap")
local ffi_neap = require("neap.ffi")
local C, ffi = ffi_neap.C, ffi_neap.ffi

local rounds, N_LAYER, WIDTH, BATCH, CONTEXT = tonumber(arg[1]) or 15, 12, 256, 4, 256
neap.threads(tonumber(arg[2]) or 1)
neap.device("cpu")
neap.manual_seed(1)
local model = neap.nn.GPT({ vocabulary = 256, context = CONTEXT, width = WIDTH, n_head = 8,
  n_layer = N_LAYER })
local ids = {}
for i = 1, BATCH * CONTEXT do ids[i] = (i * 31) % 256 end
local batch = { inputs = neap.tensor(ids, { BATCH, CONTEXT }, { dtype = "i32" }),
  targets = neap.tensor(ids, { BATCH, CONTEXT }, { dtype = "i32" }) }

local blocks = {}
for i = 0, N_LAYER - 1 do blocks[i + 1] = "block." .. i end
local profile = neap.profile(model, batch, { cost = "flops", modes = { "matmul" } })
local plans = {
  { name = "none", plan = neap.plan("none", profile) },
  { name = "every block", plan = neap.plan({ policy = "by_name", names = blocks }, profile) },
  { name = "selective:matmul", plan = neap.plan("selective:matmul", profile) },
}

local linear = C.neap_op_find("linear")
local counters = ffi.new("neap_counters")

local function linears()
  C.neap_counters_of(linear, counters)
  return counters.n_forwards, counters.forward_flops
end

local executor = neap.executor(model)
executor:use_profile(profile)
local function step(plan)
  local calls, flops = linears()
  local started = C.neap_now()
  executor:run(batch, plan)
  local seconds = C.neap_now() - started
  local calls_after, flops_after = linears()
  return seconds, calls_after - calls, flops_after - flops
end

for _, p in ipairs(plans) do
  p.seconds, p.ratios = {}, {}
  step(p.plan)
end
for _ = 1, rounds do
  local base
  for _, p in ipairs(plans) do
    local seconds, calls, flops = step(p.plan)
    base = base or seconds
    p.seconds[#p.seconds + 1], p.calls, p.flops = seconds, calls, flops
    p.ratios[#p.ratios + 1] = seconds / base
  end
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local base = neap.simulate(plans[1].plan, profile)
for _, p in ipairs(plans) do
  local sim = neap.simulate(p.plan, profile)
  print(string.format("%-16s %7.1f ms a step, ratio %.3f (of medians %.3f, of FLOPs %.3f); "
    .. "linear: %d more calls, %.4f of their FLOPs again; peak %.1f MiB", p.name,
    median(p.seconds) * 1000, median(p.ratios), median(p.seconds) / median(plans[1].seconds),
    sim.cost / base.cost, p.calls - plans[1].calls,
    (p.flops - plans[1].flops) / (N_LAYER * 12 * 2 * BATCH * CONTEXT * WIDTH * WIDTH),
    sim.peak_bytes / 2 ^ 20))
end
