-- What is alive inside one action of a plan, by name: for printing, not for judging.
local stages_module = require("neap.checkpoint.stages")

local M = {}

local function bytes_of(profile, what, i, mode)
  local stages = profile.stages
  if what == "r" then
    local number = mode and stages_module.mode_number(stages[i + 1], mode)
    return tonumber((number and stages[i + 1].modes[number] or stages[i + 1]).saved_bytes)
  end
  if what == "g" and i < #stages and stages[i + 1].measured then
    return tonumber(stages[i + 1].grad_bytes)
  end
  return tonumber(stages[i].out_bytes)
end

-- a recomputation whose backward comes next makes no output where the stage stops early
local function makes_output(plan, profile, a, ran)
  local action, following = plan.actions[a], plan.actions[a + 1]
  return not (profile.stages[action.stage + 1].stops_early and action.keep == "everything"
    and not action.mode and ran[action.stage] and following and following.op == "backward"
    and following.stage == action.stage)
end

local function make(plan, profile, a, state)
  local action = plan.actions[a]
  local i = action.stage
  if action.op == "backward" then
    state.g[i] = i > 0 or nil
  elseif action.op == "forward" then
    if makes_output(plan, profile, a, state.ran) then state.x[i + 1] = true end
    if action.keep == "everything" then state.r[i], state.mode[i] = true, action.mode end
    if i == #profile.stages - 1 and not state.ran[i] then state.g[i + 1] = true end
    state.ran[i] = true
  end
end

local function unmake(action, state)
  local i = action.stage
  if action.op == "backward" then
    state.r[i], state.g[i + 1] = nil, nil
  elseif action.op == "free" then
    state[action.what][i] = nil
  elseif action.keep == "nothing" then
    state.x[i] = nil
  end
end

---@class neap.Alive
---@field what "x"|"r"|"g"  boundary x_i, residuals of stage i, gradient of x_i
---@field stage number
---@field bytes number  of its own; storages shared between two are in both

--- What is there while an action of a valid plan runs: what it found and what it makes. The loss
--- gradient counts as made by the last stage's first forward.
---@param plan neap.Plan
---@param profile neap.Profile
---@param at number  index in plan.actions
---@return neap.Alive[]  x, then r, then g, by stage
function M.at(plan, profile, at)
  local state, list = { x = {}, r = {}, g = {}, ran = {}, mode = {} }, {}
  for a = 1, at do
    if a > 1 then unmake(plan.actions[a - 1], state) end
    make(plan, profile, a, state)
  end
  for _, what in ipairs({ "x", "r", "g" }) do
    for i = what == "r" and 0 or 1, #profile.stages do
      if state[what][i] then
        list[#list + 1] = { what = what, stage = i,
          bytes = bytes_of(profile, what, i, what == "r" and state.mode[i] or nil) }
      end
    end
  end
  return list
end

return M
