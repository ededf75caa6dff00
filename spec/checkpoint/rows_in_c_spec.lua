-- The rows of policies and segments by the C functions alone; by the Lua objects they run in
-- policy_spec.lua and segments_spec.lua.
local N = require("neap.ffi")
local c_manager = require("spec.support.c_manager")
local vectors = require("spec.support.vectors")

local C, ffi, check = N.C, N.ffi, N.check

local KINDS = {
  All = "all", None = "none", EveryN = "every_n", ByName = "by_name", GreedyMemory = "greedy",
}

local function policy_of(row)
  return c_manager.policy({ policy = assert(KINDS[row.kind]), n = row.n, names = row.prefixes,
    budget = row.budget_bytes })
end

describe("the C functions of policies", function()
  local rows = vectors.load("seed_policy").rows

  it("decide each row of seed_policy.json as they should", function()
    local n = 0
    for _, row in ipairs(rows.should_checkpoint) do
      local policy, anchor = policy_of(row.policy)
      local drops = check(C.neap_policy_drops(policy, row.layer_name, row.layer_idx,
        row.memory_bytes, 0))
      assert.equal(row.right, drops == 1, row.id .. tostring(anchor == nil))
      n = n + 1
    end
    assert.equal(96, n)
  end)

  it("fit each greedy sequence, alone and in a manager", function()
    local n = 0
    for _, row in ipairs(rows.greedy_sequences) do
      local options = { policy = "greedy", budget = row.budget_bytes }
      local policy, manager = c_manager.policy(options), c_manager.new(options)
      local stored = 0ULL
      for i, size in ipairs(row.sizes) do
        local drops = check(C.neap_policy_drops(policy, "l" .. i, i - 1, size, stored))
        assert.equal(row.right[i], drops == 1, row.id .. ", layer " .. i)
        if drops == 0 then stored = stored + size end
        assert.equal(drops, check(C.neap_manager_record_payload(manager.c, "l" .. i, i - 1, size, 1,
          0, -1)))
      end
      assert.is_true(vectors.same(row.right_stored_bytes, stored), row.id)
      assert.is_true(vectors.same(row.right_stored_bytes, manager:stats().stored_bytes), row.id)
      n = n + 1
    end
    assert.equal(8, n)
  end)
end)

describe("the C functions of segments", function()
  local rows = vectors.load("seed_segment").rows

  local function new(n_segments, n_stages)
    local out = ffi.new("neap_segments *[1]")
    local code = C.neap_segments_new(n_segments, n_stages, out)
    return code, code == 0 and ffi.gc(out[0], C.neap_segments_free)
  end

  it("split each cell of seed_segment.json as they should", function()
    local n = 0
    for _, row in ipairs(rows.grid) do
      local right, code, found = row.right, new(row.num_segments_arg, row.total_layers)
      if right.error then
        assert.equal("InvalidSegmentCount", right.error)
        assert.equal(C.NEAP_ERR_SEGMENT_COUNT, code, row.id)
      else
        local starts, boundaries, kept = {}, {}, {}
        for k = 0, right.segments - 1 do
          starts[k + 1] = tonumber(C.neap_segments_start(found, k))
          kept[k + 1] = tonumber(C.neap_segments_start(found, k + 1)) - 1
        end
        for i = 0, 3 * row.total_layers do
          if check(C.neap_segments_is_boundary(found, i)) == 1 then
            boundaries[#boundaries + 1] = i
          end
        end
        assert.same(right.starts, starts, row.id)
        assert.same(right.boundaries, boundaries, row.id)
        assert.same(right.kept_outputs, kept, row.id)
        assert.same({}, right.out_of_range_true)
        assert.equal(vectors.bits(right.kept_fraction),
          vectors.bits(C.neap_segments_kept_fraction(found)), row.id)
      end
      n = n + 1
    end
    assert.equal(210, n)
  end)

  local function run_op(found, op, id)
    if op.op == "record_segment" then
      local code = C.neap_segments_record(found, op.idx,
        ffi.new("float[?]", #op.output + 1, op.output), #op.output)
      assert.equal(op.result == "ok" and 0 or C.NEAP_ERR_SEGMENT, code, id)
      if code < 0 then assert.equal(op.display, ffi.string(C.neap_last_error()), id) end
      return
    end
    local data, count = ffi.new("const float *[1]"), ffi.new("uint64_t[1]")
    check(C.neap_segments_get(found, op.idx, data, count))
    local list = data[0] ~= nil and {} or nil
    for i = 1, tonumber(count[0]) do list[i] = data[0][i - 1] end
    assert.same(op.result, list, id)
  end

  it("record and give back each sequence of seed_segment.json", function()
    local n = 0
    for _, row in ipairs(rows.io) do
      local code, found = new(row.num_segments_arg, row.total_layers)
      if row.right then
        assert.equal("InvalidSegmentCount", row.right.error)
        assert.equal(C.NEAP_ERR_SEGMENT_COUNT, code, row.id)
      else
        for _, op in ipairs(row.ops) do run_op(found, op, row.id) end
      end
      n = n + 1
    end
    assert.equal(8, n)
  end)
end)
