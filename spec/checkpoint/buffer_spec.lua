local N = require("neap.ffi")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local numbers = require("spec.support.numbers")

local C, ffi, check = N.C, N.ffi, N.check

describe("an activation buffer", function()
  it("holds bytes by layer and gives them up", function()
    local buffer = neap.activation_buffer(1000)
    assert.equal(0, buffer:pressure())
    buffer:push(3, 250)
    buffer:push(0, 500)
    assert.equal(750, buffer:bytes())
    assert.equal(2, buffer:count())
    assert.equal(0.75, buffer:pressure())
    assert.is_true(buffer:holds(0))
    assert.equal(500, buffer:evict(0))
    assert.is_false(buffer:holds(0))
    assert.equal(250, buffer:bytes())
    buffer:push(0, 1)
    assert.equal(251, buffer:bytes())
  end)

  it("refuses a layer twice and one that is not there, and stays as it was", function()
    local buffer = neap.activation_buffer(1000)
    buffer:push(3, 250)
    assert.equal("layer 3 is in the buffer already, with 250 bytes",
      failure_of("duplicate", buffer.push, buffer, 3, 1))
    assert.equal("layer 4 is not in the buffer of 1 activations",
      failure_of("not found", buffer.evict, buffer, 4))
    assert.equal(250, buffer:bytes())
    assert.equal(1, buffer:count())
  end)

  it("takes more than its capacity and says so", function()
    local buffer = neap.activation_buffer(100)
    buffer:push(0, 150)
    assert.equal(1.5, buffer:pressure())
    local none = neap.activation_buffer(0)
    assert.equal(1, none:pressure())
    none:push(0, 1)
    assert.equal(math.huge, none:pressure())
  end)

  it("counts beyond 2^53 and refuses what 64 bits do not hold", function()
    local buffer = neap.activation_buffer(-1ULL)
    buffer:push(-1ULL, 9007199254740993ULL)
    assert.is_true(buffer:bytes() == 9007199254740993ULL)
    assert.matches("do not fit in 64 bits", failure_of("size overflow", buffer.push, buffer, 1,
      -1ULL))
    assert.is_true(buffer:evict(-1ULL) == 9007199254740993ULL)
    assert.equal(0, buffer:bytes())
  end)

  it("finds a layer among 100,000, whatever was evicted between", function()
    local buffer, random, held, n, sum = neap.activation_buffer(1e6), numbers.random(3), {}, 0, 0
    for i = 0, 99999 do buffer:push(i * 4096, i) end
    for i = 0, 99999 do
      held[i], n, sum = true, n + 1, sum + i
      if random.int(0, 2) > 0 then
        held[i], n, sum = false, n - 1, sum - i
        buffer:evict(i * 4096)
      end
    end
    for i = 0, 99999 do assert(buffer:holds(i * 4096) == held[i], i) end
    assert.equal(n, buffer:count())
    assert.equal(sum, buffer:bytes())
  end)

  it("refuses misuse in one sentence", function()
    local buffer = neap.activation_buffer(1)
    assert.matches("the capacity is %-1", failure_of("usage", neap.activation_buffer, -1))
    assert.matches("the capacity is nil", failure_of("usage", neap.activation_buffer))
    assert.matches("layer is 0.5", failure_of("usage", buffer.push, buffer, 0.5, 1))
    assert.matches("bytes is 'x'", failure_of("usage", buffer.push, buffer, 0, "x"))
    for _, method in ipairs({ "push", "evict", "holds", "bytes", "count", "pressure" }) do
      assert.matches("with a colon", failure_of("usage", buffer[method], 5))
    end
    assert.equal(C.NEAP_ERR_INVALID, C.neap_buffer_new(1, nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_buffer_push(nil, 1, 1))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_buffer_evict(nil, 1, nil))
    assert.equal(0, C.neap_buffer_holds(nil, 1))
    assert.equal(0, C.neap_buffer_pressure(nil))
    assert.is_true(C.neap_buffer_bytes(nil) == 0 and C.neap_buffer_count(nil) == 0)
    C.neap_buffer_free(nil)
  end)

  it("stays as it was when memory fails", function()
    local out = ffi.new("neap_buffer *[1]")
    check(C.neap_memory_fail(1, 1))
    assert.equal(C.NEAP_ERR_MEMORY, C.neap_buffer_new(1, out))
    check(C.neap_memory_fail(0, 0))
    local buffer = neap.activation_buffer(1)
    for i = 0, 40 do
      check(C.neap_memory_fail(1, 1))
      local ok = pcall(buffer.push, buffer, i, 2)
      check(C.neap_memory_fail(0, 0))
      assert.equal(ok and i + 1 or i, buffer:count())
      if not ok then buffer:push(i, 2) end
    end
    assert.equal(82, buffer:bytes())
  end)
end)
