-- Machines for estimates of time: how many FLOPs and how many bytes a second. Data-sheet numbers
-- are what a machine never exceeds; what plans need is their ratio.
local argument = require("neap.argument")
local device_module = require("neap.device")
local fail = require("neap.fail")
local ffi_neap = require("neap.ffi")
local linear = require("neap.op.linear")
local add = require("neap.op.add")
local scope = require("neap.scope")
local tensor = require("neap.tensor")
local C = ffi_neap.C

local M = {}

---@class neap.Machine
---@field name string
---@field gflops number  10^9 FLOPs a second, f32
---@field gbytes number  10^9 bytes a second to and from memory

-- from the makers' data sheets: f32 without tensor cores
local MACHINES = {
  { name = "a100-80gb", gflops = 19500, gbytes = 2039 },
  { name = "h100-sxm", gflops = 66900, gbytes = 3350 },
  { name = "h200", gflops = 66900, gbytes = 4800 },
  { name = "rtx-3090", gflops = 35600, gbytes = 936 },
  { name = "rtx-4090", gflops = 82600, gbytes = 1008 },
  { name = "v100-sxm2", gflops = 15700, gbytes = 900 },
}

local function rate(amount, rounds, fn)
  fn() -- the first touch of its memory
  local best = math.huge
  for _ = 1, rounds do
    local started = C.neap_now()
    fn()
    best = math.min(best, C.neap_now() - started)
  end
  return amount / math.max(best, 1e-9) / 1e9
end

-- a product of 384 x 384 and a sum of 2^20 numbers: some ten milliseconds
local function calibrate()
  local side, n = 384, 2 ^ 20
  local a, b = tensor.full({ side, side }, 0.5), tensor.full({ side, side }, 0.25)
  local x, y = tensor.full({ n }, 1), tensor.full({ n }, 2)
  return {
    name = "this machine",
    gflops = rate(2 * side ^ 3, 5, function() scope.run(function() linear(a, b) end) end),
    gbytes = rate(3 * 4 * n, 5, function() scope.run(function() add(x, y) end) end),
  }
end

-- in a scope on the cpu; the default device stays what it was
local function on_cpu(fn)
  local before = device_module.current()
  local cpu = device_module.open("cpu")
  device_module.make_current(before)
  return device_module.with(cpu, scope.run, fn)
end

--- A machine by name, { gflops =, gbytes = }, or "this machine": a short measurement on the cpu.
---@param which string|table
---@return neap.Machine
function M.find(which)
  if which == "this machine" then
    return on_cpu(calibrate)
  end
  if type(which) == "table" then
    argument.options(which, "machine", { "name", "gflops", "gbytes" }, "key")
    return { name = which.name and argument.text(which.name, "machine: name") or "by hand",
      gflops = argument.positive(which.gflops, "machine: gflops"),
      gbytes = argument.positive(which.gbytes, "machine: gbytes") }
  end
  local names = { "this machine" }
  for i, machine in ipairs(MACHINES) do
    if machine.name == which then return machine end
    names[i + 1] = machine.name
  end
  fail.usage("profile: %s", fail.unknown("machine", argument.word(which), names))
end

return M
