local N = require("neap.ffi")
local fail = require("neap.fail")
local managers = require("neap.checkpoint.manager")
local failure_of = require("spec.support.failure_of")

local C, ffi, check = N.C, N.ffi, N.check

describe("a checkpoint manager", function()
  local function filled(options)
    local manager = managers.new(options)
    for i = 0, 3 do manager:record_data("l" .. i, i, { i, i, i }, { 3, 1 }, 10 + i) end
    return manager
  end

  it("says of each record what became of it", function()
    local manager = managers.new({ policy = "every_n", n = 2 })
    assert.equal("checkpointed", manager:record_data("a", 0, { 1 }, { 1 }))
    assert.equal("stored", manager:record_data("b", 1, { 1 }, { 1 }))
    assert.equal("checkpointed", manager:record_size("c", 2, { 5 }))
  end)

  it("lists what it knows in the order of the records", function()
    local list = filled("every_n:2"):snapshots()
    assert.equal(4, #list)
    assert.same({
      name = "l2", index = 2, is_checkpointed = true, is_stored = false, logical_bytes = 12,
      stored_bytes = 0, n_elements = 3, n_data = 0, cost = 12, shape = { 3, 1 },
    }, list[3])
    assert.same({
      name = "l3", index = 3, is_checkpointed = false, is_stored = true, logical_bytes = 12,
      stored_bytes = 12, n_elements = 3, n_data = 3, cost = 0, shape = { 3, 1 },
    }, list[4])
  end)

  it("lowers stored and current bytes at a release and takes the name again", function()
    local manager = filled("none")
    manager:release("l1")
    local stats = manager:stats()
    assert.equal(36, stats.stored_bytes)
    assert.equal(36, manager:current_bytes())
    assert.equal(3, stats.n_stored)
    assert.equal(3, stats.n_snapshots)
    assert.equal("checkpoint layer not found: 'l1'",
      failure_of("not found", manager.get, manager, "l1"))
    failure_of("not found", manager.release, manager, "l1")
    manager:record_data("l1", 9, { 7 }, { 1 })
    local names = {}
    for i, snapshot in ipairs(manager:snapshots()) do names[i] = snapshot.name end
    assert.same({ "l0", "l2", "l3", "l1" }, names)
    assert.same({ 7 }, manager:get("l1"))
  end)

  it("keeps the log and the recomputed bytes at the release of a dropped one", function()
    local manager = filled("all")
    manager:get("l2", function() return { 1, 2, 3 } end)
    manager:release("l2")
    local stats = manager:stats()
    assert.equal(36, stats.checkpointed_bytes)
    assert.equal(3, stats.n_checkpointed)
    assert.equal(12, stats.recomputed_bytes)
    assert.same({ "l2" }, manager:log())
  end)

  it("lets greedy store again what a release made room for", function()
    local manager = managers.new("greedy:12")
    assert.equal("stored", manager:record_size("a", 0, { 3 }))
    assert.equal("checkpointed", manager:record_size("b", 1, { 1 }))
    manager:release("a")
    assert.equal("stored", manager:record_size("c", 2, { 2 }))
    assert.equal("checkpointed", manager:record_size("d", 3, { 2 }))
  end)

  it("hands a closure the manager and the nearest stored activation before", function()
    local manager = managers.new("every_n:3")
    for i = 0, 4 do manager:record_data("l" .. i, i == 0 and 1 or i - 1, { i }, { 1 }) end
    -- l0 has index 1 and is stored; l1 and l4 have 0 and 3 and are dropped
    local seen = {}
    local value = manager:get("l4", function(m, previous)
      seen[1] = previous
      return { m:get(previous)[1] + m:get("l1", function(_, before)
        seen[2] = before
        return { 40 }
      end)[1] }
    end)
    assert.same({ "l3", "l0" }, seen)
    assert.same({ 43 }, value)
    assert.same({ "l1", "l4" }, manager:log())
    manager:release("l3")
    manager:get("l4", function(_, previous)
      assert.equal("l2", previous)
      return { 0 }
    end)
    local first = managers.new("all")
    first:record_data("a", 0, { 1 }, { 1 })
    first:get("a", function(_, previous)
      assert.is_nil(previous)
      return { 0 }
    end)
  end)

  it("gives a failing closure's kind and message once, and counts nothing", function()
    local manager = filled("all")
    local stats = manager:stats()
    local function get_with(kind, raise)
      local message = failure_of(kind, manager.get, manager, "l0", raise)
      assert.same(stats, manager:stats())
      return message
    end
    assert.equal("recomputation failed: oom", get_with("out of memory",
      function() fail.raise("out of memory", "oom") end))
    assert.equal("recomputation failed: oom", get_with("recomputation failed",
      function() fail.raise("recomputation failed", "recomputation failed: oom") end))
    assert.matches("^recomputation failed: .*boom$", get_with("recomputation failed",
      function() error("boom") end))
    assert.equal("recomputation failed: the closure of 'l0' returned nil; expected a tensor or an "
      .. "array of numbers", get_with("recomputation failed", function() end))
    -- a failure inside a failure is still said once
    assert.equal("recomputation failed: deep", get_with("device", function()
      return manager:get("l1", function() fail.raise("device", "deep") end)
    end))
    assert.matches("expected a closure", get_with("usage", nil))
  end)

  it("puts back randomness, scopes and the tape when a closure fails", function()
    local manager = filled("all")
    local before, after = ffi.new("neap_rng_state"), ffi.new("neap_rng_state")
    check(C.neap_rng_get(before))
    local depth, tape = C.neap_scope_depth(), C.neap_tape_selected()
    failure_of("recomputation failed", manager.get, manager, "l0", function()
      assert.equal(1, C.neap_recomputing())
      local moved = ffi.new("neap_rng_state", before)
      moved.seed, moved.call = before.seed + 1, before.call + 7
      check(C.neap_rng_set(moved))
      check(C.neap_scope_begin())
      check(C.neap_scope_begin())
      check(C.neap_tape_select(check(C.neap_tape_new())))
      error("half-way")
    end)
    check(C.neap_rng_get(after))
    assert.equal(before.seed, after.seed)
    assert.equal(before.call, after.call)
    assert.equal(depth, C.neap_scope_depth())
    assert.equal(tape, C.neap_tape_selected())
    assert.equal(0, C.neap_recomputing())
  end)

  it("refuses a wrong option, name, shape, index, cost or datum", function()
    assert.matches("did you mean 'n'", failure_of("usage", managers.new,
      { policy = "every_n", m = 2 }))
    assert.matches("decides over segments", failure_of("usage", managers.new, "segments:2"))
    assert.matches("say 'none'", failure_of("usage", managers.new, "every_n:0"))
    local manager = managers.new("none")
    local function refused(text, ...)
      assert.matches(text, failure_of("usage", manager.record_data, manager, ...), 1, true)
    end
    refused("name is nil", nil, 0, { 1 }, { 1 })
    refused("zero bytes", "a\0b", 0, { 1 }, { 1 })
    refused("idx is -1", "a", -1, { 1 }, { 1 })
    refused("idx is 0.5", "a", 0.5, { 1 }, { 1 })
    refused("data is nil", "a", 0, nil, { 1 })
    refused("number 1 is 'x'", "a", 0, { "x" }, { 1 })
    refused("shape is nil", "a", 0, { 1 }, nil)
    refused("dimension 2 is -3", "a", 0, { 1 }, { 1, -3 })
    refused("dimension 1 is nan", "a", 0, { 1 }, { 0 / 0 })
    refused("cost is 'x'", "a", 0, { 1 }, { 1 }, "x")
    assert.matches("expected a tensor", failure_of("usage", manager.record, manager, "a", 0, 7))
    assert.equal(0, manager:stats().n_snapshots)
  end)
end)
