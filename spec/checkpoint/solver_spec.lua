local N = require("neap.ffi")
local fail = require("neap.fail")
local plans = require("neap.checkpoint.plan")
local solver = require("neap.checkpoint.solver")
local chains = require("spec.support.chains")

local C, ffi, check = N.C, N.ffi, N.check

local function equal_blocks(n, fields)
  local stages = {}
  for i = 1, n do
    stages[i] = { name = "s" .. i - 1, out_bytes = 100, saved_bytes = 1200,
      forward_extra_bytes = 100, backward_extra_bytes = 400, forward_cost = 10,
      backward_cost = 20 }
    for key, value in pairs(fields or {}) do stages[i][key] = value end
  end
  stages[n].out_bytes = 4
  return { stages = stages }
end

local function cost_at(frontier, budget)
  local k = solver.at(frontier, budget)
  return k and frontier:points()[k].cost
end

-- largest excess of one frontier over another one, as a fraction
local function excess(coarse, exact)
  local most = 0
  for _, point in ipairs(exact:points()) do
    local cost = cost_at(coarse, point.peak_bytes)
    if cost then
      assert.is_true(cost >= point.cost)
      most = math.max(most, (cost - point.cost) / point.cost)
    end
  end
  return most
end

local function refused(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_true(fail.is(err, "usage"), tostring(err))
  assert.matches(pattern, err.message)
end

describe("a frontier", function()
  it("recomputes nothing where keeping all fits", function()
    for seed = 1, 40 do
      local kind = ({ "table", "early", "measured" })[seed % 3 + 1]
      local profile = chains.random_profile(seed, seed % 8 + 1, kind)
      local frontier = solver.frontier(profile)
      local all = plans.simulate(plans.build("none", profile), profile)
      local k = solver.at(frontier, all.peak_bytes)
      assert.equal(#frontier:points(), k)
      assert.equal(all.cost, frontier:points()[k].cost)
    end
    local frontier = solver.frontier(equal_blocks(12))
    local forwards = 0
    for _, action in ipairs(frontier:actions(#frontier:points())) do
      forwards = forwards + (action.op == "forward" and 1 or 0)
    end
    assert.equal(12, forwards)
  end)

  it("is the same on two threads", function()
    local profile = chains.random_profile(5, 40, "table")
    local one = solver.frontier(profile, { threads = 1 })
    local two = solver.frontier(profile, { threads = 2 })
    assert.same(one:points(), two:points())
    assert.same(one:actions(3), two:actions(3))
  end)

  it("shares nothing between stages that only look alike", function()
    -- equal blocks but for the bytes of one record: the same as solved with unequal names and costs
    local profile = equal_blocks(30)
    profile.stages[13].saved_bytes = 1201
    local frontier = solver.frontier(profile)
    for _, k in ipairs({ 1, math.ceil(#frontier:points() / 2), #frontier:points() }) do
      local found = plans.simulate({ actions = frontier:actions(k) }, profile)
      assert.equal(frontier:points()[k].peak_bytes, found.peak_bytes)
      assert.equal(frontier:points()[k].cost, found.cost)
    end
    local all = plans.simulate(plans.build("none", profile), profile)
    assert.equal(all.peak_bytes, frontier:points()[#frontier:points()].peak_bytes)
  end)

  it("that was capped is no better than the exact one and within the distance that it says",
    function()
      for seed = 1, 4 do
        local profile = chains.random_profile(seed, 36, "table")
        for _, stage in ipairs(profile.stages) do
          -- times that hardly tie
          stage.forward_cost = stage.forward_cost * 1009 + seed
          stage.saved_bytes = stage.saved_bytes * 97 + 500
        end
        local exact = solver.frontier(profile)
        assert.is_true(exact.exact and exact.gap == 0)
        local most = 0
        for _, points in ipairs(exact:points()) do most = math.max(most, points.cost) end
        for _, cap in ipairs({ 8, 20, 50 }) do
          local capped = solver.frontier(profile, { max_points = cap })
          assert.is_false(capped.exact)
          assert.is_true(#capped:points() <= cap)
          assert.is_true(excess(capped, exact) <= capped.gap, seed .. " " .. cap)
          assert.equal(exact.least_bytes, capped.least_bytes)
          assert.same(exact:points()[#exact:points()], capped:points()[#capped:points()])
          for k, point in ipairs(capped:points()) do
            local found = plans.simulate({ actions = capped:actions(k) }, profile)
            assert.equal(point.peak_bytes, found.peak_bytes)
            assert.equal(point.cost, found.cost)
          end
        end
      end
    end)

  it("of many equal blocks looks at few splits, and says how far that may be", function()
    local profile = equal_blocks(380)
    local quick = solver.frontier(profile)
    assert.is_false(quick.exact)
    local exact = solver.frontier(profile, { exact = true })
    assert.is_true(exact.exact)
    local most = excess(quick, exact)
    assert.is_true(most <= quick.gap and most < 0.01, most)
    local k = solver.knee(quick)
    local found = plans.simulate({ actions = quick:actions(k) }, profile)
    assert.equal(quick:points()[k].peak_bytes, found.peak_bytes)
    assert.equal(quick:points()[k].cost, found.cost)
  end)

  it("uses named modes, unless told not to", function()
    local profile = equal_blocks(6)
    for _, stage in ipairs(profile.stages) do
      stage.modes = { { name = "matmul", saved_bytes = 500, forward_extra_bytes = 800,
        backward_extra_bytes = 1100, forward_cost = 10, backward_cost = 22 } }
    end
    local with, without = solver.frontier(profile), solver.frontier(profile, { modes = false })
    local plain = solver.frontier(equal_blocks(6))
    assert.same(plain:points(), without:points())
    local gained, used = false, {}
    for k, point in ipairs(with:points()) do
      local cost = cost_at(without, point.peak_bytes)
      gained = gained or cost == nil or cost > point.cost
      for _, action in ipairs(with:actions(k)) do
        if action.mode then used[action.mode] = true end
      end
    end
    assert.is_true(gained)
    assert.same({ matmul = true }, used)
  end)

  it("keeps its plans when the profile changes after it", function()
    local profile = equal_blocks(5)
    local frontier = solver.frontier(profile)
    local before = frontier:actions(1)
    profile.stages[2].saved_bytes = 1
    profile.stages[6] = nil
    collectgarbage()
    assert.same(before, frontier:actions(1))
  end)

  it("has a point for a budget, none below the least, and the last one above all", function()
    local frontier = solver.frontier(equal_blocks(8))
    local points = frontier:points()
    assert.is_nil(solver.at(frontier, points[1].peak_bytes - 1))
    assert.is_nil(solver.at(frontier, -1))
    for k, point in ipairs(points) do
      assert.equal(k, solver.at(frontier, point.peak_bytes))
      if k > 1 then assert.equal(k - 1, solver.at(frontier, point.peak_bytes - 1)) end
    end
    assert.equal(#points, solver.at(frontier, 1 / 0))
  end)

  it("bends where the curve is furthest below the line between its ends", function()
    local list = { { 10, 100 }, { 20, 40 }, { 30, 35 }, { 110, 0 } }
    local frontier = solver.frontier(equal_blocks(3))
    for k, p in ipairs(list) do list[k] = { peak_bytes = p[1], cost = p[2] } end
    frontier.list = list
    assert.equal(2, solver.knee(frontier))
    frontier.list = { list[1] }
    assert.equal(1, solver.knee(frontier))
  end)

  it("refuses options, points and budgets that are none", function()
    local profile = equal_blocks(3)
    refused("unknown option 'max_point'", solver.frontier, profile, { max_point = 5 })
    refused("max_points must be a whole number", solver.frontier, profile, { max_points = 1 })
    refused("max_points", solver.frontier, profile, { max_points = 0 / 0 })
    refused("threads must be a whole number", solver.frontier, profile, { threads = 0 })
    refused("threads", solver.frontier, profile, { threads = 1025 })
    refused("exact must be true or false", solver.frontier, profile, { exact = 1 })
    refused("modes must be true or false", solver.frontier, profile, { modes = "no" })
    refused("options must be a table", solver.frontier, profile, 5)
    refused("a profile is a table", solver.frontier, nil)
    refused("at least one stage", solver.frontier, { stages = {} })
    local frontier = solver.frontier(profile)
    for _, k in ipairs({ 0, -1, 1.5, #frontier:points() + 1, 0 / 0, 2 ^ 40, "1", {} }) do
      refused("frontier:actions: point", frontier.actions, frontier, k)
    end
    refused("frontier:actions: point nil", frontier.actions, frontier)
    refused("call it with a colon", frontier.points, {})
    for _, budget in ipairs({ 0 / 0, "5", {} }) do
      refused("solver.at: budget", solver.at, frontier, budget)
    end
    refused("solver.at: budget", solver.at, frontier, nil)
    refused("solver.knee", solver.knee, {})
    assert.matches("frontier of %d+ points", tostring(frontier))
  end)
end)

describe("the solver in C", function()
  local out, options

  before_each(function()
    out = ffi.new("neap_frontier *[1]")
    options = ffi.new("neap_frontier_options", { n_threads = 1 })
  end)

  local function chain(n)
    local stages = ffi.new("neap_stage[?]", n)
    for i = 0, n - 1 do
      stages[i].out_bytes, stages[i].saved_bytes = 3 + i % 2, 20 + i
      stages[i].forward_cost, stages[i].backward_cost = 5 + i, 7
    end
    return stages
  end

  it("refuses NULL and nonsense", function()
    local stages = chain(3)
    local function refuses(...) assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_new(...)) end
    refuses(3, nil, nil, out)
    refuses(3, stages, nil, nil)
    refuses(0, stages, nil, out)
    refuses(-1, stages, nil, out)
    for _, fields in ipairs({ { max_points = -1 }, { max_points = 1 }, { n_threads = -1 },
      { n_threads = 1025 } }) do
      refuses(3, stages, ffi.new("neap_frontier_options", fields), out)
    end
    stages[1].saved_bytes = -1
    refuses(3, stages, nil, out)
    assert.equal(C.NEAP_ERR_UNSUPPORTED, C.neap_frontier_new(4097, stages, nil, out))
    assert.is_true(out[0] == nil)
    C.neap_frontier_free(nil)
    assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_n_points(nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_is_exact(nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_gap(nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_actions(nil, 0, 0, nil))
    check(C.neap_frontier_new(3, chain(3), nil, out))
    local frontier = ffi.gc(out[0], C.neap_frontier_free)
    local peak, cost = ffi.new("int64_t[1]"), ffi.new("int64_t[1]")
    for _, k in ipairs({ -1, C.neap_frontier_n_points(frontier) }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_point(frontier, k, peak, cost))
      assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_actions(frontier, k, 0, nil))
    end
    assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_point(frontier, 0, nil, cost))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_actions(frontier, 0, 5, nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_frontier_actions(frontier, 0, -1, nil))
  end)

  it("says so when sums of bytes or costs might not fit", function()
    local large = 0x3fffffffffffffffLL
    for _, field in ipairs({ "out_bytes", "saved_bytes", "forward_extra_bytes",
      "backward_extra_bytes", "forward_cost", "backward_cost" }) do
      local stages = chain(3)
      stages[0][field], stages[2][field] = large, large
      assert.equal(C.NEAP_ERR_OVERFLOW, C.neap_frontier_new(3, stages, nil, out), field)
      assert.matches("planning 3 stages: .* might not fit", ffi.string(C.neap_last_error()))
    end
    local modes, stages = ffi.new("neap_mode[1]"), chain(3)
    stages[1].n_modes, stages[1].modes, modes[0].backward_cost = 1, modes, large
    options.with_modes = 1
    assert.equal(C.NEAP_ERR_OVERFLOW, C.neap_frontier_new(3, stages, options, out))
    options.with_modes = 0
    check(C.neap_frontier_new(3, stages, options, out))
    C.neap_frontier_free(out[0])
  end)

  it("survives every failing allocation, and solves the next time", function()
    -- short with boundaries made again, and longer than that, capped
    for _, case in ipairs({ { n = 5, cap = 0 }, { n = 30, cap = 8 } }) do
      local stages = chain(case.n)
      options.max_points = case.cap
      local k = 0
      local code
      repeat
        k = k + 1
        check(C.neap_memory_fail(k, 1))
        code = C.neap_frontier_new(case.n, stages, options, out)
        check(C.neap_memory_fail(0, 0))
        if code ~= 0 then
          assert.equal(C.NEAP_ERR_MEMORY, code)
          assert.matches("out of memory", ffi.string(C.neap_last_error()))
        end
      until code == 0
      assert.is_true(k > 8, k)
      local frontier = ffi.gc(out[0], C.neap_frontier_free)
      check(C.neap_memory_fail(1, 1))
      local failed = C.neap_frontier_actions(frontier, 0, 0, nil)
      check(C.neap_memory_fail(0, 0))
      assert.equal(C.NEAP_ERR_MEMORY, failed)
      local actions = ffi.new("neap_action[?]", 4096)
      local n = check(C.neap_frontier_actions(frontier, 0, 4096, actions))
      check(C.neap_plan_validate(case.n, stages, n, actions))
    end
  end)
end)
