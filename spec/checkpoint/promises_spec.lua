-- What the source systems left open or got wrong beyond their rows, promise by promise.
local N = require("neap.ffi")
local neap = require("neap")
local fail = require("neap.fail")
local failure_of = require("spec.support.failure_of")

local C, ffi = N.C, N.ffi

local function shapes_of(...)
  local manager = neap.checkpoint_manager("none")
  for i, shape in ipairs({ ... }) do manager:record_size("x" .. i, i, shape) end
  return manager:snapshots()
end

describe("an activation", function()
  it("of no dimensions has one element, one with a zero dimension has none", function()
    local list = shapes_of({}, { 3, 0 }, { 2ULL ^ 40, 2ULL ^ 40, 0 }, { 0, 2ULL ^ 40, 2ULL ^ 40 })
    assert.equal(1, list[1].n_elements)
    assert.equal(4, list[1].logical_bytes)
    for i = 2, 4 do
      assert.equal(0, list[i].n_elements)
      assert.is_true(list[i].is_stored)
    end
  end)

  it("has its size whether held or not, and stored bytes only when held", function()
    for policy, stored in pairs({ none = 24, all = 0 }) do
      local manager = neap.checkpoint_manager(policy)
      manager:record_size("x", 0, { 2, 3 }, 5)
      local snapshot = manager:snapshots()[1]
      assert.equal(24, snapshot.logical_bytes)
      assert.equal(stored, snapshot.stored_bytes)
      assert.equal(policy == "none", snapshot.is_stored)
      assert.equal(policy == "all", snapshot.is_checkpointed)
      assert.equal(policy == "all" and 5 or 0, snapshot.cost)
    end
  end)

  it("is not changed by who changes what was told about it", function()
    local manager = neap.checkpoint_manager("none")
    manager:record_data("x", 0, { 1, 2 }, { 2 })
    local told = manager:snapshots()[1]
    told.name, told.is_stored, told.shape[1], told.logical_bytes = "y", false, 9, 0
    manager:get("x")[1] = 7
    manager:stats().stored_bytes = 0
    assert.same({ 2 }, manager:snapshots()[1].shape)
    assert.equal("x", manager:snapshots()[1].name)
    assert.same({ 1, 2 }, manager:get("x"))
    assert.equal(8, manager:stats().stored_bytes)
  end)

  it("without elements is dropped too when the policy says so", function()
    for _, policy in ipairs({ "all", "every_n:1", "by_name:x" }) do
      local manager = neap.checkpoint_manager(policy)
      assert.equal("checkpointed", manager:record_size("x", 0, { 0 }), policy)
    end
    assert.equal("stored", neap.checkpoint_manager("greedy:0"):record_size("x", 0, { 0 }))
  end)
end)

