-- maxpool2d and avgpool2d over windows; global_avgpool2d over whole images; flatten.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local plain = require("spec.support.reference")
local reference = require("spec.support.reference_images")
local C = require("neap.ffi").C

local wave = numbers.wave

-- numbers that differ by at least 0.05, in an order that depends on the seed: central differences
-- mean nothing where the largest changes
local function distinct(r, dims)
  local x = r.value(dims)
  local order = {}
  for i = 1, #x.data do order[i] = i end
  table.sort(order, function(a, b) return x.data[a] < x.data[b] end)
  for rank, i in ipairs(order) do x.data[i] = numbers.f32(0.05 * rank - 1) end
  return x
end

for _, name in ipairs({ "maxpool2d", "avgpool2d" }) do
  describe("neap.op." .. name, function()
    setup(gradcheck.cpu)

    local op = neap.op[name]

    local function case(x, kernel, stride, padding)
      return {
        name = ("%s of (%s), kernel %d, stride %d, padding %d"):format(name,
          table.concat(x.dims, ", "), kernel, stride, padding),
        run = function(t) return op(t, kernel, stride, padding) end,
        reference = function(t) return reference[name](t, kernel, stride, padding) end,
        inputs = { x },
      }
    end

    it("gives PyTorch's values and gradients", function()
      gradcheck.matches_torch(name, function(t, attrs)
        return op(t[1], attrs[1], attrs[2], attrs[3])
      end)
    end)

    it("agrees with the reference on random shapes", function()
      gradcheck.many(60, function(r)
        local kernel = r.int(1, 3)
        local x = distinct(r, { r.int(1, 3), r.int(1, 3), r.int(3, 6), r.int(3, 6) })
        return case(x, kernel, r.int(1, 3), r.int(0, math.floor(kernel / 2)))
      end)
    end)

    it("agrees where there are no images or channels", function()
      gradcheck.check(case(wave({ 0, 2, 3, 3 }, 1), 2, 1, 0))
      gradcheck.check(case(wave({ 2, 0, 3, 3 }, 1), 2, 1, 1))
    end)

    it("agrees on the largest kernel whose places fit a byte, and the next", function()
      for _, kernel in ipairs({ 16, 17 }) do
        gradcheck.check(case(distinct(numbers.random(kernel), { 1, 1, 17, 17 }), kernel, 1, 0))
      end
    end)

    it("moves by the kernel, without padding, unless told otherwise", function()
      neap.scope(function()
        local x = gradcheck.tensor(wave({ 1, 2, 6, 7 }, 1))
        numbers.same(name, op(x, 3, 3, 0):bits(), op(x, 3):bits())
      end)
    end)

    it("refuses what is no batch of images, or smaller than the kernel", function()
      for _, dims in ipairs({ { 2, 4, 4 }, { 1, 1, 0, 4 }, { 1, 1, 4, 0 }, { 1, 1, 1, 4, 4 },
        {} }) do
        gradcheck.fails(name, "shape mismatch", function() return op(neap.zeros(dims), 2) end,
          "(" .. table.concat(dims, ", ") .. ")")
      end
      gradcheck.fails(name, "shape mismatch", function()
        return op(neap.zeros({ 1, 1, 4, 2 }), 3)
      end, "(1, 1, 4, 2)", "3")
    end)

    it("refuses kernels, strides and paddings that make no sense", function()
      local function refused(word, ...)
        local arguments = { ... }
        gradcheck.fails(name, "invalid argument", function()
          return op(neap.zeros({ 1, 1, 6, 6 }), unpack(arguments))
        end, word)
      end
      for _, bad in ipairs({ 0, -1, 1.5, 0 / 0, 1 / 0, 2 ^ 21, "2" }) do
        refused("kernel", bad)
        refused("stride", 2, bad)
        if bad ~= 0 then refused("padding", 2, 2, bad) end
      end
      refused("kernel")
      refused("half the kernel", 3, 1, 2)
    end)

    it("refuses integers", function()
      gradcheck.fails(name, "dtype", function()
        return op(neap.zeros({ 1, 1, 2, 2 }, { dtype = "i32" }), 2)
      end, "i32")
    end)
  end)
end

