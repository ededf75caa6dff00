-- Profiles whose costs are time: measured (medians of a few runs, averaged over equal stages), or
-- estimated for a named machine from FLOPs and bytes. Costs are whole nanoseconds.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local machines = require("neap.checkpoint.machines")
local profile_module = require("neap.checkpoint.profile")
local stage_run = require("neap.checkpoint.stage_run")
local tensor = require("neap.tensor")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

local COSTS = { "forward_cost", "backward_cost", "recompute_cost" }

-- fn(table, key) on each cost of a stage and of its modes
local function each_cost(stage, fn)
  for _, key in ipairs(COSTS) do
    if stage[key] then fn(stage, key, key) end
  end
  for _, mode in ipairs(stage.modes or {}) do
    for _, key in ipairs(COSTS) do
      if mode[key] then fn(mode, key, mode.name .. "." .. key) end
    end
  end
end

local function text_of(value)
  if type(value) ~= "table" then return tostring(value) end
  local keys, parts = {}, {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i, key in ipairs(keys) do parts[i] = tostring(key) .. "=" .. text_of(value[key]) end
  return "{" .. table.concat(parts, ",") .. "}"
end

--- What stages have to have in common to cost the same: all bytes, sources and FLOPs. It is of a
--- profile in FLOPs.
---@param stage neap.StageProfile
---@return string
function M.signature(stage)
  local copy = {}
  for key, value in pairs(stage) do copy[key] = value end
  copy.name = nil
  return text_of(copy)
end

local function median(list)
  table.sort(list)
  local middle = (#list + 1) / 2
  return (list[math.floor(middle)] + list[math.ceil(middle)]) / 2
end

--- Costs of equal stages become their mean, so that noise does not make them differ.
---@param profile neap.Profile  changed
---@param signatures string[]  by stage
function M.average(profile, signatures)
  local sums = {}
  for i, stage in ipairs(profile.stages) do
    local group = sums[signatures[i]] or { n = 0 }
    sums[signatures[i]] = group
    group.n = group.n + 1
    each_cost(stage, function(from, key, name) group[name] = (group[name] or 0) + from[key] end)
  end
  for i, stage in ipairs(profile.stages) do
    local group = sums[signatures[i]]
    each_cost(stage, function(to, key, name) to[key] = math.floor(group[name] / group.n + 0.5) end)
  end
end

local function signatures_of(profile)
  local list = {}
  for i, stage in ipairs(profile.stages) do list[i] = M.signature(stage) end
  return list
end

--- One profile of several in seconds: medians of each cost, then means over equal stages.
---@param profiles neap.Profile[]  of one chain; the last one is changed
---@param in_flops neap.Profile  of the same chain: it tells which stages are equal
---@return neap.Profile
function M.medians(profiles, in_flops)
  local costs = {}
  for i = 1, #in_flops.stages do
    costs[i] = {}
    for _, profile in ipairs(profiles) do
      each_cost(profile.stages[i], function(from, key, name)
        costs[i][name] = costs[i][name] or {}
        table.insert(costs[i][name], from[key])
      end)
    end
  end
  local profile = profiles[#profiles]
  for i, stage in ipairs(profile.stages) do
    each_cost(stage, function(to, key, name) to[key] = median(costs[i][name]) end)
  end
  M.average(profile, signatures_of(in_flops))
  return profile
end

-- the first profile, in FLOPs, says which stages are equal, and warms up
local function in_seconds(chain, batch, runs, options)
  local in_flops, profiles = profile_module.measure(chain, batch, options("flops")), {}
  for run = 1, runs do profiles[run] = profile_module.measure(chain, batch, options("seconds")) end
  return M.medians(profiles, in_flops)
end

local MOVED = { forward_cost = "forward_moved_bytes", backward_cost = "backward_moved_bytes",
  recompute_cost = "recompute_moved_bytes" }

-- as counted op by op; of a written profile what is moved at least: its input, and each byte that
-- it makes, written and read once
local function moved_bytes(stage, input, key, of)
  if of[MOVED[key]] then return of[MOVED[key]] end
  local made = stage.out_bytes + stage.saved_bytes
  if key == "backward_cost" then
    return input + 2 * made + stage.out_bytes + (stage.grad_bytes or 0)
      + 2 * stage.backward_extra_bytes
  end
  return input + 2 * made + 2 * stage.forward_extra_bytes
end

--- Turns FLOPs into nanoseconds of a machine: as long as the products take, and the bytes.
---@param profile neap.Profile  in FLOPs; changed
---@param machine neap.Machine
function M.estimate(profile, machine)
  local input = 0
  for _, stage in ipairs(profile.stages) do
    each_cost(stage, function(to, key)
      local moved = moved_bytes(stage, input, key, to)
      to[key] = math.floor(to[key] / machine.gflops + moved / machine.gbytes + 0.5)
    end)
    input = stage.out_bytes
  end
  profile.unit, profile.machine = "nanoseconds", machine.name
end

local function default_cost(batch)
  argument.table(batch, "profile: batch", "a table { inputs =, targets = }")
  local device = check(C.neap_tensor_device(tensor.id_of(batch.inputs, "profile: batch.inputs")))
  return C.neap_device_computes(device) == 1 and "seconds" or "flops"
end

local WORDS = { "flops", "seconds", "estimate" }

--- neap.profile: bytes exact, costs as asked. "seconds" runs the stages on the batch's device,
--- `runs` times; "estimate" counts FLOPs and bytes and divides by what a machine does (also on
--- null). Without `cost`: seconds where kernels run, else FLOPs.
---@param chain neap.Chain
---@param batch { inputs: neap.Tensor, targets: neap.Tensor? }
---@param options? { cost?: "flops"|"seconds"|"estimate", runs?: integer, machine?: string|table,
---  modes?: (string|neap.Mode)[], check?: "shape"|"value"|"none" }
---@return neap.Profile
function M.profile(chain, batch, options)
  stage_run.check_chain(chain, "profile")
  options = argument.options(options, "profile", { "cost", "runs", "machine", "modes",
    "check" })
  local cost, runs = options.cost, options.runs
  if cost ~= nil and cost ~= "flops" and cost ~= "seconds" and cost ~= "estimate" then
    fail.usage("profile: %s", fail.unknown("cost", argument.word(cost), WORDS))
  end
  if runs ~= nil then argument.whole(runs, "profile: runs", 1, 1000) end
  if options.machine ~= nil and cost ~= "estimate" then
    fail.usage("profile: a machine is for cost = \"estimate\"")
  end
  local function inner(kind)
    return { cost = kind, modes = options.modes, check = options.check }
  end
  if cost == "estimate" then
    local machine = machines.find(options.machine or "this machine")
    local profile = profile_module.measure(chain, batch, inner("flops"))
    M.estimate(profile, machine)
    return profile
  end
  if cost == nil then cost = default_cost(batch) end
  if cost == "seconds" then return in_seconds(chain, batch, runs or 3, inner) end
  return profile_module.measure(chain, batch, inner(cost))
end

return M
