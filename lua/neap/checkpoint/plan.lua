-- Plans: what to keep, drop, recompute and free, as a list of actions that anyone can check.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local plan_live = require("neap.checkpoint.plan_live")
local stages = require("neap.checkpoint.stages")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

---@class neap.Action
---@field op "forward"|"backward"|"free"
---@field stage number  from 0; of free x the boundary: x_i is stage i's input, x_L the last output
---@field keep "nothing"|"input"|"everything"|nil  of forward
---@field what "x"|"r"|nil  of free
---@field mode string|nil  of forward keeping everything: one of the stage's modes; nil: store all

---@class neap.Plan
---@field spec string  the policy it came from
---@field n_stages number
---@field actions neap.Action[]
---@field notes string[]|nil  sentences to say out loud
---@field measured_peak_bytes number|nil  set after a run, printed beside the prediction
---@field least_bytes number|nil  least feasible plan budget, where somebody knows it
---@field names string[]|nil  of the stages; a profile of other ones is refused
---@field budget_bytes number|nil  the plan budget that it keeps
local Plan = {}
Plan.__index = Plan

-- printing needs the bytes; the plan itself stays plain data
local profiles = setmetatable({}, { __mode = "k" })

Plan.__tostring = function(self)
  return require("neap.checkpoint.plan_table").text(self, profiles[self])
end

--- Writes the plan to a file that neap.plan_load reads. Raises "input/output".
---@param path string
function Plan:save(path)
  require("neap.checkpoint.plan_file").save(self, path)
end

local KEEPS = {
  nothing = C.NEAP_KEEP_NOTHING, input = C.NEAP_KEEP_INPUT, everything = C.NEAP_KEEP_EVERYTHING,
}
local KEEP_NAMES = { "nothing", "input", "everything" }
local OPS = { "forward", "backward", "free" }

-- ---- actions between Lua and C ----

--- Actions as C wrote them.
---@param actions ffi.cdata*  neap_action[n]
---@param n number
---@param profile neap.Profile  knows the names of modes
---@return neap.Action[]
function M.from_c(actions, n, profile)
  local list = {}
  for a = 0, n - 1 do
    local action, stage = actions[a], actions[a].stage
    if action.op == C.NEAP_ACTION_FORWARD then
      list[a + 1] = { op = "forward", stage = stage, keep = KEEP_NAMES[action.keep + 1],
        mode = stages.mode_name(profile.stages[stage + 1], action.mode) }
    elseif action.op == C.NEAP_ACTION_BACKWARD then
      list[a + 1] = { op = "backward", stage = stage }
    else
      local what = action.op == C.NEAP_ACTION_FREE_X and "x" or "r"
      list[a + 1] = { op = "free", what = what, stage = stage }
    end
  end
  return list
end

local function word(place, field, value, names)
  for _, name in ipairs(names) do
    if value == name then return value end
  end
  fail.usage("%s: %s", place, fail.unknown(field, value, names))
end

