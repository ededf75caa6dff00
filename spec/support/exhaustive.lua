-- The true optimum over all schedules of a short chain, by searching states: what is held, what is
-- recorded, which backward is due. Written from the planner's page, apart from the library. Stages
-- are tables as in a written profile, with early stops and named modes.
--
-- Dropping what nobody can need any more costs nothing, so it is done at once: x_j for j past the
-- due backward. A state is then one number.
local M = {}

-- the fields of keeping everything in way w (1: store all, 1 + m: mode m)
local function ways_of(stage)
  local ways = { stage }
  for _, mode in ipairs(stage.modes or {}) do ways[#ways + 1] = mode end
  return ways
end

---@param saves_inputs boolean  records hold x_i, so x_i is never dropped while r_i is there
local function search(profile, budget, saves_inputs)
  local stages, n = profile.stages, #profile.stages
  local function x_bytes(i) return i > 0 and stages[i].out_bytes or 0 end
  local ways, base = {}, 2
  for i = 1, n do
    ways[i] = ways_of(stages[i])
    base = math.max(base, #ways[i] + 1)
  end
  local queue, best, states, n_queued = { [0] = {} }, {}, {}, 1

  local function offer(state, cost)
    local key = state.due * 2 + (state.loss and 1 or 0)
    for i = 0, n - 1 do key = key * 2 + (state.x[i] and 1 or 0) end
    for i = 0, n - 1 do key = key * base + (state.r[i] or 0) end
    if best[key] and best[key] <= cost then return end
    best[key], states[key] = cost, state
    queue[cost] = queue[cost] or {}
    table.insert(queue[cost], { key, state })
    n_queued = n_queued + 1
  end
  local function live(state)
    local sum = state.loss and state.due >= 0 and stages[state.due + 1].out_bytes or 0
    for i = 1, n - 1 do
      if state.x[i] then sum = sum + x_bytes(i) end
    end
    for i = 0, n - 1 do
      if state.r[i] then sum = sum + ways[i + 1][state.r[i]].saved_bytes end
    end
    return sum
  end
  local function copy(state)
    local new = { due = state.due, loss = state.loss, x = {}, r = {} }
    for i = 0, n - 1 do new.x[i], new.r[i] = state.x[i], state.r[i] end
    return new
  end

  -- the backward of the due stage, whose record is of this way; entry: bytes before it
  local function backward(state, way, entry, cost)
    local i = state.due
    if entry + x_bytes(i) + way.backward_extra_bytes > budget then return end
    local new = copy(state)
    new.r[i], new.due, new.x[i] = nil, i - 1, i == 0 or nil
    offer(new, cost + way.backward_cost)
  end
  local function forward(state, i, w, keeps_input, entry, cost)
    local stage, way = stages[i + 1], w and ways[i + 1][w] or stages[i + 1]
    local record = w and way.saved_bytes or 0
    local inside = entry + stage.out_bytes + record + way.forward_extra_bytes
    local first_loss = i == n - 1 and not state.loss
    local after = entry + stage.out_bytes + record
    if not keeps_input and not w then after = after - x_bytes(i) end
    after = after + (first_loss and stage.out_bytes or 0)
    if math.max(inside, after) > budget then return end
    local new = copy(state)
    new.loss = state.loss or first_loss
    if w then new.r[i] = w end
    if i < state.due then new.x[i + 1] = true end
    if not keeps_input and not w and i > 0 then new.x[i] = nil end
    offer(new, cost + way.forward_cost)
  end
  local function expand(state, cost)
    local entry, due = live(state), state.due
    if state.loss and state.x[due] and state.r[due] then
      backward(state, ways[due + 1][state.r[due]], entry, cost)
    end
    local stage = stages[due + 1]
    if stage.stops_early and state.loss and state.x[due] and not state.r[due] then
      local peak = entry + stage.saved_bytes + stage.recompute_extra_bytes
      if peak <= budget then
        backward(state, stage, entry + stage.saved_bytes, cost + stage.recompute_cost)
      end
    end
    for i = 0, due do
      if state.x[i] and not state.x[i + 1] then
        forward(state, i, nil, true, entry, cost)
        if i > 0 and not (saves_inputs and state.r[i]) then
          forward(state, i, nil, false, entry, cost)
        end
        for w = 1, not state.r[i] and #ways[i + 1] or 0 do
          -- the early stop is a rule, not a choice, but a free in between avoids it
          forward(state, i, w, true, entry, cost)
        end
      end
      if i > 0 and state.x[i] and not (saves_inputs and state.r[i]) then
        local new = copy(state)
        new.x[i] = nil
        offer(new, cost)
      end
      if state.r[i] then
        local new = copy(state)
        new.r[i] = nil
        offer(new, cost)
      end
    end
  end

  offer({ due = n - 1, loss = false, x = { [0] = true }, r = {} }, 0)
  n_queued = n_queued - 1
  local cost = 0
  while n_queued > 0 do
    local bucket, k = queue[cost], 1
    while bucket and bucket[k] do
      local key, state = bucket[k][1], bucket[k][2]
      n_queued = n_queued - 1
      if states[key] == state then
        if state.due < 0 then return cost end
        expand(state, cost)
      end
      k = k + 1
    end
    queue[cost] = nil
    cost = cost + 1
  end
  return nil
end

--- Least cost of any schedule whose peak is at most budget; nil when there is none.
---@param profile neap.Profile
---@param budget number
---@param saves_inputs boolean|nil
---@return number|nil
function M.least_cost(profile, budget, saves_inputs)
  return search(profile, budget, saves_inputs)
end

--- The same chain as measured stages whose records hold their inputs.
function M.saving_inputs(profile)
  local stages = {}
  for i, stage in ipairs(profile.stages) do
    local x = i > 1 and profile.stages[i - 1].out_bytes or 0
    local new = {}
    for key, value in pairs(stage) do new[key] = value end
    local plain = stage.out_bytes + stage.forward_extra_bytes
    new.measured, new.grad_bytes, new.saves_in, new.saves_out = true, x, 1, 0
    new.forward_peak_bytes = { plain, plain, plain + stage.saved_bytes,
      stage.saved_bytes + (stage.recompute_extra_bytes or 0) }
    new.backward_peak_bytes = x + stage.backward_extra_bytes
    new.out = { { source = -1, bytes = stage.out_bytes } }
    stages[i] = new
  end
  return { stages = stages }
end

--- Every persistent schedule of [s, t) as { peak, cost }, of stages without modes.
function M.persistent(profile)
  local stages, n = profile.stages, #profile.stages
  local function x_bytes(i) return i > 0 and stages[i].out_bytes or 0 end
  local function grad(t, first) return first and 0 or x_bytes(t) end
  local function leaf(s, first)
    local stage, held = stages[s + 1], x_bytes(s)
    local early = stage.stops_early and not first
    local forward = held + grad(s + 1, first) + stage.saved_bytes
      + (early and stage.recompute_extra_bytes or stage.out_bytes + stage.forward_extra_bytes)
    local after = held + stage.saved_bytes + stage.out_bytes * (early and 1 or 2)
    local back = 2 * held + stage.saved_bytes + stage.out_bytes + stage.backward_extra_bytes
    return { { math.max(forward, after, back),
      (early and stage.recompute_cost or stage.forward_cost) + stage.backward_cost } }
  end
  local function points(s, t, first)
    if t - s == 1 then return leaf(s, first) end
    local list, stage, held = {}, stages[s + 1], x_bytes(s)
    local forward = held + grad(t, first) + stage.out_bytes + stage.forward_extra_bytes
    for _, p in ipairs(points(s + 1, t, first)) do
      list[#list + 1] = { math.max(forward + stage.saved_bytes, held + stage.saved_bytes + p[1],
        2 * held + stage.saved_bytes + stage.out_bytes + stage.backward_extra_bytes),
        p[2] + stage.forward_cost + stage.backward_cost }
    end
    local run, cost = forward, stage.forward_cost
    for k = s + 1, t - 1 do
      local later, again = points(k, t, first), points(s, k, false)
      for _, p in ipairs(later) do
        for _, q in ipairs(again) do
          list[#list + 1] = { math.max(run, held + p[1], q[1]), cost + p[2] + q[2] }
        end
      end
      local next_stage = stages[k + 1]
      run = math.max(run, held + x_bytes(k) + grad(t, first) + next_stage.out_bytes
        + next_stage.forward_extra_bytes)
      cost = cost + next_stage.forward_cost
    end
    return list
  end
  return points(0, n, true)
end

return M
