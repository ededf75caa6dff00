-- rmsnorm: each row of the last dimension divided by its root mean square, times gain.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.rmsnorm", function()
  setup(gradcheck.cpu)

  -- rows with a spread of about 1, so that a row's size does not amplify rounding
  local function spread(x)
    local width = x.dims[#x.dims]
    for i, v in ipairs(x.data) do
      x.data[i] = numbers.f32(0.5 * v + (i - 1) % width % 2 * 2 - 1)
    end
    return x
  end

  local function case(x, eps, gain)
    -- a row of one has little but eps to divide by, and a division by 0.003 magnifies rounding
    eps = x.dims[#x.dims] == 1 and 1e-2 or eps
    return {
      name = "rmsnorm of (" .. table.concat(x.dims, ", ") .. ")",
      run = function(t, g) return neap.op.rmsnorm(t, g, eps) end,
      reference = function(t, g) return reference.rmsnorm(t, g, eps) end,
      -- rows of one or two lose their size: what is left of the gradient is a difference near 0
      scale = x.dims[#x.dims] <= 2 and 1 or nil,
      inputs = { spread(x), gain },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("rmsnorm", function(t, attrs)
      return neap.op.rmsnorm(t[1], t[2], attrs[1])
    end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r, i)
      local dims = r.dims(r.int(1, 4), 4)
      local width = { dims[#dims] }
      return case(r.value(dims), i % 2 == 0 and 1e-5 or 1e-2, r.value(width, 0.5, 1))
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for n = 1, 3 do
      for _, dims in ipairs(numbers.shapes(n)) do
        local width = { dims[n] }
        gradcheck.check(case(numbers.wave(dims, 1), 1e-5, numbers.wave(width, 2)))
      end
    end
  end)

  it("agrees on rows around a vector's width, and on many rows", function()
    local shapes = { { 2, 15 }, { 2, 16 }, { 2, 17 }, { 1, 67 }, { 2, 210 }, { 70, 3 }, { 130, 2 } }
    for _, dims in ipairs(shapes) do
      local width = { dims[2] }
      gradcheck.check(case(numbers.wave(dims, 1), 1e-5, numbers.wave(width, 2)))
    end
  end)

  it("keeps its precision far from 0", function()
    neap.scope(function()
      local x = numbers.wave({ 4, 64 }, 1, 1, 1000)
      local one = numbers.wave({ 64 }, 0, 0, 1)
      local y = neap.op.rmsnorm(gradcheck.tensor(x), gradcheck.tensor(one), 1e-5)
      numbers.close("output", reference.rmsnorm(x, one, 1e-5).data, y:table(), 1e-6)
    end)
  end)

  it("gives 0 for a row of zeros and passes NaN on in its row alone", function()
    neap.scope(function()
      local x = neap.tensor({ 0, 0, 0, 1, 0 / 0, 2, 1, 2, 4 }, { 3, 3 })
      local y = neap.op.rmsnorm(x, neap.full({ 3 }, 1), 1e-5):table()
      for i = 1, 3 do assert.equal(0, y[i]) end
      for i = 4, 6 do assert(y[i] ~= y[i]) end
      for i = 7, 9 do assert(y[i] == y[i]) end
    end)
  end)

  it("refuses gains of another length or with more dimensions", function()
    for _, dims in ipairs({ { 3 }, { 2 }, { 1, 4 }, {} }) do
      gradcheck.fails("rmsnorm", "shape mismatch", function()
        return neap.op.rmsnorm(neap.zeros({ 2, 4 }), neap.zeros(dims), 1e-5)
      end, "(2, 4)", "input 2", "(4)")
    end
  end)

  it("refuses a scalar", function()
    gradcheck.fails("rmsnorm", "shape mismatch", function()
      return neap.op.rmsnorm(neap.full({}, 1), neap.zeros({ 1 }), 1e-5)
    end)
  end)

  it("refuses an eps that is not above 0", function()
    for _, eps in ipairs({ 0, -1e-5, 0 / 0, 1 / 0 }) do
      gradcheck.fails("rmsnorm", "invalid argument", function()
        return neap.op.rmsnorm(neap.zeros({ 2, 4 }), neap.zeros({ 4 }), eps)
      end, "eps")
    end
  end)

  it("refuses integers", function()
    gradcheck.fails("rmsnorm", "dtype", function()
      local x = neap.tensor({ 1, 2, 3, 4 }, { 1, 4 }, { dtype = "i32" })
      return neap.op.rmsnorm(x, neap.zeros({ 4 }), 1e-5)
    end, "input 1", "i32")
  end)

  it("refuses a call without a gain", function()
    gradcheck.fails("rmsnorm", "invalid argument", function()
      return neap.op.rmsnorm(neap.zeros({ 2, 4 }))
    end)
  end)
end)
