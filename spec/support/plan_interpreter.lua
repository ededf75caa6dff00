-- A plan judged from the words of the planner's page: what is there, who holds it, what it weighs.
-- Written apart from the library, so that the two can disagree. Bytes are never kept in sums: what
-- is live is counted again at each moment, from the distinct storages that somebody holds.
local M = {}

local KEEPS = { nothing = 1, input = 2, everything = 3 }

local State = {}
State.__index = State

local function storage(bytes) return { bytes = bytes } end

function State:live()
  local seen, sum = {}, 0
  local function count(tokens)
    for _, token in ipairs(tokens) do
      if not seen[token] then
        seen[token] = true
        sum = sum + token.bytes
      end
    end
  end
  for i = 1, self.n do count(self.x[i] or {}) end
  for i = 0, self.n - 1 do count(self.r[i] or {}) end
  if self.gradient then count({ self.gradient.token }) end
  return sum
end

local function has_bit(mask, j) return math.floor(mask / 2 ^ j) % 2 == 1 end

-- the storages of x_{i+1} when stage i makes it now
function State:outputs(i)
  local stage, tokens = self.stages[i + 1], {}
  if not stage.measured then return { storage(stage.out_bytes) } end
  for k, out in ipairs(stage.out) do
    if out.source == -1 then
      tokens[k] = storage(out.bytes)
    elseif out.source >= 0 then
      tokens[k] = self.x[i][out.source + 1]
    else
      tokens[k] = tokens[-1 - out.source]
    end
  end
  return tokens
end

-- what the record is made of: the stage itself (store all) or one of its modes
function State:record(i, way, outputs)
  local stage = self.stages[i + 1]
  local tokens = { way = way, storage(way.saved_bytes) }
  for j = 0, stage.measured and 7 or -1 do
    if has_bit(way.saves_in, j) then tokens[#tokens + 1] = self.x[i][j + 1] end
    if has_bit(way.saves_out, j) then tokens[#tokens + 1] = outputs[j + 1] end
  end
  return tokens
end

local function way_of(stage, action)
  if action.mode == nil then return stage end
  if action.keep ~= "everything" then return nil end
  for _, mode in ipairs(stage.modes or {}) do
    if mode.name == action.mode then return mode end
  end
  return nil
end

function State:forward(action, next_action)
  local i, keep = action.stage, action.keep
  local stage = self.stages[i + 1]
  if not stage then return nil, "no such stage" end
  local way = way_of(stage, action)
  if not way then return nil, "no such mode" end
  if not self.x[i] then return nil, "input is not there" end
  if keep == "everything" and self.r[i] then return nil, "record is there already" end
  local first = not self.ran[i]
  local early = way == stage and stage.stops_early and keep == "everything" and not first
    and next_action and next_action.op == "backward" and next_action.stage == i
  if self.x[i + 1] and not early then return nil, "output is there already" end
  local peak
  local entry = self:live()
  if stage.measured then
    peak = entry + (way == stage and stage.forward_peak_bytes[early and 4 or KEEPS[keep]]
      or way.forward_peak_bytes)
  elseif early then
    peak = entry + stage.saved_bytes + stage.recompute_extra_bytes
  else
    peak = entry + stage.out_bytes + (keep == "everything" and way.saved_bytes or 0)
      + way.forward_extra_bytes
  end
  local outputs = self:outputs(i)
  if keep == "everything" then self.r[i] = self:record(i, way, outputs) end
  if not early then self.x[i + 1] = outputs end
  if keep == "nothing" and i > 0 then self.x[i] = nil end
  if first and i == self.n - 1 then
    self.gradient = { of = self.n, token = storage(stage.out_bytes) }
  end
  self.ran[i] = true
  self.forwards = self.forwards + 1
  self.cost = self.cost + (early and stage.recompute_cost or way.forward_cost)
  return peak
end

function State:backward(action)
  local i = action.stage
  local stage = self.stages[i + 1]
  if not stage or self.done[i] then return nil, "no such backward is due" end
  if not self.gradient or self.gradient.of ~= i + 1 then return nil, "gradient is not there" end
  if not self.x[i] or not self.r[i] then return nil, "input or record is not there" end
  local made, peak
  local entry, way = self:live(), self.r[i].way
  if stage.measured then
    made = i > 0 and stage.grad_bytes or 0
    peak = entry + way.backward_peak_bytes
  else
    made = i > 0 and self.stages[i].out_bytes or 0
    peak = entry + made + way.backward_extra_bytes
  end
  self.done[i], self.r[i] = true, nil
  self.gradient = i > 0 and { of = i, token = storage(made) } or nil
  self.cost = self.cost + way.backward_cost
  return peak
end

function State:free(action)
  local held = action.what == "x" and self.x or self.r
  if (action.what == "x" and action.stage == 0) or not held[action.stage] then
    return nil, "it is not there"
  end
  local entry = self:live()
  held[action.stage] = nil
  return entry
end

local function nothing_left(state)
  for i = 0, state.n - 1 do
    if not state.done[i] then return nil, "a backward is missing" end
    if state.r[i] then return nil, "a record is left" end
    if state.x[i + 1] then return nil, "a boundary is left" end
  end
  return true
end

--- Runs a plan on paper.
---@return table|nil result  { peak_bytes, peak_action, cost, forwards, timeline }
---@return string|nil reason  why the plan is none
function M.run(plan, profile)
  local batch = {}
  for k = 1, 8 do batch[k] = storage(0) end
  local state = setmetatable({
    stages = profile.stages, n = #profile.stages, x = { [0] = batch }, r = {}, ran = {}, done = {},
    cost = 0, forwards = 0,
  }, State)
  local result = { peak_bytes = 0, peak_action = 1, timeline = {} }
  for a, action in ipairs(plan.actions) do
    local entry = state:live()
    local peak, reason = state[action.op](state, action, plan.actions[a + 1])
    if not peak then return nil, reason end
    local live = state:live()
    peak = math.max(entry, peak, live)
    result.timeline[a] = { live_bytes = live, peak_bytes = peak }
    if peak > result.peak_bytes then result.peak_bytes, result.peak_action = peak, a end
  end
  local ok, reason = nothing_left(state)
  if not ok then return nil, reason end
  result.cost, result.forwards = state.cost, state.forwards
  return result
end

return M
