-- From a policy to a plan: segments, schedules and the optimal plans come from C, the policies
-- decide stage by stage.
local N = require("neap.ffi")
local bytes = require("neap.bytes")
local fail = require("neap.fail")
local frontier_module = require("neap.checkpoint.frontier")
local keeping = require("neap.checkpoint.keeping")
local names = require("neap.checkpoint.names")
local plans = require("neap.checkpoint.plan")
local policy = require("neap.checkpoint.policy")
local solver = require("neap.checkpoint.solver")
local stages = require("neap.checkpoint.stages")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

---@class neap.PlanOptions
---@field frontier neap.Curve|nil  of this profile, when it is known already
---@field available number|nil  bytes that optimal:auto plans under; nil: it takes the knee

-- actions with room for a plan of the policies and of segments
local function buffer(n) return ffi.new("neap_action[?]", check(C.neap_plan_capacity(n))) end

local function balanced(n_segments, n_stages)
  local segments = ffi.new("neap_segments *[1]")
  check(C.neap_segments_new(n_segments, n_stages, segments))
  local starts = {}
  for k = 0, n_segments - 1 do
    starts[k + 1] = tonumber(C.neap_segments_start(segments[0], k))
  end
  C.neap_segments_free(segments[0])
  return starts
end

local function build_segments(spec, profile, c_stages, n)
  local starts
  if spec.starts then
    starts = names.starts(spec.starts, profile.stages)
  elseif spec.k == "auto" then
    starts = solver.segments_auto(profile)
  elseif spec.k > n then
    fail.usage("%s: this model has %d stages; allowed 1..%d", spec.text, n, n)
  else
    starts = balanced(spec.k, n)
  end
  local actions = buffer(n)
  local n_actions = check(C.neap_plan_from_segments(n, c_stages, #starts,
    ffi.new("int32_t[?]", #starts, starts), actions))
  return plans.from_c(actions, n_actions, profile),
    #starts == 1 and { spec.text .. " keeps everything" } or nil
end

-- every forward that keeps everything does so in the stage's mode
local function set_modes(spec, actions, outcomes, profile)
  for _, action in ipairs(actions) do
    local mode = action.keep == "everything" and outcomes[action.stage + 1].mode
    if mode then
      local stage, name = profile.stages[action.stage + 1], keeping.name(mode)
      if not stages.mode_number(stage, name) then
        fail.usage("%s: stage %d (%s) was not measured in mode '%s'; measure it with "
          .. "neap.profile(model, batch, { modes = { ... } })", spec.text, action.stage, stage.name,
          name)
      end
      action.mode = name
    end
  end
end

local function notes_of(spec, outcomes, profile)
  local n, any = #outcomes, false
  for _, outcome in ipairs(outcomes) do any = any or outcome.drop or outcome.mode ~= nil end
  if outcomes[n].drop then
    return { string.format("%s is the last stage: recomputing it saves nothing, done as asked",
      profile.stages[n].name) }
  end
  if not any and spec.kind ~= "none" then
    return { spec.text .. " drops nothing here: every stage keeps everything" }
  end
end

local function build_outcomes(spec, profile, c_stages, n)
  local outcomes = policy.outcomes(spec, profile.stages)
  local drops, actions = ffi.new("uint8_t[?]", n), buffer(n)
  for i, outcome in ipairs(outcomes) do drops[i - 1] = outcome.drop and 1 or 0 end
  local n_actions = check(C.neap_plan_from_drops(n, c_stages, drops, actions))
  local list = plans.from_c(actions, n_actions, profile)
  set_modes(spec, list, outcomes, profile)
  return list, notes_of(spec, outcomes, profile)
end

local function shown(n_bytes)
  return string.format("%.0f bytes (%s)", n_bytes, bytes.format(n_bytes))
end

local function build_optimal(spec, profile, options)
  local frontier = options.frontier or frontier_module.of(profile)
  local budget = spec.budget
  if budget == "auto" then budget = options.available end
  local k = frontier.knee
  if budget then k = frontier_module.at(frontier, budget) end
  if not k then
    fail.raise("does not fit", string.format("%s: the least feasible peak of these %d stages is "
      .. "%s, the plan budget is %s", spec.text, #profile.stages,
      shown(tonumber(frontier.least_bytes)), shown(budget)))
  end
  return frontier[k].plan, budget
end

local function optimal_notes(spec, budget, profile, plan)
  local notes = {}
  local keep_all = plans.simulate(plans.build("none", profile), profile)
  if budget and budget >= keep_all.peak_bytes then
    notes[1] = string.format("%s: keeping everything takes %s, so nothing is dropped and nothing "
      .. "saved", spec.text, bytes.format(keep_all.peak_bytes))
  end
  for _, note in ipairs(plan.notes or {}) do notes[#notes + 1] = note end
  return notes[1] and notes
end

--- The plan of a policy for a chain. A budget that no plan keeps: an error, "does not fit".
---@param spec string|table|neap.Policy  see policy.parse
---@param profile neap.Profile
---@param options neap.PlanOptions|nil
---@return neap.Plan
function M.build(spec, profile, options)
  spec, options = policy.parse(spec), options or {}
  local c_stages, n = stages.read(profile)
  local fields = { spec = spec.text, n_stages = n, names = {} }
  for i, stage in ipairs(profile.stages) do fields.names[i] = stage.name end
  if spec.kind == "segments" then
    fields.actions, fields.notes = build_segments(spec, profile, c_stages, n)
  elseif spec.kind == "revolve" then
    fields.actions = solver.revolve(profile, spec.slots)
  elseif spec.kind == "optimal" then
    local frontier = options.frontier or frontier_module.of(profile)
    local plan, budget = build_optimal(spec, profile, { frontier = frontier,
      available = options.available })
    fields.actions, fields.least_bytes = plan.actions, frontier.least_bytes
    fields.budget_bytes = budget
    fields.notes = optimal_notes(spec, budget, profile, plan)
  else
    fields.actions, fields.notes = build_outcomes(spec, profile, c_stages, n)
  end
  return plans.new(fields, profile)
end

local function is_profile(value)
  return type(value) == "table" and value.stages ~= nil and value.policy == nil
    and value.rules == nil
end

--- neap.plan(profile, spec) or neap.plan(spec, profile): the plan, or nil and a sentence where no
--- plan keeps the budget.
---@return neap.Plan|nil
---@return string|nil message
function M.plan(first, second)
  local spec, profile = first, second
  if is_profile(first) then spec, profile = second, first end
  if spec == nil then
    fail.usage("plan: expected a profile and a policy, e.g. neap.plan(profile, \"segments:2\")")
  end
  local ok, plan = pcall(M.build, spec, profile)
  if ok then return plan end
  if fail.is(plan, "does not fit") then return nil, plan.message end
  error(plan, 0)
end

return M
