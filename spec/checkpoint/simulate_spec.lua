local fail = require("neap.fail")
local plans = require("neap.checkpoint.plan")
local chains = require("spec.support.chains")
local interpreter = require("spec.support.plan_interpreter")
local vectors = require("spec.support.vectors")

local function alike(a, b)
  for _, field in ipairs({ "peak_bytes", "peak_action", "cost", "forwards" }) do
    if a[field] ~= b[field] then return false end
  end
  for i, moment in ipairs(a.timeline) do
    local other = b.timeline[i] or {}
    if moment.live_bytes ~= other.live_bytes or moment.peak_bytes ~= other.peak_bytes then
      return false
    end
  end
  return #a.timeline == #b.timeline
end

-- both judges, and that they agree
local function judge(plan, profile, label)
  local expected, reason = interpreter.run(plan, profile)
  local valid, message = plans.validate(plan, profile)
  if (expected ~= nil) ~= (valid == true) then
    error(label .. ": one says " .. tostring(reason) .. ", the other " .. tostring(message))
  end
  if not expected then
    assert(message:gsub("^after ", ""):find("^action %d+"), message)
    local ok, err = pcall(plans.simulate, plan, profile)
    assert(not ok and fail.is(err, "invalid plan") and err.message == message, label)
    return nil
  end
  local found = plans.simulate(plan, profile)
  -- the deep comparison only where it has something to show
  if not alike(expected, found) then assert.same(expected, found, label) end
  return expected
end

local function each_plan(fn, most)
  local n = 0
  for _, kind in ipairs({ "table", "early", "measured" }) do
    for seed = 1, most do
      local profile = chains.random_profile(seed, seed % 9 + 1, kind)
      for _, spec in ipairs(chains.specs(seed, profile)) do
        fn(plans.build(spec, profile), profile, string.format("%s %d %s", kind, seed, spec))
        n = n + 1
      end
    end
  end
  return n
end

local function copy_actions(plan)
  local actions = {}
  for a, action in ipairs(plan.actions) do actions[a] = action end
  return { n_stages = plan.n_stages, actions = actions }
end

describe("the simulator and an interpreter written apart from it", function()
  local long = os.getenv("NEAP_LONG")

  it("give the same peak, cost, forwards and timeline for every policy's plan", function()
    local n = each_plan(function(plan, profile, label)
      assert.is_table(judge(plan, profile, label), label)
    end, long and 300 or 40)
    assert.is_true(n > 1500)
  end)

  it("agree about plans with an action dropped, doubled or swapped", function()
    local n_valid, n_invalid = 0, 0
    local function count(result)
      if result then n_valid = n_valid + 1 else n_invalid = n_invalid + 1 end
    end
    each_plan(function(plan, profile, label)
      local n = #plan.actions
      for a = 1, n do
        local dropped, doubled, swapped = copy_actions(plan), copy_actions(plan), copy_actions(plan)
        table.remove(dropped.actions, a)
        table.insert(doubled.actions, a, plan.actions[a])
        local b = a % n + 1
        swapped.actions[a], swapped.actions[b] = plan.actions[b], plan.actions[a]
        count(judge(dropped, profile, label .. ", without " .. a))
        count(judge(doubled, profile, label .. ", with twice " .. a))
        count(judge(swapped, profile, label .. ", swapped " .. a))
      end
    end, long and 60 or 5)
    assert.is_true(n_valid > 100 and n_invalid > 4000, n_valid .. " " .. n_invalid)
  end)

  it("agree about random actions", function()
    local keeps, whats = { "nothing", "input", "everything" }, { "x", "r" }
    for seed = 1, 300 do
      local random = chains.random(seed)
      local profile = chains.random_profile(seed, random(1, 3), "measured")
      local plan = { actions = {} }
      for a = 1, random(1, 12) do
        local stage, op = random(0, 2), random(1, 3)
        plan.actions[a] = op == 1 and { op = "forward", stage = stage, keep = keeps[random(1, 3)] }
          or op == 2 and { op = "backward", stage = stage }
          or { op = "free", what = whats[random(1, 2)], stage = stage }
      end
      judge(plan, profile, "random " .. seed)
    end
  end)
end)

