-- What a training step will take, before it runs: the model is built a second time on the null
-- device, where bytes are counted and nothing is computed, and plans are simulated on its profile.
local ffi_neap = require("neap.ffi")
local bytes = require("neap.bytes")
local device_module = require("neap.device")
local fail = require("neap.fail")
local optim = require("neap.optim")
local plan_module = require("neap.checkpoint.plan")
local profile_module = require("neap.checkpoint.profile")
local tensor = require("neap.tensor")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

---@class neap.Forecast
---@field fixed_bytes number        parameters, gradients, buffers, optimizer
---@field fixed table<string, number>  by tag
---@field update_bytes number       transient bytes of clipping and the optimizer
---@field profiles table<integer, neap.Profile>  by chunk
---@field batch_bytes table<integer, number>     by chunk
---@field n_parameters number
local Forecast = {}
Forecast.__index = Forecast

--- The chunks of a global batch: whole ones and perhaps a shorter last one.
---@return integer[]
function M.chunks(global_batch, chunk)
  local list, left = {}, global_batch
  while left > 0 do
    list[#list + 1] = math.min(chunk, left)
    left = left - list[#list]
  end
  return list
end

local function profile_chunk(self, model, device, n, context)
  local before = C.neap_memory_live(device.id)
  local options = { dtype = "i32", device = device, tag = C.NEAP_TAG_BATCH }
  local batch = { inputs = tensor.empty({ n, context }, options),
    targets = tensor.empty({ n, context }, options) }
  self.batch_bytes[n] = C.neap_memory_live(device.id) - before
  self.profiles[n] = profile_module.measure(model, batch, { cost = "flops" })
  batch.inputs:free()
  batch.targets:free()
end

local function build_twin(self, device, o)
  local model = o.build()
  model:zero_grad()
  local optimizer = o.optimizer(model)
  local norm = optim.grad_norm(model:parameters())
  self.fixed = device:memory().tags
  self.fixed_bytes = C.neap_memory_live(device.id)
  self.n_parameters = model:n_parameters()
  check(C.neap_memory_restart(device.id, C.NEAP_METER_ACTION))
  norm:measure()
  optimizer:step(0)
  self.update_bytes = C.neap_memory_peak(device.id, C.NEAP_METER_ACTION) - self.fixed_bytes
  for _, n in ipairs(o.chunks) do
    if not self.profiles[n] then profile_chunk(self, model, device, n, o.context) end
  end
  optimizer:free()
  model:free()
end

--- Measures on null what a model takes. build() makes it, optimizer(model) its optimizer.
---@param o { build: fun(): neap.Chain, optimizer: fun(m: neap.Chain), chunks: integer[],
---  context: integer }
---@return neap.Forecast
function M.new(o)
  local self = setmetatable({ profiles = {}, batch_bytes = {}, chunks = o.chunks }, Forecast)
  local before = device_module.current()
  local device = device_module.open("null", { size = 0 })
  local ok, err = pcall(device_module.with, device, build_twin, self, device, o)
  device_module.make_current(before)
  if ok then device:close() end
  if not ok then error(err, 0) end
  return self
end

---@class neap.Prediction
---@field plans table<integer, neap.Plan>  by chunk
---@field peak_bytes number   of a step, all tags
---@field plan_bytes number   of forward and backward beyond fixed bytes and batch
---@field cost number         FLOPs of a step's forward and backward
---@field recomputed integer  forwards run again, in the last chunk
---@field where string        the action of the peak

--- What a policy takes in a step.
---@param spec string|table
---@return neap.Prediction
function Forecast:predict(spec)
  local p = { plans = {}, plan_bytes = 0, cost = 0, where = "update" }
  p.peak_bytes = self.fixed_bytes + self.update_bytes
  for _, n in ipairs(self.chunks) do
    local profile = self.profiles[n]
    if not p.plans[n] then p.plans[n] = plan_module.build(spec, profile) end
    local sim = plan_module.simulate(p.plans[n], profile)
    local total = self.fixed_bytes + self.batch_bytes[n] + sim.peak_bytes
    if total > p.peak_bytes then
      p.peak_bytes = total
      p.where = plan_module.describe(p.plans[n].actions[sim.peak_action], profile)
    end
    p.plan_bytes = math.max(p.plan_bytes, sim.peak_bytes)
    p.cost = p.cost + sim.cost
    p.recomputed = sim.forwards - #profile.stages
  end
  return p
end

--- The policies that a table compares: those of every chain, and the one in use.
---@param in_use string
---@return { spec: string, prediction: neap.Prediction, extra_cost: number }[]
function Forecast:policies(in_use)
  local n_stages = #self.profiles[self.chunks[1]].stages
  local specs, rows, seen = { "none", "every_n:2" }, {}, {}
  for k = 2, math.min(n_stages, 5) do specs[#specs + 1] = "segments:" .. k end
  specs[#specs + 1] = "all"
  if in_use then specs[#specs + 1] = in_use end
  local base = self:predict("none").cost
  for _, spec in ipairs(specs) do
    if not seen[spec] then
      seen[spec] = true
      local prediction = self:predict(spec)
      rows[#rows + 1] = { spec = spec, prediction = prediction,
        extra_cost = base > 0 and prediction.cost / base - 1 or 0 }
    end
  end
  table.sort(rows, function(a, b)
    if a.prediction.peak_bytes ~= b.prediction.peak_bytes then
      return a.prediction.peak_bytes > b.prediction.peak_bytes
    end
    if a.extra_cost ~= b.extra_cost then return a.extra_cost > b.extra_cost end
    return a.spec < b.spec
  end)
  return rows
end

--- The table as text: a row a policy, peak, what it costs, whether it fits.
---@param in_use string
---@param budget number|nil
---@return string
function Forecast:policy_table(in_use, budget)
  local lines = { string.format("  %-14s %14s %14s %12s  %s", "checkpoint", "peak of a step",
    "activations", "extra FLOPs", budget and "budget " .. bytes.format(budget) or "") }
  for _, row in ipairs(self:policies(in_use)) do
    local p = row.prediction
    local verdict = budget and (p.peak_bytes <= budget and "fits" or "does not fit") or ""
    lines[#lines + 1] = string.format("%s %-14s %14s %14s %11.1f%%  %s",
      row.spec == in_use and ">" or " ", row.spec, bytes.format(p.peak_bytes),
      bytes.format(p.plan_bytes), 100 * row.extra_cost, verdict)
  end
  return (table.concat(lines, "\n"):gsub(" +\n", "\n"):gsub(" +$", ""))
end

--- Raises "does not fit" with the numbers and the cheapest policy of the table that would fit.
---@param spec string
---@param prediction neap.Prediction
---@param budget number
function Forecast:refuse(spec, prediction, budget)
  local best, least
  for _, row in ipairs(self:policies()) do
    local peak = row.prediction.peak_bytes
    if peak <= budget and (not best or row.extra_cost < best.extra_cost) then best = row end
    if not least or peak < least.prediction.peak_bytes then least = row end
  end
  local advice = best and string.format("checkpoint = %s fits with %d bytes", best.spec,
    best.prediction.peak_bytes)
    or string.format("the least of the listed policies is %s with %d bytes; a smaller chunk takes "
      .. "less", least.spec, least.prediction.peak_bytes)
  fail.raise("does not fit", string.format("checkpoint %s needs %.0f bytes (%s; %.0f fixed: "
    .. "parameters, gradients, optimizer; %.0f in forward and backward, most in %s), the budget is "
    .. "%.0f bytes (%s); %s", spec, prediction.peak_bytes, bytes.format(prediction.peak_bytes),
    self.fixed_bytes, prediction.plan_bytes, prediction.where, budget, bytes.format(budget),
    advice))
end

return M
