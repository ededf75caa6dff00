-- A chain of 1,000 steps in time: step time and peak under segments against keep-all, in turn.
-- luajit spec/bench/recurrent.lua [rounds]
local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/../.."
package.path = root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;" .. root .. "/build/?.lua;"
  .. package.path
local neap = require("neap")
local C = require("neap.ffi").C

local rounds = tonumber(arg[1]) or 5
local N, TIME, HIDDEN, VOCABULARY = 8, 1000, 64, 96
local SPECS = { "none", "all", "segments:8", "segments:32", "segments:100" }

local device = neap.device("cpu")
neap.threads(1)

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local function tokens(step)
  local list = {}
  for i = 1, N * TIME do list[i] = i * i * step % VOCABULARY end
  return neap.tensor(list, { N, TIME }, { dtype = "i32" })
end

for _, cell in ipairs({ "lstm", "gru" }) do
  local model = neap.nn.Recurrent({ vocabulary = VOCABULARY, time = TIME, hidden = HIDDEN,
    cell = cell })
  local batch = { inputs = tokens(1), targets = tokens(5) }
  local profile = neap.profile(model, batch, { cost = "flops" })
  local executor, runs = neap.executor(model), {}
  for i, spec in ipairs(SPECS) do
    runs[i] = { plan = neap.plan(spec, profile), seconds = {} }
    for _ = 1, 2 do executor:run(batch, runs[i].plan) end
  end
  for _ = 1, rounds do
    for _, r in ipairs(runs) do
      local live = C.neap_memory_live(device.id)
      C.neap_memory_restart(device.id, C.NEAP_METER_RUN)
      local started = C.neap_now()
      executor:run(batch, r.plan)
      r.seconds[#r.seconds + 1] = C.neap_now() - started
      r.peak = C.neap_memory_peak(device.id, C.NEAP_METER_RUN) - live
    end
  end
  local base = median(runs[1].seconds)
  for i, r in ipairs(runs) do
    local seconds = median(r.seconds)
    print(string.format("%s %-12s %6.1f ms a step (%4.1f us a stage), ratio to none %.2f, peak "
      .. "%8.1f KiB (predicted %.1f)", cell, SPECS[i], seconds * 1e3, seconds / TIME * 1e6,
      seconds / base, r.peak / 1024, neap.simulate(r.plan, profile).peak_bytes / 1024))
  end
  model:free()
end
