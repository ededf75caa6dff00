-- Tensors at the C level: dimensions, dtypes, stale handles, views, host copies, hashes.
local neap = require("neap")
local native = require("neap.ffi")
local scope = require("neap.scope")

local C, ffi, check = native.C, native.ffi, native.check

local function message() return ffi.string(C.neap_last_error()) end

describe("a tensor of the library", function()
  local cpu, null
  setup(function()
    cpu, null = neap.device("cpu", { budget = "1GiB" }), neap.device("null", { budget = "9PB" })
    scope.begin()
  end)
  teardown(function()
    scope.stop(1)
    cpu:close()
    null:close()
    neap.device("cpu")
  end)

  local function new(dims, dtype, device, n_dims)
    return C.neap_tensor_new((device or cpu).id, dtype or C.NEAP_F32, n_dims or #dims,
      ffi.new("double[8]", dims), C.NEAP_TAG_BATCH)
  end
  local function refused(code, found, ...)
    assert.equal(code, found)
    for _, part in ipairs({ ... }) do
      assert(message():find(part, 1, true), ("'%s' does not say '%s'"):format(message(), part))
    end
  end

  it("takes 0 to 6 dimensions and counts their product", function()
    local n = 1
    for rank = 0, 6 do
      local dims = {}
      for i = 1, rank do dims[i] = i end
      n = rank > 0 and n * rank or 1
      local id = check(new(dims))
      assert.equal(n, C.neap_tensor_n_elements(id))
      assert.equal(rank, C.neap_tensor_n_dims(id))
      for i = 1, rank do assert.equal(i, C.neap_tensor_dim(id, i - 1)) end
      refused(C.NEAP_ERR_SHAPE, C.neap_tensor_dim(id, rank), rank .. " dimensions")
      refused(C.NEAP_ERR_SHAPE, C.neap_tensor_dim(id, -1))
    end
    refused(C.NEAP_ERR_SHAPE, new({ 1, 1, 1, 1, 1, 1, 1 }), "0..6 dimensions, found 7")
    refused(C.NEAP_ERR_SHAPE, new({}, nil, nil, -1))
    refused(C.NEAP_ERR_SHAPE, C.neap_tensor_new(cpu.id, C.NEAP_F32, 1, nil, -1))
  end)

  it("refuses dimensions that are no whole number of 0 to 2^53, naming the place", function()
    local before = cpu:memory().n_tensors
    for _, bad in ipairs({ 0.5, 1.5, -1, -0.5, 0 / 0, math.huge, -math.huge, 2 ^ 53 + 2, 2 ^ 63,
      1e300 }) do
      for place = 1, 3 do
        local dims = { 0, 2, 2 }
        dims[place] = bad
        refused(C.NEAP_ERR_SHAPE, new(dims), ("dimension %d is"):format(place), "whole number")
      end
    end
    assert.equal(before, cpu:memory().n_tensors)
  end)

  it("refuses products that wrap around, and is empty where one dimension is 0", function()
    for _, dims in ipairs({ { 4194305, 4194305, 211106198978564 }, { 2 ^ 53, 2 ^ 53 },
      { 2 ^ 32, 2 ^ 32 }, { 2 ^ 31, 2 ^ 31, 2 }, { 2 ^ 53, 512 }, { 2 ^ 52, 2 ^ 11 },
      { 2 ^ 53, 2 ^ 53, 2 ^ 53, 2 ^ 53, 2 ^ 53, 2 ^ 53 } }) do
      refused(C.NEAP_ERR_OVERFLOW, new(dims), "overflows")
      refused(C.NEAP_ERR_OVERFLOW, new(dims, nil, null), "overflows")
      dims[#dims] = 0
      local id = check(new(dims))
      assert.equal(0, C.neap_tensor_n_elements(id))
      assert.equal(0, C.neap_tensor_bytes(id))
    end
  end)

  it("agrees with exact arithmetic about which random products fit", function()
    local seed, n_fit, n_over = 11, 0, 0
    local function random(n)
      seed = seed * 16807 % 2147483647
      return seed % n
    end
    local edges = { 0, 1, 2, 3, 2 ^ 16, 2 ^ 31 - 1, 2 ^ 31 + 1, 2 ^ 32, 2 ^ 53 }
    for _ = 1, 3000 do
      local dims, log, empty = {}, 0, false
      for i = 1, random(6) + 1 do
        dims[i] = edges[random(#edges) + 1]
        empty = empty or dims[i] == 0
        log = log + math.log(math.max(dims[i], 1)) / math.log(2)
      end
      local id = new(dims, nil, null)
      -- 4 bytes each: at most 2^63 / 4 bytes; 9 PB fit in the device's budget
      if empty then
        assert.equal(0, C.neap_tensor_n_elements(id))
      elseif log + 2 > 61.001 then
        assert.equal(C.NEAP_ERR_OVERFLOW, id)
        n_over = n_over + 1
      elseif log + 2 > 52.99 then
        assert(id == C.NEAP_ERR_MEMORY or id == C.NEAP_ERR_OVERFLOW, id)
      else
        local product = 1
        for _, d in ipairs(dims) do product = product * d end
        assert.equal(product, C.neap_tensor_n_elements(check(id)))
        n_fit = n_fit + 1
      end
      C.neap_tensor_free(id)
    end
    assert(n_fit > 200 and n_over > 200)
  end)

  it("has one of three dtypes", function()
    for dtype, bytes in pairs({ [C.NEAP_F32] = 4, [C.NEAP_BF16] = 2, [C.NEAP_I32] = 4 }) do
      local id = check(new({ 32 }, dtype))
      assert.equal(dtype, C.neap_tensor_dtype(id))
      assert.equal(32 * bytes, C.neap_tensor_bytes(id))
      assert.equal(0, C.neap_tensor_write(id, ffi.new("char[128]"), 32 * bytes))
    end
    for _, bad in ipairs({ -1, 3, 1000 }) do refused(C.NEAP_ERR_DTYPE, new({ 1 }, bad), "dtype") end
  end)

  it("refuses a device that is not open", function()
    for _, bad in ipairs({ -1, 63, 1000000, 2 ^ 31 - 1 }) do
      refused(C.NEAP_ERR_DEVICE, new({ 1 }, nil, { id = bad }), "not open")
    end
  end)

  it("is stale in every function once it was freed, or when nobody made it", function()
    local functions = { "detach", "device", "dtype", "n_dims", "n_elements", "bytes", "storage",
      "version", "tag", "grad", "needs_grad" }
    local buffer, good = ffi.new("double[4]"), check(new({ 1 }))
    local gone = check(new({ 1 }))
    assert.equal(0, C.neap_tensor_free(gone))
    local n = 0
    for _, bad in ipairs({ gone, 0, 1, -1, 0.5, good + 0.5, good + 2 ^ 20, good - 2 ^ 20,
      2 ^ 53 - 1, 2 ^ 53,
      2 ^ 60, 1e300, 0 / 0, math.huge, -math.huge, gone + 2 ^ 21, 2 ^ 20 - 1 }) do
      local found = {}
      for _, name in ipairs(functions) do found[#found + 1] = C["neap_tensor_" .. name](bad) end
      found[#found + 1] = C.neap_tensor_dim(bad, 0)
      found[#found + 1] = C.neap_tensor_view(bad, 0, buffer, 0)
      found[#found + 1] = C.neap_tensor_write(bad, buffer, 4)
      found[#found + 1] = C.neap_tensor_read(bad, buffer, 4)
      found[#found + 1] = C.neap_tensor_fill(bad, 1)
      found[#found + 1] = C.neap_tensor_fill_normal(bad, 0, 1, 1, 1)
      found[#found + 1] = C.neap_tensor_copy(bad, good)
      found[#found + 1] = C.neap_tensor_copy(good, bad)
      found[#found + 1] = C.neap_tensor_requires_grad(bad, 1)
      found[#found + 1] = C.neap_scope_leave(bad)
      found[#found + 1] = C.neap_backward(bad)
      found[#found + 1] = C.neap_tensor_hash(1, ffi.new("double[1]", bad), ffi.new("char[33]"))
      for i, code in ipairs(found) do
        n = n + 1
        if code ~= C.NEAP_ERR_STALE then
          error(("call %d of %.17g gave %g"):format(i, bad, code))
        end
      end
      assert.equal(0, C.neap_tensor_alive(bad))
      assert.equal(1, C.neap_tensor_free(bad))
    end
    assert.equal(17 * 23, n)
    refused(C.NEAP_ERR_STALE, C.neap_tensor_bytes(gone), "no living tensor")
    assert.equal(1, C.neap_tensor_alive(good))
  end)

  it("gets a number of its own each time its place is used again", function()
    local seen = {}
    for _ = 1, 1000 do
      local id = check(new({ 1 }))
      assert.is_nil(seen[id])
      seen[id] = true
      C.neap_tensor_free(id)
    end
  end)
end)
