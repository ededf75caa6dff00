-- transpose: the last two dimensions exchanged, as a copy.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.transpose", function()
  setup(gradcheck.cpu)

  local function case(x)
    return {
      name = "transpose",
      run = function(t) return neap.op.transpose(t) end,
      reference = reference.transpose,
      inputs = { x },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("transpose", function(t) return neap.op.transpose(t[1]) end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r) return case(r.value(r.dims(r.int(2, 5), 3))) end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for n = 2, 3 do
      for _, dims in ipairs(numbers.shapes(n)) do
        gradcheck.check(case(numbers.wave(dims, 1)))
      end
    end
  end)

  it("moves each element of shapes around a tile's size, and twice is the same bits", function()
    neap.scope(function()
      for _, dims in ipairs({ { 63, 65 }, { 64, 64 }, { 1, 130 }, { 130, 1 }, { 2, 33, 17 } }) do
        local x = numbers.wave(dims, 3)
        local t = gradcheck.tensor(x)
        local y = neap.op.transpose(t)
        assert.same(reference.transpose(x).data, y:table())
        numbers.same("twice", t:bits(), neap.op.transpose(y):bits())
      end
    end)
  end)

  it("refuses a vector", function()
    gradcheck.fails("transpose", "shape mismatch", function()
      return neap.op.transpose(neap.zeros({ 3 }))
    end, "(3)")
  end)

  it("refuses integers", function()
    gradcheck.fails("transpose", "dtype", function()
      return neap.op.transpose(neap.tensor({ 1, 2 }, { 1, 2 }, { dtype = "i32" }))
    end, "i32")
  end)
end)