describe("pooling", function()
  setup(gradcheck.cpu)

  local function saved(run)
    return neap.scope(function()
      local x = neap.full({ 2, 3, 34, 34 }, 1, { requires_grad = true })
      local tape = C.neap_tape_new()
      local before = C.neap_tape_select(tape)
      local y = run(x)
      local bytes, elements = C.neap_tape_saved_bytes(tape), y:numel()
      C.neap_tape_select(before)
      C.neap_tape_free(tape)
      return bytes, elements
    end)
  end

  it("saves a byte an output for the largest, four for wide kernels, nothing for means", function()
    local bytes, elements = saved(function(x) return neap.op.maxpool2d(x, 2) end)
    assert.equal(2 * 3 * 17 * 17, elements)
    assert.equal(math.ceil(elements / 64) * 64, bytes)
    bytes, elements = saved(function(x) return neap.op.maxpool2d(x, 17) end)
    assert.equal(2 * 3 * 2 * 2, elements)
    assert.equal(math.ceil(4 * elements / 64) * 64, bytes)
    assert.equal(0, (saved(function(x) return neap.op.avgpool2d(x, 2) end)))
    assert.equal(0, (saved(function(x) return neap.op.global_avgpool2d(x) end)))
  end)

  it("gives the gradient to the first of equals", function()
    neap.scope(function()
      local x = neap.tensor({ 1, 1, 1, 1 }, { 1, 1, 2, 2 }, { requires_grad = true })
      neap.op.sum(neap.op.maxpool2d(x, 2)):backward()
      assert.same({ 1, 0, 0, 0 }, x:grad():table())
    end)
  end)

  it("passes NaN on, and -inf where there is nothing larger", function()
    neap.scope(function()
      local inf, nan = 1 / 0, 0 / 0
      local x = neap.tensor({ 1, nan, 3, 4, -inf, -inf, -inf, -inf }, { 1, 2, 2, 2 },
        { requires_grad = true })
      local y = neap.op.maxpool2d(x, 2)
      local values = y:table()
      assert(values[1] ~= values[1])
      assert.equal(-inf, values[2])
      neap.op.sum(y):backward()
      assert.same({ 0, 1, 0, 0, 1, 0, 0, 0 }, x:grad():table())
    end)
  end)

  it("over whole images gives each channel's mean", function()
    gradcheck.many(20, function(r)
      local d = r.dims(4, 4)
      return {
        name = "global_avgpool2d", inputs = { r.value(d) }, run = neap.op.global_avgpool2d,
        reference = function(x)
          return plain.mean(plain.value({ d[1], d[2], d[3] * d[4] }, x.data), 3)
        end,
      }
    end)
    gradcheck.fails("global_avgpool2d", "shape mismatch", function()
      return neap.op.global_avgpool2d(neap.zeros({ 2, 3, 4 }))
    end, "(2, 3, 4)")
    gradcheck.fails("global_avgpool2d", "invalid argument", neap.op.global_avgpool2d)
  end)
end)

describe("neap.op.flatten", function()
  setup(gradcheck.cpu)

  it("makes one dimension of all but the first, in the same memory", function()
    neap.scope(function()
      for _, dims in ipairs({ { 2, 3, 4, 5 }, { 3, 2 }, { 3 }, { 0, 2, 3 }, { 2, 0 } }) do
        local x, rest = gradcheck.tensor(wave(dims, 1)), 1
        for i = 2, #dims do rest = rest * dims[i] end
        local y = neap.op.flatten(x)
        assert.same({ dims[1], rest }, y:dims())
        numbers.same("contents", x:bits(), y:bits())
        assert.equal(C.neap_tensor_storage(x.id), C.neap_tensor_storage(y.id))
      end
    end)
    gradcheck.check({ name = "flatten", inputs = { wave({ 2, 3, 2 }, 1) }, run = neap.op.flatten,
      reference = function(x) return plain.value({ 2, 6 }, x.data) end })
  end)

  it("refuses a scalar and what is no tensor", function()
    gradcheck.fails("flatten", "shape mismatch", function()
      return neap.op.flatten(neap.full({}, 1))
    end)
    gradcheck.fails("flatten", "invalid argument", function() return neap.op.flatten({}) end)
  end)
end)
