-- add: element by element; b may have only the last dimensions of a.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.add", function()
  setup(gradcheck.cpu)

  local function case(a, b)
    return {
      name = "add",
      run = function(x, y) return neap.op.add(x, y) end,
      reference = reference.add,
      inputs = { a, b },
    }
  end

  local function last(dims, n)
    return { unpack(dims, #dims - n + 1) }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("add", function(t) return neap.op.add(t[1], t[2]) end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r)
      local dims = r.dims(r.int(0, 4), 4)
      return case(r.value(dims), r.value(last(dims, r.int(0, #dims))))
    end)
  end)

  it("agrees where a dimension is 0 or 1, for each number of b's dimensions", function()
    for _, dims in ipairs(numbers.shapes(3)) do
      for n = 0, 3 do
        gradcheck.check(case(numbers.wave(dims, 1), numbers.wave(last(dims, n), 2)))
      end
    end
  end)

  it("agrees at each length around a vector's width", function()
    for n = 1, 70 do
      for _, dims in ipairs({ {}, { n }, { 2, n } }) do
        gradcheck.check(case(numbers.wave({ 2, n }, n), numbers.wave(dims, n + 1)))
      end
    end
  end)

  it("sums b's gradient over many rows", function()
    local rows, width = 1100, 5
    local a, b = numbers.wave({ rows, width }, 1), numbers.wave({ width }, 2)
    local cotangent = numbers.wave({ rows, width }, 3)
    local expected = {}
    for j = 1, width do
      expected[j] = 0
      for i = 0, rows - 1 do
        local k = i * width + j
        expected[j] = expected[j] + cotangent.data[k]
      end
    end
    neap.scope(function()
      local leaf = gradcheck.tensor(b, true)
      local y = neap.op.add(gradcheck.tensor(a), leaf)
      neap.op.sum(neap.op.multiply(y, gradcheck.tensor(cotangent))):backward()
      numbers.close("gradient of b", expected, leaf:grad():table(), 1e-6, math.sqrt(rows))
    end)
  end)

  it("takes one tensor as both inputs", function()
    gradcheck.many(40, function(r)
      return {
        name = "add of one tensor",
        run = function(x) return neap.op.add(x, x) end,
        reference = function(x) return reference.add(x, x) end,
        inputs = { r.value(r.dims(r.int(0, 3), 4)) },
      }
    end)
  end)

  it("gives each branch a gradient of its own", function()
    gradcheck.many(40, function(r)
      local dims = r.dims(2, 4)
      return {
        name = "add of branches",
        run = function(x, y)
          local left, right = neap.op.gelu(neap.op.scale(x, 2)), neap.op.scale(y, -3)
          return neap.op.add(neap.op.add(left, right), neap.op.add(right, left))
        end,
        reference = function(x, y)
          local left, right = reference.gelu(reference.scale(x, 2)), reference.scale(y, -3)
          return reference.add(reference.add(left, right), reference.add(right, left))
        end,
        inputs = { r.value(dims), r.value(dims) },
      }
    end)
  end)

  it("refuses shapes that are neither equal nor the last dimensions", function()
    for _, dims in ipairs({ { 3 }, { 2, 1 }, { 1 }, { 1, 2, 4 }, { 2, 4, 1 }, { 0 } }) do
      gradcheck.fails("add", "shape mismatch", function()
        return neap.op.add(neap.zeros({ 2, 4 }), neap.zeros(dims))
      end, "(2, 4)", "(" .. table.concat(dims, ", ") .. ")")
    end
  end)

  it("refuses integers on either side", function()
    for side = 1, 2 do
      gradcheck.fails("add", "dtype", function()
        local integers = neap.tensor({ 1 }, { 1 }, { dtype = "i32" })
        local floats = neap.zeros({ 1 })
        return neap.op.add(side == 1 and integers or floats, side == 2 and integers or floats)
      end, "input " .. side, "i32")
    end
  end)

  it("refuses a call with one tensor", function()
    gradcheck.fails("add", "invalid argument", function() return neap.op.add(neap.zeros({ 2 })) end)
  end)
end)
