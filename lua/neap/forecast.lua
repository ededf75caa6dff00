-- What a training step will take, before it runs: the model is built a second time on the null
-- device, where bytes are counted and nothing is computed, and plans are simulated on its profile.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local bytes = require("neap.bytes")
local device_module = require("neap.device")
local executor_module = require("neap.checkpoint.executor")
local fail = require("neap.fail")
local frontier_module = require("neap.checkpoint.frontier")
local keeping = require("neap.checkpoint.keeping")
local optim = require("neap.optim")
local plan_module = require("neap.checkpoint.plan")
local policy = require("neap.checkpoint.policy")
local profile_module = require("neap.checkpoint.profile")
local tensor = require("neap.tensor")
local text = require("neap.forecast_text")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

local MOST_SOLVED = 340

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
  argument.whole(global_batch, "chunks: the global batch", 1)
  argument.whole(chunk, "chunks: the chunk", 1)
  local list, left = {}, global_batch
  while left > 0 do
    list[#list + 1] = math.min(chunk, left)
    left = left - list[#list]
  end
  return list
end

-- n items of tokens, as the trainer makes them
local function token_batch(context)
  return function(n)
    local options = { dtype = "i32", tag = C.NEAP_TAG_BATCH }
    return { inputs = tensor.empty({ n, context }, options),
      targets = tensor.empty({ n, context }, options) }
  end
end

local function profile_chunk(self, model, device, n, make_batch)
  local before = C.neap_memory_live(device.id)
  local batch = make_batch(n)
  self.batch_bytes[n] = C.neap_memory_live(device.id) - before
  self.profiles[n] = profile_module.measure(model, batch, { cost = "flops",
    modes = #self.modes > 0 and self.modes or nil })
  batch.inputs:free()
  batch.targets:free()
end

local function build_twin(self, device, o)
  local model = o.build()
  model:zero_grad()
  local optimizer = o.optimizer(model)
  local norm = optim.grad_norm(model:parameters())
  -- what it holds beside the model is there in every step
  local executor = executor_module.new(model)
  self.fixed = device:memory().tags
  self.fixed_bytes = C.neap_memory_live(device.id)
  self.n_parameters = model:n_parameters()
  check(C.neap_memory_restart(device.id, C.NEAP_METER_ACTION))
  norm:measure()
  optimizer:step(0)
  self.update_bytes = C.neap_memory_peak(device.id, C.NEAP_METER_ACTION) - self.fixed_bytes
  local make_batch = o.batch or token_batch(o.context)
  for _, n in ipairs(o.chunks) do
    if not self.profiles[n] then profile_chunk(self, model, device, n, make_batch) end
  end
  executor:free()
  optimizer:free()
  model:free()
end

-- fn(self, device, about) with a null device of its own
local function on_null(fn, self, about)
  local before = device_module.current()
  local device = device_module.open("null", { size = 0 })
  local ok, err = pcall(device_module.with, device, fn, self, device, about)
  device_module.make_current(before)
  if ok then device:close() end
  if not ok then error(err, 0) end
end

--- Measures on null what a model takes. build() makes it, optimizer(model) its optimizer.
---@param o { build: fun(): neap.Chain, optimizer: fun(m: neap.Chain), chunks: integer[],
---  context: integer?, batch: (fun(n: integer): table)?, modes: neap.Mode[]?, budget: number? }
---  batch makes n items on the current device, tagged as such (nil: context tokens an item);
---  budget: of the device, what optimal:auto plans under
---@return neap.Forecast
function M.new(o)
  local self = setmetatable({ profiles = {}, frontiers = {}, batch_bytes = {}, chunks = o.chunks,
    modes = o.modes or {}, budget = o.budget, options = o }, Forecast)
  on_null(build_twin, self, o)
  return self
end

local function profile_more(self, device, chunks)
  local model = self.options.build()
  local make_batch = self.options.batch or token_batch(self.options.context)
  for _, n in ipairs(chunks) do
    if not self.profiles[n] then profile_chunk(self, model, device, n, make_batch) end
  end
  model:free()
end

--- Measures chunks that were not among those of the start.
---@param chunks integer[]
function Forecast:ensure(chunks)
  for _, n in ipairs(chunks) do
    if not self.profiles[n] then return on_null(profile_more, self, chunks) end
  end
end

---@class neap.Prediction
---@field plans table<integer, neap.Plan>  by chunk
---@field peak_bytes number   of a step, all tags
---@field plan_bytes number   of forward and backward beyond fixed bytes and batch
---@field cost number         FLOPs of a step's forward and backward
---@field recomputed integer  forwards run again, in the last chunk
---@field where string        the action of the peak
---@field chunk integer|nil   the chunk of the peak; nil: the update has it
---@field infeasible string|nil  why no plan keeps the budget; all else is then of the least plan

-- the whole curve of a chunk's chain, solved once
local function frontier_of(self, n)
  if not self.frontiers[n] then
    self.frontiers[n] = frontier_module.of(self.profiles[n])
  end
  return self.frontiers[n]
end

-- the plan of a chunk; under a budget that none keeps the least one and a sentence
local function plan_chunk(self, spec, n)
  if spec.kind ~= "optimal" then return plan_module.build(spec, self.profiles[n]) end
  local frontier = frontier_of(self, n)
  local available = self.budget
    and math.max(0, self.budget - self.fixed_bytes - self.batch_bytes[n])
  local ok, plan = pcall(plan_module.build, spec, self.profiles[n],
    { frontier = frontier, available = available })
  if ok then return plan end
  if not fail.is(plan, "does not fit") then error(plan, 0) end
  return frontier[1].plan, plan.message
end

--- What a policy takes in a step.
---@param spec string|table
---@param chunks integer[]|nil  other ones than those of the start
---@return neap.Prediction
function Forecast:predict(spec, chunks)
  spec = policy.parse(spec)
  chunks = chunks or self.chunks
  self:ensure(chunks)
  local p = { plans = {}, plan_bytes = 0, cost = 0, where = "update" }
  p.peak_bytes = self.fixed_bytes + self.update_bytes
  for _, n in ipairs(chunks) do
    local profile = self.profiles[n]
    if not p.plans[n] then
      local message
      p.plans[n], message = plan_chunk(self, spec, n)
      p.infeasible = p.infeasible or message
    end
    local sim = plan_module.simulate(p.plans[n], profile)
    local total = self.fixed_bytes + self.batch_bytes[n] + sim.peak_bytes
    if total > p.peak_bytes then
      p.peak_bytes, p.chunk = total, n
      p.where = plan_module.describe(p.plans[n].actions[sim.peak_action], profile)
    end
    p.plan_bytes = math.max(p.plan_bytes, sim.peak_bytes)
    p.cost = p.cost + sim.cost
    p.recomputed = sim.forwards - #profile.stages
  end
  return p
end

--- The policies that a table compares: those of every chain, and the one in use.
---@param in_use string|neap.Policy|nil
---@return { spec: string, prediction: neap.Prediction, extra_cost: number }[]
function Forecast:policies(in_use)
  local n_stages = #self.profiles[self.chunks[1]].stages
  local specs, rows, seen = { "none", "every_n:2" }, {}, {}
  for k = 2, math.min(n_stages, 5) do specs[#specs + 1] = "segments:" .. k end
  for _, mode in ipairs(self.modes) do specs[#specs + 1] = "selective:" .. keeping.name(mode) end
  specs[#specs + 1] = "segments:auto"
  specs[#specs + 1] = "all"
  -- a long chain is solved only for a policy that asks for it
  if n_stages <= MOST_SOLVED then specs[#specs + 1] = "optimal:auto" end
  if in_use then specs[#specs + 1] = in_use end
  local base = self:predict("none").cost
  for _, one in ipairs(specs) do
    local spec = tostring(one)
    if not seen[spec] then
      seen[spec] = true
      local prediction = self:predict(one)
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
  return text.policies(self, in_use, budget)
end

--- Where a step's bytes go, a row each: fixed ones by tag, what is alive at the peak, the peak.
---@param prediction neap.Prediction
---@return string
function Forecast:memory_table(prediction) return text.memory(self, prediction) end

-- the cheapest policy of the table that fits, or the least that anything takes
local function advice(self, budget)
  local best, least
  for _, row in ipairs(self:policies()) do
    local peak = row.prediction.peak_bytes
    if peak <= budget and not row.prediction.infeasible
      and (not best or row.extra_cost < best.extra_cost) then best = row end
    if not least or peak < least.prediction.peak_bytes then least = row end
  end
  return best and string.format("checkpoint = %s fits with %.0f bytes", best.spec,
    best.prediction.peak_bytes)
    or string.format("the least of all plans takes %.0f bytes (%s); a smaller chunk takes less",
      least.prediction.peak_bytes, bytes.format(least.prediction.peak_bytes))
end

--- Raises "does not fit" where no plan keeps the plan budget, or the step is above the device
--- budget; with the numbers and what would fit.
---@param spec string
---@param prediction neap.Prediction
---@param budget number|nil  of the device
function Forecast:refuse(spec, prediction, budget)
  local over = budget and prediction.peak_bytes > budget
  if prediction.infeasible and not (over and spec == "optimal:auto") then
    fail.raise("does not fit", prediction.infeasible)
  end
  if not over then return end
  fail.raise("does not fit", string.format("checkpoint %s needs %.0f bytes (%s; %.0f fixed: "
    .. "parameters, gradients, optimizer; %.0f in forward and backward, most in %s), the budget is "
    .. "%.0f bytes (%s); %s", spec, prediction.peak_bytes, bytes.format(prediction.peak_bytes),
    self.fixed_bytes, prediction.plan_bytes, prediction.where, budget, bytes.format(budget),
    advice(self, budget)))
end

return M