local function mode_to_c(place, action, profile)
  if profile == false then return 0 end
  local stage = profile and profile.stages[action.stage + 1]
  local number = stage and stages.mode_number(stage, action.mode)
  if not number then
    local names = { "nil (store all)" }
    for _, mode in ipairs(stage and stage.modes or {}) do names[#names + 1] = mode.name end
    fail.usage("%s: stage %d has no mode '%s'; expected %s", place, action.stage,
      argument.word(action.mode), table.concat(names, ", "))
  end
  return number
end

local function action_to_c(place, action, to, profile)
  if type(action) ~= "table" then
    fail.usage("%s is %s; expected a table { op =, stage =, ... }", place, argument.shown(action))
  end
  word(place, "op", action.op, OPS)
  if not whole.is(action.stage, 0, 2 ^ 31 - 1) then
    fail.usage("%s: stage is %s; expected a whole number from 0", place,
      argument.shown(action.stage))
  end
  if action.mode ~= nil then to.mode = mode_to_c(place, action, profile) end
  to.stage = action.stage
  if action.op == "forward" then
    to.op = C.NEAP_ACTION_FORWARD
    to.keep = KEEPS[word(place, "keep", action.keep, KEEP_NAMES)]
  elseif action.op == "backward" then
    to.op = C.NEAP_ACTION_BACKWARD
  else
    local what = word(place, "what", action.what, { "x", "r" })
    to.op = what == "x" and C.NEAP_ACTION_FREE_X or C.NEAP_ACTION_FREE_R
  end
end

--- The actions as C reads them; what is malformed is a usage error.
---@param plan neap.Plan
---@param n_stages number  of the profile
---@param profile neap.Profile|nil|false  knows the names of modes; false: any name is taken
---@return ffi.cdata* actions  neap_action[n]
---@return number n
function M.to_c(plan, n_stages, profile)
  if type(plan) ~= "table" or type(plan.actions) ~= "table" then
    fail.usage("a plan is a table { actions = { { op =, stage = }, ... } }; found %s",
      type(plan) == "table" and "no actions" or argument.shown(plan))
  end
  if plan.n_stages ~= nil and plan.n_stages ~= n_stages then
    fail.usage("the plan is for %s stages, the profile has %d", argument.shown(plan.n_stages),
      n_stages)
  end
  local n = #plan.actions
  local actions = ffi.new("neap_action[?]", math.max(n, 1))
  for a = 1, n do
    action_to_c("plan, action " .. a, plan.actions[a], actions[a - 1], profile)
  end
  return actions, n
end

-- ---- making ----

--- The profile that a plan was made from, when it is known.
---@param plan neap.Plan
---@return neap.Profile|nil
function M.profile_of(plan) return profiles[plan] end

--- Makes a plan of hand-written or planned actions: it prints itself, with bytes when the profile
--- is given.
---@param fields { spec: string, n_stages: number, actions: neap.Action[] }
---@param profile neap.Profile|nil
---@return neap.Plan
function M.new(fields, profile)
  profiles[fields] = profile
  return setmetatable(fields, Plan)
end

--- The plan of a policy for a chain. A budget that no plan keeps: an error, "does not fit".
---@param spec string|table|neap.Policy  see policy.parse
---@param profile neap.Profile
---@param options neap.PlanOptions|nil
---@return neap.Plan
function M.build(spec, profile, options)
  return require("neap.checkpoint.plan_build").build(spec, profile, options)
end

-- ---- judging ----

-- a plan that knows its stages is of no use for others, even where there are as many
local function check_names(plan, profile)
  local list = plan.names
  if type(list) ~= "table" then return end
  for i, stage in ipairs(profile.stages) do
    if list[i] ~= stage.name then
      fail.usage("the plan is of another chain: its stage %d is '%s', the profile's is '%s'", i - 1,
        argument.word(list[i]), stage.name)
    end
  end
end

--- Whether the plan reads only what is there, frees all and runs every backward once.
---@param plan neap.Plan
---@param profile neap.Profile
---@return true|nil
---@return string|nil message  names the action, counted from 1, and the reason
function M.validate(plan, profile)
  local c_stages, n = stages.read(profile)
  local actions, n_actions = M.to_c(plan, n, profile)
  check_names(plan, profile)
  local code = C.neap_plan_validate(n, c_stages, n_actions, actions)
  if code == C.NEAP_ERR_PLAN then return nil, ffi.string(C.neap_last_error()) end
  check(code)
  return true
end

---@class neap.Simulation
---@field peak_bytes number
---@field peak_action number  index in plan.actions, the first one with that peak
---@field cost number  sum over executed actions
---@field forwards number  all forward actions, first ones included
---@field timeline { live_bytes: number, peak_bytes: number }[]  after and inside each action
---@field live neap.Alive[]  what is there in the action of the peak

--- Executes the plan on counters. A plan that is not valid is an error of kind "invalid plan".
---@param plan neap.Plan
---@param profile neap.Profile
---@return neap.Simulation
function M.simulate(plan, profile)
  local c_stages, n = stages.read(profile)
  local actions, n_actions = M.to_c(plan, n, profile)
  check_names(plan, profile)
  local out = ffi.new("neap_simulation")
  local line = ffi.new("int64_t[?]", math.max(2 * n_actions, 1))
  check(C.neap_plan_simulate(n, c_stages, n_actions, actions, out, line))
  local timeline = {}
  for a = 0, n_actions - 1 do
    timeline[a + 1] = {
      live_bytes = tonumber(line[2 * a]), peak_bytes = tonumber(line[2 * a + 1]),
    }
  end
  return {
    peak_bytes = tonumber(out.peak_bytes),
    peak_action = out.peak_action + 1,
    cost = tonumber(out.cost),
    forwards = out.n_forwards,
    timeline = timeline,
    live = plan_live.at(plan, profile, out.peak_action + 1),
  }
end

--- "backward 3 (block.2)", for people.
---@param action neap.Action
---@param profile neap.Profile|nil
---@return string
function M.describe(action, profile)
  local stage = profile and profile.stages[action.stage + 1]
  local name = stage and " (" .. stage.name .. ")" or ""
  if action.op == "free" then return string.format("free %s_%d", action.what, action.stage) end
  local keep = action.keep and ", keep " .. action.keep or ""
  if action.mode then keep = keep .. " (" .. action.mode .. ")" end
  return string.format("%s %d%s%s", action.op, action.stage, name, keep)
end

return M
