-- subtract: element by element; b may have only the last dimensions of a.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.subtract", function()
  setup(gradcheck.cpu)

  local function case(a, b)
    return {
      name = "subtract",
      run = function(x, y) return neap.op.subtract(x, y) end,
      reference = reference.subtract,
      inputs = { a, b },
    }
  end

  local function last(dims, n) return { unpack(dims, #dims - n + 1) } end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("subtract", function(t) return neap.op.subtract(t[1], t[2]) end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(60, function(r)
      local dims = r.dims(r.int(0, 4), 4)
      return case(r.value(dims), r.value(last(dims, r.int(0, #dims))))
    end)
  end)

  it("agrees where a dimension is 0 or 1, for each number of b's dimensions", function()
    for _, dims in ipairs(numbers.shapes(2)) do
      for n = 0, 2 do
        gradcheck.check(case(numbers.wave(dims, 1), numbers.wave(last(dims, n), 2)))
      end
    end
  end)

  it("agrees at each length around a vector's width, and over many rows", function()
    for n = 1, 35 do
      gradcheck.check(case(numbers.wave({ 2, n }, n), numbers.wave({ n }, n + 1)))
    end
    gradcheck.check(case(numbers.wave({ 130, 5 }, 1), numbers.wave({ 5 }, 2)))
  end)

  it("takes one tensor as both inputs: zeros, and no gradient", function()
    neap.scope(function()
      local x = gradcheck.tensor(numbers.wave({ 2, 3 }, 1), true)
      for _, factor in ipairs({ 0, 2 }) do
        local input = factor == 0 and x or neap.op.scale(x, factor)
        local y = neap.op.subtract(input, input)
        assert.same({ 0, 0, 0, 0, 0, 0 }, y:table())
        neap.op.sum(neap.op.scale(y, 3)):backward()
        assert.same({ 0, 0, 0, 0, 0, 0 }, x:grad():table())
      end
    end)
  end)

  it("gives each branch a gradient of its own", function()
    gradcheck.many(20, function(r)
      local dims = r.dims(2, 4)
      return {
        name = "subtract of branches",
        run = function(x, y)
          local left, right = neap.op.gelu(neap.op.scale(x, 2)), neap.op.scale(y, -3)
          return neap.op.subtract(left - right, neap.op.gelu(right - left))
        end,
        reference = function(x, y)
          local left, right = reference.gelu(reference.scale(x, 2)), reference.scale(y, -3)
          return reference.subtract(reference.subtract(left, right),
            reference.gelu(reference.subtract(right, left)))
        end,
        inputs = { r.value(dims), r.value(dims) },
      }
    end)
  end)

  it("is what a - b means, and -x is x times -1", function()
    neap.scope(function()
      local a, b = neap.tensor({ 1, 5 }), neap.tensor({ 3, 0.5 })
      assert.same({ -2, 4.5 }, (a - b):table())
      assert.same({ -1, -5 }, (-a):table())
    end)
  end)

  it("refuses shapes that are neither equal nor the last dimensions", function()
    for _, dims in ipairs({ { 3 }, { 2, 1 }, { 1 }, { 1, 2, 4 }, { 0 } }) do
      gradcheck.fails("subtract", "shape mismatch", function()
        return neap.op.subtract(neap.zeros({ 2, 4 }), neap.zeros(dims))
      end, "(2, 4)", "(" .. table.concat(dims, ", ") .. ")")
    end
  end)

  it("refuses integers on either side, numbers, and a call with one tensor", function()
    for side = 1, 2 do
      gradcheck.fails("subtract", "dtype", function()
        local integers = neap.tensor({ 1 }, { 1 }, { dtype = "i32" })
        local floats = neap.zeros({ 1 })
        return neap.op.subtract(side == 1 and integers or floats, side == 2 and integers or floats)
      end, "input " .. side, "i32")
    end
    gradcheck.fails("subtract", "invalid argument", function() return neap.zeros({ 2 }) - 1 end)
    gradcheck.fails("subtract", "invalid argument", function()
      return neap.op.subtract(neap.zeros({ 2 }))
    end)
  end)
end)