describe("a checkpoint manager", function()
  it("takes any index, also twice", function()
    local manager = neap.checkpoint_manager("every_n:2")
    assert.equal("stored", manager:record_size("a", 7, { 1 }))
    assert.equal("stored", manager:record_size("b", 7, { 1 }))
    assert.equal("checkpointed", manager:record_size("c", -2ULL, { 1 }))
  end)

  it("calls no closure for an unknown name or a stored activation", function()
    local manager = neap.checkpoint_manager("none")
    manager:record_data("a", 0, { 1 }, { 1 })
    local function never() error("called") end
    assert.same({ 1 }, manager:get("a", never))
    assert.equal("checkpoint layer not found: 'b'",
      failure_of("not found", manager.get, manager, "b", never))
    assert.equal(0, manager:stats().recomputed_bytes)
    assert.same({}, manager:log())
  end)

  it("starts again after a clear, with its policy", function()
    local manager = neap.checkpoint_manager("all")
    manager:record_size("a", 0, { 1 })
    manager:get("a", function() return { 1 } end)
    manager:clear()
    local stats = manager:stats()
    for _, field in ipairs({ "stored_bytes", "checkpointed_bytes", "recomputed_bytes", "n_stored",
      "n_checkpointed", "n_snapshots", "n_log", "savings_ratio" }) do
      assert.equal(0, stats[field], field)
    end
    assert.equal("checkpointed", manager:record_size("a", 0, { 1 }))
  end)

  it("asks another policy only about later records", function()
    local manager = neap.checkpoint_manager("all")
    manager:record_size("a", 0, { 1 })
    manager:set_policy("none")
    manager:record_size("b", 1, { 1 })
    local list = manager:snapshots()
    assert.is_true(list[1].is_checkpointed and list[2].is_stored)
  end)

  it("keeps the kind of an error that a closure raises, whatever it is", function()
    local manager = neap.checkpoint_manager("all")
    manager:record_size("a", 0, { 1 })
    for _, kind in ipairs({ "shape mismatch", "not found", "out of memory", "invalid plan" }) do
      assert.equal("recomputation failed: why", failure_of(kind, manager.get, manager, "a",
        function() fail.raise(kind, "why") end))
    end
  end)

  it("prints itself", function()
    local manager = neap.checkpoint_manager("every_n:2")
    for i = 0, 2 do manager:record_size("l" .. i, i, { i + 1 }) end
    assert.equal("checkpoint manager every_n:2: 1 stored (8 bytes), 2 checkpointed (16 bytes)",
      tostring(manager))
  end)
end)

describe("a segment checkpointer", function()
  it("overwrites an output and holds an empty one", function()
    local segments = neap.segment_checkpointer(3, 12)
    segments:record(0, { 1, 2, 3 })
    segments:record(0, { 4 })
    segments:record(2, {})
    assert.same({ 4 }, segments:get(0))
    assert.same({}, segments:get(2))
    assert.is_nil(segments:get(1))
    assert.is_nil(segments:get(3))
  end)

  it("tells the bytes it holds and gives them up", function()
    local segments = neap.segment_checkpointer(2, 4)
    assert.equal(0, segments:bytes())
    segments:record(0, { 1, 2, 3 })
    segments:record(1, { 1 })
    segments:record(0, { 1 })
    assert.equal(8, segments:bytes())
    segments:clear()
    assert.equal(0, segments:bytes())
    assert.is_nil(segments:get(0))
    segments:record(1, { 9 })
    assert.same({ 9 }, segments:get(1))
    assert.matches("with a colon", failure_of("usage", segments.clear))
    assert.matches("with a colon", failure_of("usage", segments.bytes))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_segments_clear(nil))
    assert.is_true(C.neap_segments_bytes(nil) == 0)
  end)

  it("keeps one output a segment: the boundary before segment k is slot k - 1", function()
    local segments = neap.segment_checkpointer(3, 12)
    assert.same({ 0, 4, 8, 11 }, segments:boundaries())
    for k = 0, 2 do segments:record(k, { segments:start(k + 1) - 1 }) end
    for k = 1, 2 do assert.same({ segments:start(k) - 1 }, segments:get(k - 1)) end
    assert.same({ 11 }, segments:get(2))
  end)

  it("is not led astray by who changes its fields", function()
    for _, n in ipairs({ 0, 99 }) do
      local segments = neap.segment_checkpointer(3, 12)
      segments.n_segments = n
      assert.is_true(segments:is_boundary(4))
      assert.is_false(segments:is_boundary(5))
      failure_of("invalid segment", segments.record, segments, 3, { 1 })
      assert.is_nil(segments:get(98))
      assert.equal(0.25, segments:kept_fraction())
    end
  end)

  it("makes as many segments as asked, of which each stage is in one", function()
    for n_stages = 1, 30 do
      for n = 1, n_stages do
        local segments = neap.segment_checkpointer(n, n_stages)
        assert.equal(n, #segments:starts())
        assert.equal(ffi.new("float", n / n_stages), segments:kept_fraction())
        assert.is_true(segments:kept_fraction() <= 1)
      end
    end
  end)
end)
