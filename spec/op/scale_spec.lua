-- scale: times a number.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.scale", function()
  setup(gradcheck.cpu)

  local function case(x, factor)
    return {
      name = "scale by " .. factor,
      run = function(t) return neap.op.scale(t, factor) end,
      reference = function(v) return reference.scale(v, factor) end,
      inputs = { x },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("scale", function(t, attrs) return neap.op.scale(t[1], attrs[1]) end)
  end)

  it("agrees with the reference on random shapes and factors", function()
    gradcheck.many(120, function(r)
      return case(r.value(r.dims(r.int(0, 4), 4)), numbers.f32(r.uniform() * 6 - 3))
    end)
  end)

  it("agrees where a dimension is 0 or 1, also by 0", function()
    for _, dims in ipairs(numbers.shapes(3)) do
      gradcheck.check(case(numbers.wave(dims, 1), -0.5))
      gradcheck.check(case(numbers.wave(dims, 1), 0))
    end
  end)

  it("passes NaN on", function()
    neap.scope(function()
      local y = neap.op.scale(neap.tensor({ 0 / 0, 2 }, { 2 }), 0):table()
      assert(y[1] ~= y[1])
      assert.equal(0, y[2])
    end)
  end)

  it("refuses a factor that is no finite number", function()
    for _, factor in ipairs({ 0 / 0, 1 / 0, -1 / 0 }) do
      gradcheck.fails("scale", "invalid argument", function()
        return neap.op.scale(neap.zeros({ 2 }), factor)
      end, "finite")
    end
  end)

  it("refuses a call without a factor, or with a text", function()
    for _, factor in ipairs({ false, "two", {} }) do
      gradcheck.fails("scale", "invalid argument", function()
        return neap.op.scale(neap.zeros({ 2 }), factor or nil)
      end)
    end
  end)

  it("refuses integers", function()
    gradcheck.fails("scale", "dtype", function()
      return neap.op.scale(neap.tensor({ 1 }, { 1 }, { dtype = "i32" }), 2)
    end, "i32")
  end)
end)
