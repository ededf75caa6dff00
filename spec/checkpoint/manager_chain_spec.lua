local N = require("neap.ffi")
local fail = require("neap.fail")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")

local C, check = N.C, N.check

-- activation i is made from those before it by `from` (how many); counts the closures' runs
local function chain_of(manager, n, from)
  local chain = { runs = 0 }
  function chain.get(i)
    return manager:get("l" .. i, function()
      chain.runs = chain.runs + 1
      local sum = 1
      for k = 1, math.min(from, i) do sum = sum + chain.get(i - k)[1] end
      return { sum }
    end)
  end
  for i = 0, n - 1 do manager:record_size("l" .. i, i, { 1 }) end
  return chain
end

describe("closures that ask the manager for earlier activations", function()
  it("run once each in one get, also where several ask for the same one", function()
    for _, from in ipairs({ 1, 2, 3 }) do
      local manager = neap.checkpoint_manager("all")
      local chain = chain_of(manager, 60, from)
      chain.get(59)
      assert.equal(60, chain.runs)
      assert.equal(60, #manager:log())
      assert.equal(240, manager:stats().recomputed_bytes)
    end
  end)

  it("give the right values", function()
    local chain = chain_of(neap.checkpoint_manager("all"), 30, 1)
    assert.same({ 30 }, chain.get(29))
    chain = chain_of(neap.checkpoint_manager("every_n:2"), 12, 0)
    assert.same({ 1 }, chain.get(10))
  end)

  it("go down a chain of 1,000", function()
    local chain = chain_of(neap.checkpoint_manager("all"), 1000, 1)
    assert.same({ 1000 }, chain.get(999))
    assert.equal(1000, chain.runs)
  end)

  it("run again in the next get, since nothing is kept between", function()
    local chain = chain_of(neap.checkpoint_manager("all"), 10, 1)
    chain.get(9)
    chain.get(9)
    assert.equal(20, chain.runs)
  end)

  it("run once each in a whole backward pass inside a hold", function()
    local manager = neap.checkpoint_manager("all")
    local chain = chain_of(manager, 100, 2)
    local first, last = manager:hold(function(held)
      assert.equal(manager, held)
      for i = 99, 0, -1 do chain.get(i) end
      return chain.get(0)[1], 7
    end)
    assert.equal(1, first)
    assert.equal(7, last)
    assert.equal(100, chain.runs)
    chain.get(0)
    assert.equal(101, chain.runs)
  end)

  it("are an error when one asks for its own activation", function()
    local manager = neap.checkpoint_manager("all")
    manager:record_size("a", 0, { 1 })
    manager:record_size("b", 1, { 1 })
    local function a(m) return m:get("b", function() return m:get("a", a) end) end
    assert.equal("recomputation failed: the closure of 'a' asks for 'a' itself",
      failure_of("recomputation failed", manager.get, manager, "a", a))
    assert.same({}, manager:log())
    assert.same({ 5 }, manager:get("a", function() return { 5 } end))
  end)

  it("keep nothing after a failure", function()
    local manager = neap.checkpoint_manager("all")
    local chain = chain_of(manager, 3, 1)
    failure_of("device", manager.hold, manager, function()
      chain.get(2)
      fail.raise("device", "gone")
    end)
    manager:record_size("x", 3, { 1 })
    assert.equal("recomputation failed: later", failure_of("device", manager.get, manager, "x",
      function()
        chain.get(1)
        fail.raise("device", "later")
      end))
    assert.equal(5, chain.runs)
    chain.get(1)
    assert.equal(7, chain.runs)
    assert.matches("must be a function", failure_of("usage", manager.hold, manager, 5))
    assert.matches("with a colon", failure_of("usage", manager.hold, {}, print))
  end)

  it("do not get again what was released and recorded anew meanwhile", function()
    local manager = neap.checkpoint_manager("all")
    manager:record_size("a", 0, { 1 })
    manager:hold(function()
      assert.same({ 1 }, manager:get("a", function() return { 1 } end))
      assert.same({ 1 }, manager:get("a"))
      manager:release("a")
      manager:record_size("a", 0, { 1 })
      assert.same({ 2 }, manager:get("a", function() return { 2 } end))
      manager:clear()
      manager:record_size("a", 0, { 1 })
      assert.same({ 3 }, manager:get("a", function() return { 3 } end))
    end)
  end)
end)

describe("tensors that are recomputed in a hold", function()
  local device

  setup(function() device = neap.device("null", { size = 2 ^ 20 }) end)
  teardown(function()
    device:close()
    neap.device("cpu")
  end)

  it("stay while it runs and are gone after it", function()
    local manager = neap.checkpoint_manager("all")
    for i = 0, 3 do
      neap.scope(function() manager:record("l" .. i, i, neap.empty({ 16 })) end)
    end
    assert.equal(0, device:memory().live_bytes)
    local runs = 0
    local function get(i)
      return manager:get("l" .. i, function()
        runs = runs + 1
        if i > 0 then get(i - 1) end
        return neap.empty({ 16 })
      end)
    end
    manager:hold(function()
      neap.scope(function() get(3) end)
      assert.equal(4 * 64, device:memory().live_bytes)
      assert.equal(64, get(0):bytes())
    end)
    assert.equal(4, runs)
    assert.equal(0, device:memory().live_bytes)
    neap.scope(function() get(3) end)
    assert.equal(8, runs)
    assert.equal(0, device:memory().live_bytes)
    neap.scope(function()
      failure_of("shape mismatch", manager.hold, manager, function()
        get(2)
        manager:get("l3", function() return neap.empty({ 4 }) end)
      end)
    end)
    assert.equal(0, device:memory().live_bytes)
  end)

  it("leave nothing behind when memory fails", function()
    local manager = neap.checkpoint_manager("all")
    neap.scope(function()
      for i = 0, 1 do manager:record("l" .. i, i, neap.empty({ 16 })) end
    end)
    local n = 0
    local ok
    repeat
      n = n + 1
      check(C.neap_memory_fail(n, 1))
      ok = pcall(neap.scope, function()
        manager:get("l1", function()
          manager:get("l0", function() return neap.empty({ 16 }) end)
          return neap.empty({ 16 })
        end)
      end)
      check(C.neap_memory_fail(0, 0))
      assert.equal(0, device:memory().live_bytes)
    until ok or n > 50
    assert.is_true(n <= 50)
  end)
end)

describe("a checkpoint manager of 100,000 records", function()
  it("finds and releases each of them in any order", function()
    local manager, n = neap.checkpoint_manager("every_n:2"), 100000
    for i = 0, n - 1 do manager:record_size("layer." .. i, i, { 1 }) end
    for i = 0, n - 1, 7919 do
      assert.equal("usage", select(2, pcall(manager.get, manager, "layer." .. i - i % 2)).kind)
    end
    -- from the front, the order that costs a list the most
    for i = 0, n - 101 do manager:release("layer." .. i) end
    assert.equal(100, manager:stats().n_snapshots)
    assert.equal(200, manager:stats().stored_bytes)
    local list = manager:snapshots()
    assert.equal("layer.99900", list[1].name)
    assert.equal("layer.99999", list[100].name)
    for i = n - 100, n - 1, 2 do manager:release("layer." .. i) end
    for i = 1, 60 do manager:record_size("new." .. i, i, { 1 }) end
    list = manager:snapshots()
    assert.equal(110, #list)
    assert.equal("layer.99901", list[1].name)
    assert.equal("new.60", list[110].name)
    manager:get("new.60", function(_, previous)
      assert.equal("new.59", previous)
      return { 0 }
    end)
    manager:clear()
    assert.equal(0, manager:stats().n_snapshots)
  end)
end)
