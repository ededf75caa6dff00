-- Plans: what to keep, drop, recompute and free, as a list of actions that anyone can check.
local N = require("neap.ffi")
local fail = require("neap.fail")
local plan_live = require("neap.checkpoint.plan_live")
local policy = require("neap.checkpoint.policy")
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
local Plan = {}
Plan.__index = Plan

-- printing needs the bytes; the plan itself stays plain data
local profiles = setmetatable({}, { __mode = "k" })

Plan.__tostring = function(self)
  return require("neap.checkpoint.plan_table").text(self, profiles[self])
end

local KEEPS = {
  nothing = C.NEAP_KEEP_NOTHING, input = C.NEAP_KEEP_INPUT, everything = C.NEAP_KEEP_EVERYTHING,
}
local KEEP_NAMES = { "nothing", "input", "everything" }
local OPS = { "forward", "backward", "free" }

-- ---- actions between Lua and C ----

local function from_c(actions, n)
  local list = {}
  for a = 0, n - 1 do
    local action, stage = actions[a], actions[a].stage
    if action.op == C.NEAP_ACTION_FORWARD then
      list[a + 1] = { op = "forward", stage = stage, keep = KEEP_NAMES[action.keep + 1] }
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
  local stage = profile and profile.stages[action.stage + 1]
  local number = stage and stages.mode_number(stage, action.mode)
  if not number then
    local names = { "nil (store all)" }
    for _, mode in ipairs(stage and stage.modes or {}) do names[#names + 1] = mode.name end
    fail.usage("%s: stage %d has no mode '%s'; expected %s", place, action.stage,
      tostring(action.mode), table.concat(names, ", "))
  end
  return number
end

local function action_to_c(place, action, to, profile)
  if type(action) ~= "table" then
    fail.usage("%s is %s; expected a table { op =, stage =, ... }", place, tostring(action))
  end
  word(place, "op", action.op, OPS)
  if not whole.is(action.stage, 0, 2 ^ 31 - 1) then
    fail.usage("%s: stage is %s; expected a whole number from 0", place, tostring(action.stage))
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
---@param profile neap.Profile|nil  knows the names of modes
---@return ffi.cdata* actions  neap_action[n]
---@return number n
function M.to_c(plan, n_stages, profile)
  if type(plan) ~= "table" or type(plan.actions) ~= "table" then
    fail.usage("a plan is a table { actions = { { op =, stage = }, ... } }; found %s",
      type(plan) == "table" and "no actions" or tostring(plan))
  end
  if plan.n_stages ~= nil and plan.n_stages ~= n_stages then
    fail.usage("the plan is for %s stages, the profile has %d", tostring(plan.n_stages), n_stages)
  end
  local n = #plan.actions
  local actions = ffi.new("neap_action[?]", math.max(n, 1))
  for a = 1, n do
    action_to_c("plan, action " .. a, plan.actions[a], actions[a - 1], profile)
  end
  return actions, n
end

-- ---- building ----

local function starts_of(n_segments, n_stages)
  local segments = ffi.new("neap_segments *[1]")
  check(C.neap_segments_new(n_segments, n_stages, segments))
  local starts = ffi.new("int32_t[?]", n_segments)
  for k = 0, n_segments - 1 do starts[k] = C.neap_segments_start(segments[0], k) end
  C.neap_segments_free(segments[0])
  return starts
end

local function build_segments(spec, c_stages, n, actions)
  if spec.k > n then
    fail.usage("%s: this model has %d stages; allowed 1..%d", spec.text, n, n)
  end
  local notes = spec.k == 1 and { "segments:1 keeps everything" } or nil
  return C.neap_plan_from_segments(n, c_stages, spec.k, starts_of(spec.k, n), actions), notes
end

local function build_drops(spec, profile, c_stages, n, actions)
  local drops, any = ffi.new("uint8_t[?]", n), false
  for i, drop in ipairs(policy.drops(spec, profile.stages)) do
    drops[i - 1] = drop and 1 or 0
    any = any or drop
  end
  local notes = {}
  if drops[n - 1] == 1 then
    notes[1] = string.format("%s is the last stage: recomputing it saves nothing, done as asked",
      profile.stages[n].name)
  elseif not any and spec.kind ~= "none" then
    notes[1] = spec.text .. " drops nothing here: every stage keeps everything"
  end
  return C.neap_plan_from_drops(n, c_stages, drops, actions), notes[1] and notes
end

--- Makes a plan of hand-written or planned actions: it prints itself, with bytes when the profile
--- is given.
---@param fields { spec: string, n_stages: number, actions: neap.Action[] }
---@param profile neap.Profile|nil
---@return neap.Plan
function M.new(fields, profile)
  profiles[fields] = profile
  return setmetatable(fields, Plan)
end

--- The plan of a policy or of segments for a chain.
---@param spec string|table|neap.Policy  see policy.parse
---@param profile neap.Profile
---@return neap.Plan
function M.build(spec, profile)
  spec = policy.parse(spec)
  local c_stages, n = stages.read(profile)
  local actions = ffi.new("neap_action[?]", check(C.neap_plan_capacity(n)))
  local n_actions, notes
  if spec.kind == "segments" then
    n_actions, notes = build_segments(spec, c_stages, n, actions)
  else
    n_actions, notes = build_drops(spec, profile, c_stages, n, actions)
  end
  return M.new({
    spec = spec.text, n_stages = n, actions = from_c(actions, check(n_actions)), notes = notes,
  }, profile)
end

-- ---- judging ----

--- Whether the plan reads only what is there, frees all and runs every backward once.
---@param plan neap.Plan
---@param profile neap.Profile
---@return true|nil
---@return string|nil message  names the action, counted from 1, and the reason
function M.validate(plan, profile)
  local c_stages, n = stages.read(profile)
  local actions, n_actions = M.to_c(plan, n, profile)
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
  return string.format("%s %d%s%s", action.op, action.stage, name, keep)
end

return M
