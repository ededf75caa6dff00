-- The plans of a chunk probe: of a policy that does not look at bytes one plan for every size, from
-- the stages' names or a profile of few items; else what the caller's function gives for a size.
local argument = require("neap.argument")
local fail = require("neap.fail")
local plans = require("neap.checkpoint.plan")
local policy = require("neap.checkpoint.policy")
local profile_module = require("neap.checkpoint.profile")

local M = {}

---@class neap.ChunkPlans
local Plans = {}
Plans.__index = Plans

-- bytes are those of one size; another one may have to drop other stages
local function looks_at_bytes(spec)
  return spec.kind == "greedy" or spec.kind == "optimal" or spec.k == "auto"
end

local function is_plan(value) return type(value) == "table" and type(value.actions) == "table" end

--- What a script said: nothing (none), a policy, a plan, or function(n) -> plan.
---@return neap.ChunkPlans
function M.of(plan)
  if type(plan) == "function" then return setmetatable({ make = plan }, Plans) end
  if is_plan(plan) then return setmetatable({ plan = plan }, Plans) end
  if plan == nil then plan = "none" end
  local spec = policy.parse(plan)
  if looks_at_bytes(spec) then
    fail.usage("auto_chunk: %s looks at bytes, which are others for each size; give plan = "
      .. "function(n) that returns neap.plan(PROFILE OF n ITEMS, \"%s\")", spec.text, spec.text)
  end
  return setmetatable({ spec = spec }, Plans)
end

-- all that a plan needs to know where no bytes count
local function named(chain)
  local stages = {}
  for i, stage in ipairs(chain.stages) do
    stages[i] = { name = stage.name, out_bytes = 0, saved_bytes = 0, forward_extra_bytes = 0,
      backward_extra_bytes = 0, forward_cost = 1, backward_cost = 1, stops_early = true,
      recompute_cost = 1, recompute_extra_bytes = 0 }
  end
  return { stages = stages }
end

--- Before the first trial. A mode's kept outputs are found by running the stages, on the smallest
--- size: a profile of a larger one may run out of memory where the plan itself does not.
---@param probe { model: neap.Chain, batch: fun(n: integer): table, floor: integer }
---@param run fun(look: function, fn: function): any  unchanged.run
function Plans:prepare(probe, run)
  if not self.spec then return end
  local modes, profile = policy.modes(self.spec), nil
  if #modes > 0 then
    profile = run(function(ok, result)
      if not ok then error(result, 0) end
      return result
    end, function()
      return profile_module.measure(probe.model, argument.table(probe.batch(probe.floor),
        "auto_chunk: what batch returns", "a table { inputs =, targets = }"),
        { cost = "flops", modes = modes })
    end)
  end
  self.plan = plans.build(self.spec, profile or named(probe.model))
end

--- The plan of n items; nil and a sentence where no plan keeps its budget.
---@return neap.Plan|nil
---@return string|nil
function Plans:at(_, n)
  if self.plan then return self.plan end
  local plan, message = self.make(n)
  if plan == nil and type(message) == "string" then return nil, message end
  if not is_plan(plan) then
    fail.usage("auto_chunk: plan(%d) returned %s, expected a plan (neap.plan)", n,
      argument.shown(plan))
  end
  return plan
end

return M
