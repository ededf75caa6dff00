-- What C promises to any caller: NULL and nonsense are errors, and an error changes nothing.
local N = require("neap.ffi")

local C, ffi, check = N.C, N.ffi, N.check

local function refused(code, pattern)
  assert.equal(C.NEAP_ERR_INVALID, code)
  local text = ffi.string(C.neap_last_error())
  assert.is_true(#text > 0 and not text:find("\n"))
  if pattern then assert.matches(pattern, text) end
end

local function policy_of(fields) return ffi.new("neap_policy", fields) end

describe("the C functions of policies", function()
  it("refuse NULL and what has no meaning", function()
    local none = policy_of({ kind = C.NEAP_POLICY_NONE })
    refused(C.neap_policy_drops(nil, "a", 0, 0, 0), "policy is NULL")
    refused(C.neap_policy_drops(none, nil, 3, 0, 0), "name of activation 3 is NULL")
    refused(C.neap_policy_drops(policy_of({ kind = 5 }), "a", 0, 0, 0), "5 is not one of 0..4")
    refused(C.neap_policy_drops(policy_of({ kind = -1 }), "a", 0, 0, 0))
    local by_name = policy_of({ kind = C.NEAP_POLICY_BY_NAME, n_prefixes = 1 })
    refused(C.neap_policy_drops(by_name, "a", 0, 0, 0), "1 prefixes and no list")
    by_name.n_prefixes = -1
    refused(C.neap_policy_drops(by_name, "a", 0, 0, 0))
    local prefixes = ffi.new("const char *[2]")
    by_name.n_prefixes, by_name.prefixes = 2, prefixes
    refused(C.neap_policy_drops(by_name, "a", 0, 0, 0), "prefix 0 .* NULL")
  end)
end)

describe("the C functions of the manager", function()
  local manager

  before_each(function()
    local out = ffi.new("neap_manager *[1]")
    check(C.neap_manager_new(policy_of({ kind = C.NEAP_POLICY_NONE }), out))
    manager = ffi.gc(out[0], C.neap_manager_free)
  end)

  it("refuse NULL and what has no meaning", function()
    local out, stats = ffi.new("neap_manager *[1]"), ffi.new("neap_manager_stats")
    local snapshot, none = ffi.new("neap_snapshot"), policy_of({ kind = C.NEAP_POLICY_NONE })
    refused(C.neap_manager_new(nil, out))
    refused(C.neap_manager_new(none, nil))
    refused(C.neap_manager_new(policy_of({ kind = 9 }), out))
    assert.is_true(out[0] == nil)
    C.neap_manager_free(nil)
    refused(C.neap_manager_clear(nil))
    refused(C.neap_manager_set_policy(nil, none))
    refused(C.neap_manager_set_policy(manager, nil))
    refused(C.neap_manager_record(nil, "a", 0, 0, nil, nil, -1ULL, 0))
    refused(C.neap_manager_record(manager, nil, 0, 0, nil, nil, -1ULL, 0))
    refused(C.neap_manager_record(manager, "a", 0, 1, nil, nil, -1ULL, 0), "1 dims %(NULL%)")
    refused(C.neap_manager_record(manager, "a", 0, -1, nil, nil, -1ULL, 0), "%-1 dims")
    refused(C.neap_manager_record(manager, "a", 0, 0, nil, nil, 1, 0), "1 elements %(NULL%)")
    refused(C.neap_manager_record_payload(nil, "a", 0, 0, 1, 0, -1))
    refused(C.neap_manager_record_payload(manager, nil, 0, 0, 1, 0, -1))
    refused(C.neap_manager_record_payload(manager, "a", 0, 0, 0, 0, -1), "payload 0")
    refused(C.neap_manager_record_payload(manager, "a", 0, 0, 0 / 0, 0, 0))
    refused(C.neap_manager_record_payload(manager, "a", 0, 0, 1, 0, 2), "drop is 2")
    refused(C.neap_manager_get(nil, "a", snapshot))
    refused(C.neap_manager_get(manager, nil, snapshot))
    refused(C.neap_manager_get(manager, "a", nil))
    refused(C.neap_manager_deliver(nil, "a", 0))
    refused(C.neap_manager_deliver(manager, nil, 0))
    refused(C.neap_manager_release(nil, "a"))
    refused(C.neap_manager_release(manager, nil))
    refused(C.neap_manager_get_stats(nil, stats))
    refused(C.neap_manager_get_stats(manager, nil))
    refused(C.neap_manager_snapshot(nil, 0, snapshot))
    refused(C.neap_manager_snapshot(manager, 0, nil))
    assert.equal(C.NEAP_ERR_NOT_FOUND, C.neap_manager_snapshot(manager, 0, snapshot))
    assert.is_true(C.neap_manager_log(nil, 0) == nil)
    assert.is_true(C.neap_manager_log(manager, 0) == nil)
    check(C.neap_manager_get_stats(manager, stats))
    assert.is_true(stats.n_snapshots == 0)
  end)

  it("keep a payload and give it back, or say that it was dropped", function()
    local snapshot = ffi.new("neap_snapshot")
    assert.equal(0, C.neap_manager_record_payload(manager, "a", 0, 100, 77, 5, -1))
    assert.equal(1, C.neap_manager_record_payload(manager, "b", 1, 50, 78, 5, 1))
    assert.equal(0, C.neap_manager_get(manager, "a", snapshot))
    assert.equal(77, snapshot.payload)
    assert.equal(C.NEAP_NEED_RECOMPUTE, C.neap_manager_get(manager, "b", snapshot))
    assert.equal(0, snapshot.payload)
    assert.is_true(snapshot.logical_bytes == 50 and snapshot.n_elements == -1ULL)
    check(C.neap_manager_deliver(manager, "b", 123))
    assert.equal(C.NEAP_ERR_STATE, C.neap_manager_deliver(manager, "a", -1ULL))
    assert.matches("'a' is stored: nothing to deliver", ffi.string(C.neap_last_error()))
  end)

  it("follow a greedy sequence of bytes as the policy says", function()
    local greedy = policy_of({ kind = C.NEAP_POLICY_GREEDY, budget_bytes = -1ULL })
    check(C.neap_manager_set_policy(manager, greedy))
    assert.equal(0, C.neap_manager_record_payload(manager, "a", 0, -1ULL, 1, 0, -1))
    assert.equal(1, C.neap_manager_record_payload(manager, "b", 1, 1, 1, 0, -1))
    local stats = ffi.new("neap_manager_stats")
    check(C.neap_manager_get_stats(manager, stats))
    assert.is_true(stats.stored_bytes == -1ULL and stats.checkpointed_bytes == 1)
  end)
end)

describe("the C functions of segments", function()
  it("refuse NULL", function()
    local out, data = ffi.new("neap_segments *[1]"), ffi.new("const float *[1]")
    local n = ffi.new("uint64_t[1]")
    refused(C.neap_segments_new(1, 1, nil))
    check(C.neap_segments_new(2, 4, out))
    local segments = ffi.gc(out[0], C.neap_segments_free)
    C.neap_segments_free(nil)
    refused(C.neap_segments_is_boundary(nil, 0))
    refused(C.neap_segments_record(nil, 0, nil, 0))
    refused(C.neap_segments_record(segments, 0, nil, 1))
    refused(C.neap_segments_get(nil, 0, data, n))
    refused(C.neap_segments_get(segments, 0, nil, n))
    refused(C.neap_segments_get(segments, 0, data, nil))
    assert.is_true(C.neap_segments_start(nil, 0) == 0)
    assert.equal(0, C.neap_segments_kept_fraction(nil))
    assert.is_true(C.neap_segments_start(segments, 99) == 4)
    assert.equal(C.NEAP_ERR_OVERFLOW,
      C.neap_segments_record(segments, 0, ffi.new("float[1]"), 2ULL ^ 62))
  end)
end)

describe("the C functions of plans", function()
  local stages, actions = ffi.new("neap_stage[2]"), ffi.new("neap_action[16]")
  local drops, starts = ffi.new("uint8_t[2]"), ffi.new("int32_t[2]", { 0, 1 })
  local out, timeline = ffi.new("neap_simulation"), ffi.new("int64_t[32]")

  before_each(function()
    ffi.fill(stages, ffi.sizeof(stages))
    out.peak_bytes, timeline[0] = -7, -7
  end)

  after_each(function()
    assert.is_true(out.peak_bytes == -7 and timeline[0] == -7)
  end)

  it("refuse NULL and what has no meaning", function()
    for _, n in ipairs({ 0, -1, 2 ^ 31 - 1 }) do
      refused(C.neap_plan_capacity(n), "allowed are 1..")
      refused(C.neap_plan_from_drops(n, stages, drops, actions))
      refused(C.neap_plan_from_segments(n, stages, 1, starts, actions))
      refused(C.neap_plan_validate(n, stages, 0, actions))
      refused(C.neap_plan_simulate(n, stages, 0, actions, out, nil))
    end
    refused(C.neap_plan_from_drops(2, nil, drops, actions))
    refused(C.neap_plan_from_drops(2, stages, nil, actions))
    refused(C.neap_plan_from_drops(2, stages, drops, nil))
    refused(C.neap_plan_from_segments(2, nil, 2, starts, actions))
    refused(C.neap_plan_from_segments(2, stages, 2, nil, actions))
    refused(C.neap_plan_from_segments(2, stages, 2, starts, nil))
    refused(C.neap_plan_validate(2, nil, 0, actions))
    refused(C.neap_plan_validate(2, stages, 0, nil))
    refused(C.neap_plan_validate(2, stages, -1, actions))
    refused(C.neap_plan_simulate(2, stages, 0, actions, nil, nil))
    refused(C.neap_plan_simulate(2, nil, 0, actions, out, nil))
    stages[1].saved_bytes = -5
    refused(C.neap_plan_validate(2, stages, 0, actions), "stage 1: saved_bytes is %-5")
  end)

  it("refuse counts and starts of segments that do not fit", function()
    for _, n in ipairs({ 0, -1, 3 }) do
      assert.equal(C.NEAP_ERR_SEGMENT_COUNT,
        C.neap_plan_from_segments(2, stages, n, starts, actions))
    end
    for _, pair in ipairs({ { 1, 1 }, { 0, 0 }, { 0, 2 }, { 0, -1 }, { -1, 1 } }) do
      local wrong = ffi.new("int32_t[2]", pair)
      assert.equal(C.NEAP_ERR_SEGMENT, C.neap_plan_from_segments(2, stages, 2, wrong, actions))
    end
  end)

  it("refuse an op, a keep or a mode that is none", function()
    for _, fields in ipairs({ { op = 4 }, { op = -1 }, { keep = 3 }, { keep = -1 },
      { mode = 1 } }) do
      local one = ffi.new("neap_action[1]", { fields })
      assert.equal(C.NEAP_ERR_PLAN, C.neap_plan_validate(2, stages, 1, one))
    end
  end)

  it("say so when sums do not fit, with everything as it was", function()
    local n = check(C.neap_plan_from_drops(2, stages, drops, actions))
    for _, field in ipairs({ "out_bytes", "saved_bytes", "forward_cost", "forward_extra_bytes" }) do
      ffi.fill(stages, ffi.sizeof(stages))
      stages[0][field], stages[1][field] = 0x7fffffffffffffffLL, 0x7fffffffffffffffLL
      -- each on its own is within 63 bits
      if field ~= "out_bytes" then stages[0].out_bytes = 1 end
      assert.equal(C.NEAP_ERR_OVERFLOW, C.neap_plan_simulate(2, stages, n, actions, out, timeline),
        field)
    end
  end)

  it("leave a bad plan's results as they were", function()
    local n = check(C.neap_plan_from_drops(2, stages, drops, actions))
    assert.equal(C.NEAP_ERR_PLAN,
      C.neap_plan_simulate(2, stages, n - 1, actions, out, timeline))
  end)

  it("say so when memory fails", function()
    local n = check(C.neap_plan_from_drops(2, stages, drops, actions))
    for k = 1, 4 do
      check(C.neap_memory_fail(k, 1))
      local code = C.neap_plan_simulate(2, stages, n, actions, out, timeline)
      check(C.neap_memory_fail(0, 0))
      assert.equal(C.NEAP_ERR_MEMORY, code, k)
    end
    check(C.neap_memory_fail(1, 1))
    local code = C.neap_plan_validate(2, stages, n, actions)
    check(C.neap_memory_fail(0, 0))
    assert.equal(C.NEAP_ERR_MEMORY, code)
  end)
end)
