-- gelu in its tanh form.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.gelu", function()
  setup(gradcheck.cpu)

  local function case(x)
    return {
      name = "gelu",
      run = function(t) return neap.op.gelu(t) end,
      reference = reference.gelu,
      inputs = { x },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("gelu", function(t) return neap.op.gelu(t[1]) end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r)
      return case(r.value(r.dims(r.int(0, 4), 4), 4))
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, dims in ipairs(numbers.shapes(3)) do
      gradcheck.check(case(numbers.wave(dims, 1, 2)))
    end
  end)

  it("agrees at each length around a vector's width", function()
    for n = 1, 70 do gradcheck.check(case(numbers.wave({ n }, n, 4))) end
  end)

  it("is exact far from 0 and passes NaN on", function()
    neap.scope(function()
      local y = neap.op.gelu(neap.tensor({ -1e4, -60, 0, 60, 1e4, 1 / 0, 0 / 0 }, { 7 })):table()
      for i, expected in ipairs({ 0, 0, 0, 60, 1e4, 1 / 0 }) do assert.equal(expected, y[i]) end
      assert(y[7] ~= y[7])
    end)
  end)

  it("has slopes 0 and 1 far from 0, and 0.5 at 0", function()
    neap.scope(function()
      local x = neap.tensor({ -1e4, -60, 0, 60, 1e4 }, { 5 }, { requires_grad = true })
      neap.op.sum(neap.op.gelu(x)):backward()
      numbers.close("slopes", { 0, 0, 0.5, 1, 1 }, x:grad():table(), 1e-6)
    end)
  end)

  it("refuses integers", function()
    gradcheck.fails("gelu", "dtype", function()
      return neap.op.gelu(neap.tensor({ 1, 2 }, { 2 }, { dtype = "i32" }))
    end, "i32", "f32")
  end)

  it("refuses a call without a tensor", function()
    gradcheck.fails("gelu", "invalid argument", function() return neap.op.gelu() end)
  end)
end)
