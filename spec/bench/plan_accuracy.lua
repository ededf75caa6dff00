-- How well predicted costs tell step times: a GPT profiled in seconds, planned for 20 budgets, each
-- plan timed in turn. Prints rank correlation and the median error.
-- luajit spec/bench/plan_accuracy.lua [rounds] [layers] [width] [context] [chunk]
local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/../.."
package.path = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;" .. root .. "/build/?.lua;"
  .. package.path
local neap = require("neap")
local C = require("neap.ffi").C
local measure = require("neap.checkpoint.profile").measure
local timing = require("neap.checkpoint.timing")

local N_BUDGETS, VOCABULARY = 20, 86
local rounds, layers = tonumber(arg[1]) or 25, tonumber(arg[2]) or 8
local width, context = tonumber(arg[3]) or 128, tonumber(arg[4]) or 64
local chunk = tonumber(arg[5]) or 2

neap.threads(1)
neap.device("cpu", { budget = "4GiB" })
neap.manual_seed(1)
local model = neap.nn.GPT({ vocabulary = VOCABULARY, context = context, width = width,
  n_layer = layers, n_head = 4 })
local ids = {}
for i = 1, chunk * context do ids[i] = i * 7 % VOCABULARY end
local batch = {
  inputs = neap.tensor(ids, { chunk, context }, { dtype = "i32" }),
  targets = neap.tensor(ids, { chunk, context }, { dtype = "i32" }),
}

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- equal values share the mean of their ranks
local function ranks(list)
  local order, out = {}, {}
  for i = 1, #list do order[i] = i end
  table.sort(order, function(a, b) return list[a] < list[b] end)
  local first = 1
  while first <= #order do
    local last = first
    while last < #order and list[order[last + 1]] == list[order[first]] do last = last + 1 end
    for k = first, last do out[order[k]] = (first + last) / 2 end
    first = last + 1
  end
  return out
end

local function correlation(a, b)
  local n, sum_a, sum_b = #a, 0, 0
  for i = 1, n do sum_a, sum_b = sum_a + a[i], sum_b + b[i] end
  local ab, aa, bb = 0, 0, 0
  for i = 1, n do
    local da, db = a[i] - sum_a / n, b[i] - sum_b / n
    ab, aa, bb = ab + da * db, aa + da * da, bb + db * db
  end
  return ab / math.sqrt(aa * bb)
end

for _ = 1, 3 do neap.step(model, batch, "none") end
local in_flops = neap.profile(model, batch, { cost = "flops" })
local profile = neap.profile(model, batch, { cost = "seconds" })
local frontier = neap.frontier(profile)
local keep_all = neap.simulate(neap.plan("none", profile), profile).peak_bytes
local rows = {}
for k = 1, N_BUDGETS do
  local least = frontier.least_bytes
  local budget = math.floor(least + (keep_all - least) * (k - 1) / (N_BUDGETS - 1))
  local plan = assert(frontier:plan(budget))
  rows[k] = { budget = budget, plan = plan, seconds = {} }
end

-- a shared machine is now faster, now slower: the stages are measured between the steps
local profiles = {}
for round = 0, rounds do
  for k, row in ipairs(rows) do
    if k % 5 == 1 and round > 0 then
      profiles[#profiles + 1] = measure(model, batch, { cost = "seconds" })
    end
    local started = C.neap_now()
    neap.step(model, batch, row.plan)
    if round > 0 then row.seconds[round] = C.neap_now() - started end
  end
end
profile = timing.medians(profiles, in_flops)

local predicted, measured, errors = {}, {}, {}
print(string.format("%12s %14s %14s %8s", "plan budget", "predicted ms", "measured ms", "error"))
for k, row in ipairs(rows) do
  predicted[k] = neap.simulate(row.plan, profile).cost / 1e9
  measured[k] = median(row.seconds)
  errors[k] = math.abs(predicted[k] / measured[k] - 1)
  print(string.format("%8.2f MiB %14.2f %14.2f %7.1f%%", row.budget / 2 ^ 20,
    predicted[k] * 1e3, measured[k] * 1e3, 100 * errors[k]))
end
print(string.format("%d budgets, %d distinct points: rank correlation %.3f, median error %.1f%%",
  N_BUDGETS, #frontier, correlation(ranks(predicted), ranks(measured)), 100 * median(errors)))
