local C = require("neap.ffi").C
local ffi = require("ffi")
local segments = require("neap.checkpoint.segments")
local vectors = require("spec.support.vectors")
local failure_of = require("spec.support.failure_of")

local function refused(n_segments, n_stages)
  return failure_of("invalid segment count", segments.new, n_segments, n_stages)
end

describe("the segment checkpointer", function()
  local document = vectors.load("seed_segment")

  local function check_row(row)
    if row.right.error then
      assert.equal("InvalidSegmentCount", row.right.error)
      refused(row.num_segments_arg, row.total_layers)
      return
    end
    local found = segments.new(row.num_segments_arg, row.total_layers)
    local right = row.right
    assert.equal(right.segments, found.n_segments, row.id)
    assert.same(right.starts, found:starts(), row.id)
    assert.same(right.boundaries, found:boundaries(), row.id)
    local boundaries, kept = {}, {}
    for i = 0, row.total_layers - 1 do
      if found:is_boundary(i) then boundaries[#boundaries + 1] = i end
    end
    assert.same(right.boundaries, boundaries, row.id)
    for k = 0, found.n_segments - 1 do kept[k + 1] = found:start(k + 1) - 1 end
    assert.same(right.kept_outputs, kept, row.id)
    assert.same({}, right.out_of_range_true)
    for i = row.total_layers, 2 * row.total_layers + 20 do
      assert.is_false(found:is_boundary(i), row.id)
    end
    assert.equal(vectors.bits(right.kept_fraction), vectors.bits(found:kept_fraction()), row.id)
  end

  it("splits each cell of seed_segment.json as it should", function()
    local n = 0
    for _, row in ipairs(document.rows.grid) do
      check_row(row)
      n = n + 1
    end
    assert.equal(210, n)
  end)

  local function run_op(found, op, id)
    if op.op == "record_segment" then
      if op.result == "ok" then
        found:record(op.idx, op.output)
      else
        assert.equal("InvalidSegment", op.error)
        local message = failure_of("invalid segment", found.record, found, op.idx, op.output)
        assert.equal(op.display, message, id)
      end
    else
      assert.equal("get_segment_output", op.op)
      assert.same(op.result, found:get(op.idx), id)
    end
  end

  it("records and gives back each sequence of seed_segment.json", function()
    local n = 0
    for _, row in ipairs(document.rows.io) do
      if row.right then
        assert.equal("InvalidSegmentCount", row.right.error)
        refused(row.num_segments_arg, row.total_layers)
      else
        local found = segments.new(row.num_segments_arg, row.total_layers)
        for _, op in ipairs(row.ops) do run_op(found, op, row.id) end
      end
      n = n + 1
    end
    assert.equal(8, n)
  end)

  it("splits 9 stages in 5 segments whose lengths differ by at most 1", function()
    assert.same({ 0, 1, 3, 5, 7 }, segments.new(5, 9):starts())
    for n_stages = 1, 40 do
      for n_segments = 1, n_stages do
        local found, least, most = segments.new(n_segments, n_stages), math.huge, 0
        for k = 0, n_segments - 1 do
          local length = found:start(k + 1) - found:start(k)
          least, most = math.min(least, length), math.max(most, length)
        end
        assert.is_true(least >= 1 and most - least <= 1)
        assert.equal(n_stages, found:start(n_segments))
      end
    end
  end)

  it("refuses other counts, with the allowed range", function()
    for _, count in ipairs({ 0, 10, -1, 2.5, 0 / 0, math.huge, -math.huge, 2 ^ 60, "x" }) do
      assert.matches("1..9", refused(count, 9), 1, true)
    end
    assert.equal("2.5 segments of 9 stages: allowed are whole numbers, 1..9", refused(2.5, 9))
    assert.equal("10 segments of 9 stages: allowed are 1..9", refused(10, 9))
    assert.matches("1..9", refused(ffi.new("uint64_t", -1), 9), 1, true)
    assert.matches("needs a stage", refused(1, 0))
    assert.matches("n_stages is nil", refused(1, nil))
    assert.matches("n_stages is 1.5", refused(1, 1.5))
  end)

  it("reckons without overflow on a very long chain", function()
    local found = segments.new(3, 18446744073709551615ULL)
    assert.is_true(found:is_boundary(0))
    assert.is_true(found:is_boundary(6148914691236517205ULL))
    assert.is_false(found:is_boundary(6148914691236517206ULL))
    assert.is_true(found:is_boundary(18446744073709551614ULL))
    assert.is_false(found:is_boundary(18446744073709551615ULL))
  end)

  it("says so when there is no memory for the slots", function()
    assert.matches("18446744073709551615 segments", failure_of("out of memory", segments.new, -1ULL,
      -1ULL))
    local found = segments.new(2, 4)
    found:record(0, { 1 })
    C.neap_memory_fail(1, 2)
    assert.matches("2 segments", failure_of("out of memory", segments.new, 2, 4))
    assert.matches("segment 0", failure_of("out of memory", found.record, found, 0, { 2, 3 }))
    C.neap_memory_fail(0, 0)
    assert.same({ 1 }, found:get(0))
  end)

  it("refuses what is no index and no array of numbers", function()
    local found = segments.new(2, 4)
    for _, k in ipairs({ -1, 0.5, 0 / 0, "0" }) do
      assert.matches("expected a whole number", failure_of("usage", found.get, found, k))
      assert.matches("expected a whole number", failure_of("usage", found.record, found, k, { 1 }))
    end
    assert.matches("expected an array", failure_of("usage", found.record, found, 0, 7))
    assert.matches("number 2 is 'x'", failure_of("usage", found.record, found, 0, { 1, "x" }))
    assert.is_nil(found:get(0))
  end)

  it("prints itself", function()
    assert.equal("2 segments of 4 stages, starting at 0, 2", tostring(segments.new(2, 4)))
  end)
end)