-- peak of keeping all, by the planner's page
local function keep_all_peak(chain)
  local kept, peak = 0, 0
  local function see(bytes) peak = math.max(peak, bytes) end
  for i = 1, chain.L do
    see(kept + chain.a[i + 1] + chain.r[i] + chain.ef[i])
    kept = kept + chain.a[i + 1] + chain.r[i]
  end
  local last = chain.a[chain.L + 1]
  see(kept + last)
  kept = kept - last
  for i = chain.L, 1, -1 do
    see(kept + chain.a[i + 1] + chain.a[i] + chain.eb[i])
    kept = kept - chain.r[i] - chain.a[i]
  end
  return peak
end

-- all persistent schedules of stages s..t-1: keep everything of the first, or keep its input up to
-- a later boundary and come back
local function schedules(s, t)
  local function forward(i, keep) return { op = "forward", stage = i, keep = keep } end
  local function joined(...)
    local list = {}
    for _, part in ipairs({ ... }) do
      for _, action in ipairs(part) do list[#list + 1] = action end
    end
    return list
  end
  local function backward(i)
    local free = i > 0 and { op = "free", what = "x", stage = i } or nil
    return { { op = "backward", stage = i }, free }
  end
  if t - s == 1 then
    return { joined({ forward(s, "everything"), { op = "free", what = "x", stage = t } },
      backward(s)) }
  end
  local list = {}
  for _, rest in ipairs(schedules(s + 1, t)) do
    list[#list + 1] = joined({ forward(s, "everything") }, rest, backward(s))
  end
  for k = s + 1, t - 1 do
    local there = { forward(s, "input") }
    for i = s + 1, k - 1 do there[#there + 1] = forward(i, "nothing") end
    for _, later in ipairs(schedules(k, t)) do
      for _, again in ipairs(schedules(s, k)) do list[#list + 1] = joined(there, later, again) end
    end
  end
  return list
end

local function pareto(points)
  table.sort(points, function(p, q) return p[1] < q[1] or p[1] == q[1] and p[2] < q[2] end)
  local front = {}
  for _, point in ipairs(points) do
    if #front == 0 or point[2] < front[#front][2] then front[#front + 1] = point end
  end
  return front
end

describe("the simulator on planner.json", function()
  local cases = vectors.load("planner").cases

  it("gives the right end of each frontier for keeping all", function()
    assert.equal(41, #cases)
    for c, case in ipairs(cases) do
      local profile = chains.of_vector(case.chain)
      local found = plans.simulate(plans.build("none", profile), profile)
      local front = case.persistent_frontier
      assert.equal(keep_all_peak(case.chain), found.peak_bytes, "case " .. c)
      assert.same(front[#front], { found.peak_bytes, found.cost }, "case " .. c)
      assert.equal(case.chain.L, found.forwards)
    end
  end)

  it("gives the whole frontier of short chains when it tries all persistent schedules", function()
    local n = 0
    for c, case in ipairs(cases) do
      if case.chain.L <= 5 then
        local profile, points = chains.of_vector(case.chain), {}
        for k, actions in ipairs(schedules(0, case.chain.L)) do
          local found = judge({ actions = actions }, profile, "case " .. c .. ", schedule " .. k)
          points[k] = { found.peak_bytes, found.cost }
        end
        assert.same(case.persistent_frontier, pareto(points), "case " .. c)
        n = n + 1
      end
    end
    assert.equal(31, n)
  end)

  it("puts no plan of a policy or of segments below a frontier", function()
    for c, case in ipairs(cases) do
      local profile = chains.of_vector(case.chain)
      for _, spec in ipairs(chains.specs(c, profile)) do
        local found = judge(plans.build(spec, profile), profile, "case " .. c .. " " .. spec)
        local reached = false
        for _, point in ipairs(case.persistent_frontier) do
          reached = reached or point[1] <= found.peak_bytes and point[2] <= found.cost
        end
        assert.is_true(reached, string.format("case %d, %s", c, spec))
      end
    end
  end)
end)
