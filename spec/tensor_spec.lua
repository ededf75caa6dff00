-- Tensors as scripts see them.
local neap = require("neap")
local native = require("neap.ffi")
local failure_of = require("spec.support.failure_of")

local C = native.C

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("a tensor", function()
  local device
  before_each(function() device = neap.device("cpu", { budget = "1GiB" }) end)
  after_each(function()
    jit.flush() -- compiled code may hold on to handles
    collectgarbage()
    collectgarbage()
    assert.equal(0, device:memory().n_tensors)
    device:close()
    neap.device("cpu")
  end)

  local function sentence(message, ...)
    for _, part in ipairs({ ... }) do
      assert(message:find(part, 1, true), ("'%s' does not say '%s'"):format(message, part))
    end
  end

  alone("holds the numbers it was made of, row by row", function()
    local x = neap.tensor({ 1, 2.5, -3, 0, 1e30, 6 }, { 2, 3 })
    assert.same({ 2, 3 }, x:dims())
    assert.same({ 6, "f32", 64 }, { x:numel(), x:dtype(), x:bytes() })
    assert.same({ 1, 2.5, -3, 0 }, { unpack(x:table(), 1, 4) })
    assert.same({ 0x3f800000, 0x40200000 }, { unpack(x:bits(), 1, 2) })
    assert.equal("tensor f32 (2, 3)", tostring(x))
    assert.is_true(neap.is_tensor(x))
    for _, other in ipairs({ 1, "x", {}, false }) do assert.is_false(neap.is_tensor(other)) end
  end)

  alone("may be a scalar, empty, of whole numbers, full of one value", function()
    assert.equal(7, neap.tensor({ 7 }, {}):item())
    assert.same({}, neap.tensor({}, { 2, 0, 3 }):table())
    assert.same({ 0 }, neap.tensor({}):dims())
    local ids = neap.tensor({ -2147483647, 0, 2147483647 }, nil, { dtype = "i32" })
    assert.same({ -2147483647, 0, 2147483647 }, ids:table())
    assert.equal(5, neap.full({ 1, 1 }, 5, { dtype = "i32" }):item())
    assert.same({ 0, 0 }, neap.zeros({ 2 }):table())
    assert.equal("bf16", neap.empty({ 2 }, { dtype = "bf16" }):dtype())
  end)

  alone("is refused where the numbers do not fill its shape, or are none", function()
    sentence(failure_of("shape mismatch", neap.tensor, { 1, 2, 3 }, { 2, 2 }), "3 numbers",
      "4 elements")
    sentence(failure_of("invalid argument", neap.tensor, 5), "expected a list of numbers")
    sentence(failure_of("invalid argument", neap.tensor, { 1, "2" }), "element 2 is 2")
    sentence(failure_of("invalid argument", neap.tensor, { true }), "element 1 is true")
    for _, bad in ipairs({ 0.5, 2 ^ 31, -2 ^ 31 - 1, 0 / 0, math.huge }) do
      sentence(failure_of("invalid argument", neap.tensor, { bad }, nil, { dtype = "i32" }),
        "element 1", "whole number of 32 bits")
      failure_of("invalid argument", neap.full, { 2 }, bad, { dtype = "i32" })
    end
  end)

  alone("is refused with dimensions that are none", function()
    for _, dims in ipairs({ { -1 }, { 0.5 }, { 0 / 0 }, { "two" }, { {} }, { 2, false }, { 1e300 },
      { 1, 1, 1, 1, 1, 1, 1 } }) do
      failure_of("shape mismatch", neap.zeros, dims)
    end
    failure_of("shape mismatch", neap.zeros, 3)
    failure_of("shape mismatch", neap.zeros, nil)
    failure_of("size overflow", neap.zeros, { 4194305, 4194305, 211106198978564 })
    assert.equal(0, device:memory().n_tensors)
  end)

  alone("names the nearest option and dtype for unknown ones", function()
    sentence(failure_of("usage", neap.zeros, { 1 }, { dtyp = "f32" }), "did you mean 'dtype'?")
    sentence(failure_of("usage", neap.zeros, { 1 }, { dtype = "f33" }), "did you mean 'f32'?")
    failure_of("invalid argument", neap.zeros, { 1 }, { tag = 99 })
    failure_of("dtype", neap.zeros, { 1 }, { dtype = "i32", requires_grad = true })
  end)

  alone("has a dtype that ops refuse where they cannot compute with it", function()
    local half, o = neap.empty({ 2, 2 }, { dtype = "bf16" }), neap.op
    for name, call in pairs({
      add = function() return o.add(half, half) end,
      gelu = function() return o.gelu(half) end,
      matmul = function() return o.matmul(half, half) end,
      linear = function() return o.linear(half, half) end,
      sum = function() return o.sum(half) end,
      transpose = function() return o.transpose(half) end,
      scale = function() return o.scale(half, 2) end,
    }) do
      sentence(failure_of("dtype", call), name, "bf16")
    end
    assert.same({ 4 }, o.reshape(half, { 4 }):dims())
    assert.equal("bf16", o.narrow(half, 1, 1):dtype())
    failure_of("dtype", half.requires_grad, half)
  end)

  alone("is freed once; afterwards it is a stale handle, freeing it again is harmless", function()
    local x = neap.tensor({ 1, 2 })
    local other = x
    x:free()
    x:free()
    other:free()
    assert.is_false(other:alive())
    assert.equal("tensor (freed)", tostring(x))
    local n = 0
    for _, method in ipairs({ "table", "bits", "item", "dims", "numel", "bytes", "dtype", "version",
      "detach", "requires_grad", "grad", "zero_grad", "fill", "copy_from", "backward" }) do
      sentence(failure_of("stale handle", x[method], x, method == "fill" and 1 or x), "freed")
      n = n + 1
    end
    assert.equal(15, n)
    failure_of("stale handle", neap.op.add, x, neap.zeros({ 2 }))
    failure_of("stale handle", function() return neap.zeros({ 2 }) * x end)
  end)

  alone("is collected when nobody holds it, but not while somebody does", function()
    local x = neap.full({ 10 }, 1)
    for _ = 1, 500 do neap.op.scale(x, 2) end
    collectgarbage()
    collectgarbage()
    assert.equal(1, device:memory().n_tensors)
    assert.same({ 1 }, { x:table()[10] })
    x = nil -- luacheck: ignore 311
  end)

  alone("shares memory with its detached self, without history", function()
    local x = neap.tensor({ 1, 2 }, nil, { requires_grad = true })
    local y = neap.op.scale(x, 3)
    local z = y:detach()
    assert.equal(1, C.neap_tensor_needs_grad(y.id))
    assert.equal(0, C.neap_tensor_needs_grad(z.id))
    z:fill(5)
    assert.same({ 5, 5 }, y:table())
    y:free()
    assert.same({ 5, 5 }, z:table())
  end)

  alone("is written in place by fill and copy_from, which give it back", function()
    local x = neap.zeros({ 2 })
    local version = x:version()
    assert.equal(x, x:fill(2))
    assert.equal(x, x:copy_from(neap.tensor({ 3, 4 })))
    assert.same({ 3, 4 }, x:table())
    assert.equal(version + 2, x:version())
    sentence(failure_of("shape mismatch", x.copy_from, x, neap.zeros({ 3 })), "f32 (2)", "f32 (3)")
    sentence(failure_of("invalid argument", x.copy_from, x, 3), "expected a tensor, found number")
    sentence(failure_of("shape mismatch", x.item, x), "expected one element, found 2")
    assert.same({ 3, 4 }, x:table())
  end)

  alone("adds and multiplies by + and *, also by numbers", function()
    local x, y = neap.tensor({ 1, 2 }), neap.tensor({ 3, 5 })
    assert.same({ 4, 7 }, (x + y):table())
    assert.same({ 3, 10 }, (x * y):table())
    assert.same({ 2, 4 }, (x * 2):table())
    assert.same({ 2, 4 }, (2 * x):table())
    for _, bad in ipairs({ "a", {}, true }) do
      failure_of("invalid argument", function() return x * bad end)
      failure_of("invalid argument", function() return bad * x end)
      failure_of("invalid argument", function() return x + bad end)
    end
    assert.has_error(function() return x.shape end)
  end)
end)
