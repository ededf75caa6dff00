-- linear: x times a transposed weight, plus a bias where there is one.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.linear", function()
  setup(gradcheck.cpu)

  local function case(x, weight, bias)
    return {
      name = "linear of (" .. table.concat(x.dims, ", ") .. ")",
      run = function(t, w, b) return neap.op.linear(t, w, b) end,
      reference = reference.linear,
      inputs = { x, weight, bias },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("linear", function(t) return neap.op.linear(t[1], t[2], t[3]) end)
  end)

  it("agrees with the reference on random shapes, with and without a bias", function()
    gradcheck.many(120, function(r, i)
      local dims, n = r.dims(r.int(1, 4), 4), r.int(1, 5)
      local weight = r.value({ n, dims[#dims] })
      return case(r.value(dims), weight, i % 2 == 0 and r.value({ n }) or nil)
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, dims in ipairs(numbers.shapes(2)) do
      for _, n in ipairs({ 0, 1, 3 }) do
        local x, weight = numbers.wave(dims, 1), numbers.wave({ n, dims[2] }, 2)
        gradcheck.check(case(x, weight, numbers.wave({ n }, 3)))
        gradcheck.check(case(x, weight))
      end
    end
  end)

  it("agrees on sizes around a block, and on one row or one column", function()
    local sizes = { { 1, 17, 9 }, { 17, 1, 9 }, { 9, 17, 1 }, { 33, 5, 2 }, { 2, 16, 16 },
      { 1, 75, 33 }, { 33, 75, 1 }, { 75, 33, 1 }, { 1, 33, 75 }, { 75, 1, 33 } }
    for _, d in ipairs(sizes) do
      gradcheck.check(case(numbers.wave({ d[1], d[2] }, 1), numbers.wave({ d[3], d[2] }, 2),
        numbers.wave({ d[3] }, 3)))
    end
  end)

  it("multiplies matrices of a hundred rows", function()
    neap.scope(function()
      local x, w = numbers.wave({ 2, 65, 129 }, 1), numbers.wave({ 130, 129 }, 2)
      local b = numbers.wave({ 130 }, 3)
      local y = neap.op.linear(gradcheck.tensor(x), gradcheck.tensor(w), gradcheck.tensor(b))
      numbers.close("output", reference.linear(x, w, b).data, y:table(), 2e-6, 8)
    end)
  end)

  it("passes NaN on to its row alone", function()
    neap.scope(function()
      local x = neap.tensor({ 1, 0 / 0, 1, 2 }, { 2, 2 })
      local y = neap.op.linear(x, neap.full({ 3, 2 }, 1), neap.zeros({ 3 })):table()
      for i = 1, 3 do assert(y[i] ~= y[i]) end
      for i = 4, 6 do assert.equal(3, y[i]) end
    end)
  end)

  it("refuses a weight that does not fit", function()
    for _, dims in ipairs({ { 3, 5 }, { 4 }, { 1, 3, 4 }, { 4, 3 } }) do
      gradcheck.fails("linear", "shape mismatch", function()
        return neap.op.linear(neap.zeros({ 2, 4 }), neap.zeros(dims))
      end, "(2, 4)", "(" .. table.concat(dims, ", ") .. ")")
    end
  end)

  it("refuses a bias that does not fit, and a scalar", function()
    for _, dims in ipairs({ { 4 }, { 1, 3 }, {} }) do
      gradcheck.fails("linear", "shape mismatch", function()
        return neap.op.linear(neap.zeros({ 2, 4 }), neap.zeros({ 3, 4 }), neap.zeros(dims))
      end, "bias", "(3)")
    end
    gradcheck.fails("linear", "shape mismatch", function()
      return neap.op.linear(neap.zeros({}), neap.zeros({ 1, 1 }))
    end)
  end)

  it("refuses integers", function()
    gradcheck.fails("linear", "dtype", function()
      local x = neap.tensor({ 1, 2 }, { 1, 2 }, { dtype = "i32" })
      return neap.op.linear(x, neap.zeros({ 3, 2 }))
    end, "input 1", "i32")
  end)

  it("refuses a call without a weight", function()
    gradcheck.fails("linear", "invalid argument", function()
      return neap.op.linear(neap.zeros({ 2, 4 }))
    end)
  end)
end)
