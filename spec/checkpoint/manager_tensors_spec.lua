local N = require("neap.ffi")
local managers = require("neap.checkpoint.manager")
local failure_of = require("spec.support.failure_of")

local C, ffi, check = N.C, N.ffi, N.check

describe("a checkpoint manager of tensors", function()
  local device

  local function tensor(...)
    local dims = { ... }
    local shape = ffi.new("double[?]", math.max(#dims, 1))
    for d, dim in ipairs(dims) do shape[d - 1] = dim end
    local id = check(C.neap_tensor_new(device, C.NEAP_F32, #dims, shape, C.NEAP_TAG_ACTIVATIONS))
    return ffi.new("neap_tensor", { id })
  end

  local function live() return check(C.neap_memory_live(device)) end

  before_each(function()
    local out = ffi.new("int[1]")
    check(C.neap_device_open("null", 0, out))
    device = out[0]
  end)

  -- fails when the manager left a tensor behind
  after_each(function() check(C.neap_device_close(device)) end)

  it("holds a stored tensor without a copy, beyond the scope it was made in", function()
    local manager = managers.new("none")
    local depth = check(C.neap_scope_begin())
    local x = tensor(4, 8)
    assert.equal("stored", manager:record("x", 0, x, 5))
    assert.equal(128, live())
    check(C.neap_scope_end(depth, 0, nil))
    assert.equal(0, C.neap_tensor_alive(x.id))
    assert.equal(128, live())
    local y = manager:get("x", function() error("not called") end)
    assert.is_true(ffi.istype("neap_tensor", y))
    assert.equal(4, C.neap_tensor_dim(y.id, 0))
    assert.equal(128, manager:current_bytes())
    manager:release("x")
    assert.equal(0, live())
    assert.equal(0, C.neap_tensor_alive(y.id))
  end)

  it("holds nothing of a dropped one and checks what the closure gives", function()
    local manager = managers.new("all")
    local x = tensor(2, 3)
    assert.equal("checkpointed", manager:record("x", 0, x, 5))
    C.neap_tensor_free(x.id)
    assert.equal(0, live())
    assert.equal(64, manager:stats().checkpointed_bytes)
    local made = tensor(2, 3)
    assert.equal(made.id, manager:get("x", function() return made end).id)
    C.neap_tensor_free(made.id)
    assert.equal(64, manager:stats().recomputed_bytes)
    for _, dims in ipairs({ { 5 }, { 3, 2 }, { 6 } }) do
      local wrong = tensor(unpack(dims))
      assert.equal("shape mismatch: expected [2, 3], got [" .. table.concat(dims, ", ") .. "]",
        failure_of("shape mismatch", manager.get, manager, "x", function() return wrong end))
      C.neap_tensor_free(wrong.id)
    end
    assert.equal("shape mismatch: expected [2, 3], got [5]", failure_of("shape mismatch",
      manager.get, manager, "x", function() return { 1, 2, 3, 4, 5 } end))
    assert.same({ "x" }, manager:log())
    assert.equal(6, #manager:get("x", function() return { 1, 2, 3, 4, 5, 6 } end))
  end)

  it("takes a tensor for what was recorded as numbers", function()
    local manager = managers.new("all")
    manager:record_data("x", 0, { 1, 2, 3, 4 }, { 4 })
    local good, bad = tensor(2, 2), tensor(5)
    manager:get("x", function() return good end)
    assert.equal("shape mismatch: expected [4], got [5]",
      failure_of("shape mismatch", manager.get, manager, "x", function() return bad end))
    C.neap_tensor_free(good.id)
    C.neap_tensor_free(bad.id)
  end)

  it("frees its handles when a name is refused, at clear and at the end", function()
    local manager = managers.new("none")
    local x = tensor(16)
    manager:record("x", 0, x)
    assert.matches("recorded already (index 0, 64 bytes)", failure_of("duplicate", manager.record,
      manager, "x", 1, x), 1, true)
    manager:record("y", 1, x)
    C.neap_tensor_free(x.id)
    assert.equal(64, live())
    manager:clear()
    assert.equal(0, live())
    assert.equal(0, manager:stats().n_snapshots)
    local z = tensor(16)
    managers.new("none"):record("z", 0, z)
    C.neap_tensor_free(z.id)
    -- nobody has that manager any more
    collectgarbage()
    collectgarbage()
    assert.equal(0, live())
  end)

  it("refuses a stale tensor and stays as it was", function()
    local manager = managers.new("none")
    local x = tensor(16)
    C.neap_tensor_free(x.id)
    failure_of("stale handle", manager.record, manager, "x", 0, x)
    assert.equal(0, manager:stats().n_snapshots)
  end)

  it("leaves no tensor behind when memory fails", function()
    local x = tensor(16)
    local manager = managers.new("none")
    local n = 0
    repeat
      n = n + 1
      check(C.neap_memory_fail(n, 1))
      local ok = pcall(manager.record, manager, "x", 0, x)
      check(C.neap_memory_fail(0, 0))
      local stats = ffi.new("neap_memory_stats")
      check(C.neap_memory_get(device, stats))
      assert.equal(ok and 2 or 1, stats.n_tensors)
      assert.equal(ok and 1 or 0, manager:stats().n_snapshots)
    until ok or n > 50
    assert.is_true(n > 1 and n <= 50)
    manager:clear()
    C.neap_tensor_free(x.id)
  end)
end)
