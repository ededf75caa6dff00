-- What tensors hold, at the C level: views, host copies, versions, copies, hashes.
local neap = require("neap")
local native = require("neap.ffi")
local scope = require("neap.scope")

local C, ffi, check = native.C, native.ffi, native.check

describe("the contents of a tensor", function()
  local cpu
  setup(function() cpu = neap.device("cpu", { budget = "1GiB" }) end)
  teardown(function()
    cpu:close()
    neap.device("cpu")
  end)
  before_each(function() scope.begin() end)
  after_each(function()
    scope.stop(1)
    assert.equal(0, cpu:memory().live_bytes)
  end)

  local function new(numbers, dims)
    local n = #numbers
    local id = check(C.neap_tensor_new(cpu.id, C.NEAP_F32, dims and #dims or 1,
      ffi.new("double[8]", dims or { n }), -1))
    check(C.neap_tensor_write(id, ffi.new("float[?]", math.max(n, 1), numbers), 4 * n))
    return id
  end
  local function view(id, first, ...)
    return C.neap_tensor_view(id, select("#", ...), ffi.new("double[8]", { ... }), first)
  end
  local function read(id)
    local n = check(C.neap_tensor_n_elements(id))
    local host, out = ffi.new("float[?]", math.max(n, 1)), {}
    check(C.neap_tensor_read(id, host, n * 4))
    for i = 1, n do out[i] = host[i - 1] end
    return out
  end
  local function hash(...)
    local hex = ffi.new("char[33]")
    check(C.neap_tensor_hash(select("#", ...), ffi.new("double[8]", { ... }), hex))
    return ffi.string(hex)
  end

  it("is shared by views and detached handles, and kept by the last one", function()
    local x = new({ 1, 2, 3, 4, 5, 6 }, { 2, 3 })
    local rows, twin = check(view(x, 3, 3)), check(C.neap_tensor_detach(x))
    assert.equal(64, cpu:memory().live_bytes)
    assert.equal(C.neap_tensor_storage(x), C.neap_tensor_storage(rows))
    assert.same({ 4, 5, 6 }, read(rows))
    check(C.neap_tensor_fill(rows, 9))
    assert.same({ 1, 2, 3, 9, 9, 9 }, read(x))
    assert.equal(C.neap_tensor_version(rows), C.neap_tensor_version(twin))
    C.neap_tensor_free(x)
    C.neap_tensor_free(twin)
    assert.same({ 9, 9, 9 }, read(rows))
    assert.equal(64, cpu:memory().live_bytes)
    C.neap_tensor_free(rows)
    assert.equal(0, cpu:memory().live_bytes)
  end)

  it("is not seen by views that reach outside, or begin at no element", function()
    local x = new({ 1, 2, 3, 4 })
    for _, first in ipairs({ -1, 0.5, 3, 2 ^ 53, 0 / 0, math.huge, -math.huge }) do
      assert.equal(C.NEAP_ERR_SHAPE, view(x, first, 2))
    end
    assert.equal(C.NEAP_ERR_SHAPE, view(x, 0, 5))
    assert.equal(C.NEAP_ERR_OVERFLOW, view(x, 0, 2 ^ 32, 2 ^ 32))
    assert.same({ 3, 4 }, read(check(view(x, 2, 1, 2))))
    assert.same({}, read(check(view(x, 4, 0))))
    assert.equal(C.NEAP_ERR_SHAPE, view(check(view(x, 2, 2)), 1, 2))
  end)

  it("is written and read only as a whole", function()
    local x, host = new({ 1, 2, 3 }), ffi.new("float[8]", 7)
    for _, bytes in ipairs({ 0, 4, 11, 13, 16 }) do
      assert.equal(C.NEAP_ERR_SHAPE, C.neap_tensor_write(x, host, bytes))
      assert.equal(C.NEAP_ERR_SHAPE, C.neap_tensor_read(x, host, bytes))
    end
    assert.equal(C.NEAP_ERR_SHAPE, C.neap_tensor_write(x, nil, 12))
    assert.equal(C.NEAP_ERR_SHAPE, C.neap_tensor_read(x, nil, 12))
    assert.same({ 1, 2, 3 }, read(x))
    assert(ffi.string(C.neap_last_error()):find("12 bytes"))
    local empty = new({})
    assert.equal(0, C.neap_tensor_write(empty, nil, 0))
    assert.equal(0, C.neap_tensor_read(empty, nil, 0))
  end)

  it("gets a higher version with each write in place, and with no read", function()
    local x, y, host = new({ 1, 2 }), new({ 3, 4 }), ffi.new("float[2]")
    local version = C.neap_tensor_version(x)
    local function raised(code)
      check(code)
      version = version + 1
      assert.equal(version, C.neap_tensor_version(x))
    end
    raised(C.neap_tensor_write(x, host, 8))
    raised(C.neap_tensor_fill(x, 3))
    raised(C.neap_tensor_fill_normal(x, 0, 1, 1, 1))
    raised(C.neap_tensor_fill_uniform(x, 0, 1, 1, 1))
    raised(C.neap_tensor_copy(x, y))
    check(C.neap_tensor_read(x, host, 8))
    check(C.neap_tensor_copy(y, x))
    hash(x)
    assert.equal(C.NEAP_ERR_SHAPE, C.neap_tensor_write(x, host, 4))
    assert.equal(version, C.neap_tensor_version(x))
  end)

  it("is copied between tensors of one shape and dtype, on any two devices", function()
    local null = neap.device("null", { budget = 4096 })
    local other = neap.device("cpu", { budget = 4096 })
    neap.scope(function()
      local x = new({ 1, 2, 3, 4 }, { 2, 2 })
      local there = neap.zeros({ 2, 2 }, { device = other })
      local nowhere = neap.zeros({ 2, 2 }, { device = null })
      check(C.neap_tensor_copy(there.id, x))
      assert.same({ 1, 2, 3, 4 }, there:table())
      check(C.neap_tensor_copy(nowhere.id, x))
      check(C.neap_tensor_copy(x, nowhere.id))
      assert.same({ 1, 2, 3, 4 }, read(x))
      check(C.neap_tensor_copy(x, x))
      for _, dims in ipairs({ { 4 }, { 1, 4 }, { 2, 3 }, {} }) do
        assert.equal(C.NEAP_ERR_SHAPE, C.neap_tensor_copy(x, neap.zeros(dims, { device = cpu }).id))
      end
      local ints = neap.zeros({ 2, 2 }, { device = cpu, dtype = "i32" })
      assert.equal(C.NEAP_ERR_SHAPE, C.neap_tensor_copy(x, ints.id))
      assert(ffi.string(C.neap_last_error()):find("to is f32 (2, 2), from is i32 (2, 2)", 1, true))
      check(C.neap_memory_fail(1, 1))
      assert.equal(C.NEAP_ERR_MEMORY, C.neap_tensor_copy(there.id, x))
      check(C.neap_memory_fail(0, 0))
    end)
    null:close()
    other:close()
  end)

  it("has a hash that changes with any bit, and with the order of tensors", function()
    local x, y = new({ 1, 2, 3 }), new({ 1, 2, 3 }, { 3, 1 })
    assert(hash(x):match("^%x+$") and #hash(x) == 32)
    assert.equal(hash(x), hash(y))
    assert.equal(hash(), hash(new({})))
    local seen, n = {}, 0
    for i = 1, 3 do
      for _, value in ipairs({ 0, -0.0, 1.0000001, -1, 2.5 }) do
        local numbers = { 1, 2, 3 }
        numbers[i] = value
        seen[hash(new(numbers))] = true
      end
    end
    for _ in pairs(seen) do n = n + 1 end
    assert.equal(15, n)
    local z = new({ 4 })
    assert.are_not.equal(hash(x, z), hash(z, x))
    assert.equal(hash(x, z), hash(new({ 1, 2, 3, 4 })))
    for _, bad in ipairs({ -1, 0 / 0, 1e300 }) do
      assert.equal(C.NEAP_ERR_INVALID,
        C.neap_tensor_hash(bad, ffi.new("double[1]"), ffi.new("char[33]")))
    end
    assert.equal(C.NEAP_ERR_INVALID, C.neap_tensor_hash(1, ffi.new("double[1]", x), nil))
  end)

  it("is drawn by element, seed and stream, whatever the thread count and the size", function()
    local function draw(n, seed, stream, how)
      local x = check(C.neap_tensor_new(cpu.id, C.NEAP_F32, 1, ffi.new("double[1]", n), -1))
      check(C["neap_tensor_fill_" .. how](x, 0, 1, seed, stream))
      return read(x)
    end
    for _, how in ipairs({ "normal", "uniform" }) do
      local long = draw(5000, 3, -2, how)
      assert.same(long, draw(5000, 3, -2, how))
      local short = draw(7, 3, -2, how)
      for i = 1, 7 do assert.equal(long[i], short[i]) end
      assert.are_not.same(short, draw(7, 4, -2, how))
      assert.are_not.same(short, draw(7, 3, -1, how))
      local sum, squares = 0, 0
      for _, v in ipairs(long) do sum, squares = sum + v, squares + v * v end
      local mean, expected = sum / 5000, how == "normal" and { 0, 1 } or { 0.5, 1 / 12 }
      assert(math.abs(mean - expected[1]) < 0.06, mean)
      assert(math.abs(squares / 5000 - mean * mean - expected[2]) < 0.06)
      if how == "uniform" then for _, v in ipairs(long) do assert(v >= 0 and v < 1) end end
    end
    local x = new({ 1 })
    for _, bad in ipairs({ 0 / 0, math.huge }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_tensor_fill_normal(x, bad, 1, 1, 1))
      assert.equal(C.NEAP_ERR_INVALID, C.neap_tensor_fill_uniform(x, 0, 1, bad, 1))
    end
    assert.same({ 1 }, read(x))
  end)
end)
