-- layernorm: each row of the last dimension to mean 0 and variance 1, times gain, plus bias.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.layernorm", function()
  setup(gradcheck.cpu)

  -- rows with a spread of about 1, so that a row's size does not amplify rounding
  local function spread(x)
    local width = x.dims[#x.dims]
    for i, v in ipairs(x.data) do
      x.data[i] = numbers.f32(0.5 * v + (i - 1) % width % 2 * 2 - 1)
    end
    return x
  end

  local function case(x, eps, gain, bias)
    -- a row of one has little but eps to divide by, and a division by 0.003 magnifies rounding
    eps = x.dims[#x.dims] == 1 and 1e-2 or eps
    return {
      name = "layernorm of (" .. table.concat(x.dims, ", ") .. ")",
      run = function(t, g, b) return neap.op.layernorm(t, g, b, eps) end,
      reference = function(t, g, b) return reference.layernorm(t, g, b, eps) end,
      -- rows of one or two lose their size: what is left of the gradient is a difference near 0
      scale = x.dims[#x.dims] <= 2 and 1 or nil,
      inputs = { spread(x), gain, bias },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("layernorm", function(t, attrs)
      return neap.op.layernorm(t[1], t[2], t[3], attrs[1])
    end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r, i)
      local dims = r.dims(r.int(1, 4), 4)
      local width = { dims[#dims] }
      local gain, bias = r.value(width, 0.5, 1), r.value(width)
      return case(r.value(dims), i % 2 == 0 and 1e-5 or 1e-2, gain, bias)
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for n = 1, 3 do
      for _, dims in ipairs(numbers.shapes(n)) do
        local gain, bias = numbers.wave({ dims[n] }, 2), numbers.wave({ dims[n] }, 3)
        gradcheck.check(case(numbers.wave(dims, 1), 1e-5, gain, bias))
      end
    end
  end)

  it("agrees on rows around a vector's width, and on many rows", function()
    local shapes = { { 2, 15 }, { 2, 16 }, { 2, 17 }, { 1, 67 }, { 2, 210 }, { 70, 3 }, { 130, 2 } }
    for _, dims in ipairs(shapes) do
      local gain, bias = numbers.wave({ dims[2] }, 2), numbers.wave({ dims[2] }, 3)
      gradcheck.check(case(numbers.wave(dims, 1), 1e-5, gain, bias))
    end
  end)

  it("keeps its precision far from 0", function()
    neap.scope(function()
      local x = numbers.wave({ 4, 64 }, 1, 1, 1000)
      local one = numbers.wave({ 64 }, 0, 0, 1)
      local zero = numbers.wave({ 64 }, 0, 0)
      local y = neap.op.layernorm(
        gradcheck.tensor(x), gradcheck.tensor(one), gradcheck.tensor(zero), 1e-5)
      local expected = reference.layernorm(x, one, zero, 1e-5)
      -- the mean of 64 numbers near 1000 is only known to 6e-5
      numbers.close("output", expected.data, y:table(), 1e-4)
    end)
  end)

  it("gives 0 for a row of zeros and passes NaN on in its row alone", function()
    neap.scope(function()
      local x = neap.tensor({ 0, 0, 0, 1, 0 / 0, 2, 1, 2, 4 }, { 3, 3 })
      local y = neap.op.layernorm(x, neap.full({ 3 }, 1), neap.zeros({ 3 }), 1e-5):table()
      for i = 1, 3 do assert.equal(0, y[i]) end
      for i = 4, 6 do assert(y[i] ~= y[i]) end
      for i = 7, 9 do assert(y[i] == y[i]) end
    end)
  end)

  it("refuses gains of another length or with more dimensions", function()
    for _, dims in ipairs({ { 3 }, { 2 }, { 1, 4 }, {} }) do
      gradcheck.fails("layernorm", "shape mismatch", function()
        return neap.op.layernorm(neap.zeros({ 2, 4 }), neap.zeros(dims), neap.zeros({ 4 }), 1e-5)
      end, "(2, 4)", "input 2", "(4)")
    end
  end)

  it("refuses biases of another length", function()
    gradcheck.fails("layernorm", "shape mismatch", function()
      return neap.op.layernorm(neap.zeros({ 2, 4 }), neap.zeros({ 4 }), neap.zeros({ 5 }), 1e-5)
    end, "input 3", "(5)")
  end)

  it("refuses a scalar", function()
    gradcheck.fails("layernorm", "shape mismatch", function()
      return neap.op.layernorm(neap.full({}, 1), neap.zeros({ 1 }), neap.zeros({ 1 }), 1e-5)
    end)
  end)

  it("refuses an eps that is not above 0", function()
    for _, eps in ipairs({ 0, -1e-5, 0 / 0, 1 / 0 }) do
      gradcheck.fails("layernorm", "invalid argument", function()
        return neap.op.layernorm(neap.zeros({ 2, 4 }), neap.zeros({ 4 }), neap.zeros({ 4 }), eps)
      end, "eps")
    end
  end)

  it("refuses integers", function()
    gradcheck.fails("layernorm", "dtype", function()
      local x = neap.tensor({ 1, 2, 3, 4 }, { 1, 4 }, { dtype = "i32" })
      return neap.op.layernorm(x, neap.zeros({ 4 }), neap.zeros({ 4 }), 1e-5)
    end, "input 1", "i32")
  end)

  it("refuses a call without a gain", function()
    gradcheck.fails("layernorm", "invalid argument", function()
      return neap.op.layernorm(neap.zeros({ 2, 4 }))
    end)
  end)
end)
