local C = require("neap.ffi").C
local fail = require("neap.fail")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")

describe("the memory that auto_chunk looks at", function()
  local function probe(device, fields)
    local options = { cap = 4, floor = 1, device = device, log = false,
      forward_at = function(n) return neap.empty({ n, 16 }) end }
    for key, value in pairs(fields or {}) do options[key] = value end
    return neap.auto_chunk(options)
  end

  local function with(name, options, fn)
    local device = neap.device(name, options)
    local ok, err = pcall(fn, device)
    neap.device("cpu")
    device:close()
    if not ok then error(err, 0) end
  end

  it("is not told by a cpu without a budget: the default stays, no forward runs", function()
    local line
    local n, outcome = probe(neap.device("cpu"), { forward_at = error,
      log = function(text) line = text end })
    assert.is_nil(n)
    assert.equal("unsupported", outcome.kind)
    assert.equal("unsupported", outcome.stop)
    assert.equal("auto_chunk: the free memory is not told here, keep the default (cap 4, floor 1, "
      .. "target 60.0%)", line)
  end)

  it("is the machine's when asked for", function()
    with("cpu", { budget = 2 ^ 50 }, function(device)
      device:set_budget(nil)
      local available = C.neap_memory_available(device.id)
      local n, outcome = probe(device, { memory = "machine" })
      assert.equal(4, n)
      assert.equal(256, outcome.used_bytes)
      assert.equal(device:memory().size_bytes, outcome.total_bytes)
      -- other processes move it
      assert.is_true(math.abs(outcome.free_bytes - available) < available / 2)
      device:set_budget(4096)
      n, outcome = probe(device, { memory = "machine" })
      assert.equal(4, n)
      assert.equal(4096, outcome.free_bytes)
    end)
  end)

  it("is the null device's size, less what is alive, and its budget if that is less", function()
    with("null", { size = 10000 }, function(device)
      neap.scope(function()
        neap.empty({ 16 })
        local _, outcome = probe(device)
        assert.equal(10000 - 64, outcome.free_bytes)
        assert.equal(10000, outcome.total_bytes)
        assert.equal(64, outcome.item_bytes)
        device:set_budget(5000)
        _, outcome = probe(device)
        assert.equal(5000 - 64, outcome.free_bytes)
        device:set_budget(20000)
        _, outcome = probe(device)
        assert.equal(10000 - 64, outcome.free_bytes)
      end)
    end)
    with("null", { budget = 2 ^ 50 }, function(device)
      device:set_budget(nil)
      assert.equal("unsupported", select(2, probe(device)).kind)
    end)
  end)

  it("does not count a pool's reserve as taken", function()
    with("cpu", { budget = 2 ^ 24 }, function(device)
      neap.scope(function() neap.empty({ 2 ^ 20 }) end)
      assert.is_true(device:memory().cached_bytes > 0)
      local _, outcome = probe(device)
      -- and gives it back between rungs and at the end
      assert.equal(0, device:memory().cached_bytes)
      assert.equal(2 ^ 24, outcome.free_bytes)
      assert.equal(256, outcome.used_bytes)
    end)
  end)

  it("may be told by the caller, in whole bytes, numbers or uint64_t", function()
    local calls, settled = 0, 0
    local n, outcome = probe(neap.device("cpu"), { memory = function()
      calls = calls + 1
      return 9007199254740993ULL - calls, -1ULL
    end, settle = function() settled = settled + 1 end })
    assert.equal(4, n)
    assert.equal(4, calls)
    assert.equal(4, settled)
    assert.is_true(outcome.free_bytes == 9007199254740992ULL)
    assert.is_true(outcome.total_bytes == -1ULL)
    assert.equal(3, outcome.used_bytes)
    n, outcome = probe(neap.device("cpu"), { memory = function() return 1000.7 end })
    assert.equal(4, n)
    assert.equal(1000, outcome.free_bytes)
    assert.equal(1000, outcome.total_bytes)
    assert.is_nil(outcome.within_budget)
    assert.is_true(outcome.unmeasured)
    assert.matches("4 items: unmeasured; 1000 bytes free", outcome.line)
  end)
end)

describe("misuse of auto_chunk", function()
  it("is refused in one sentence, before anything runs", function()
    local function refused(pattern, fields)
      local options = { cap = 4, forward_at = error, log = false,
        memory = function() error("asked") end }
      for key, value in pairs(fields) do
        options[key] = value
        if value == "nil" then options[key] = nil end
      end
      assert.matches(pattern, failure_of("usage", neap.auto_chunk, options), 1, true)
    end
    assert.matches("its argument must be", failure_of("usage", neap.auto_chunk))
    refused("cap is nil", { cap = "nil" })
    refused("cap is -1", { cap = -1 })
    refused("cap is 0.5", { cap = 0.5 })
    refused("floor is 'x'", { floor = "x" })
    refused("target must be a number", { target = "0.5" })
    refused("forward_at must be a function", { forward_at = "nil" })
    refused("log must be a function", { log = 5 })
    refused("settle must be a function", { settle = 5 })
    refused("memory must be a function", { memory = "all" })
    refused("device must be what neap.device gave", { device = "cpu" })
    refused("did you mean 'floor'", { flor = 1 })
    assert.matches("NaN", failure_of("invalid argument", neap.auto_chunk, { cap = 4,
      forward_at = error, log = false, target = 0 / 0 }))
  end)

  it("of the memory function is an error of the caller", function()
    for _, value in ipairs({ -1, 0 / 0, "many", math.huge, {}, -1LL }) do
      assert.matches("the free memory", failure_of("usage", neap.auto_chunk, { cap = 4, log = false,
        forward_at = error, memory = function() return value end }))
    end
    assert.matches("the total memory", failure_of("usage", neap.auto_chunk, { cap = 4, log = false,
      forward_at = error, memory = function() return 5, "x" end }))
    local first = true
    assert.equal("gone", failure_of("device", neap.auto_chunk, { cap = 4, log = false,
      forward_at = function() return 1 end, memory = function()
        if not first then fail.raise("device", "gone") end
        first = false
        return 1000, 1000
      end }))
    assert.equal(0, C.neap_scope_depth())
  end)
end)
