-- sum: over all elements, or over one dimension, which goes away.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.sum", function()
  setup(gradcheck.cpu)

  local function case(x, dim)
    return {
      name = ("sum of (%s) over %s"):format(table.concat(x.dims, ", "), dim or "all"),
      run = function(t) return neap.op.sum(t, dim) end,
      reference = function(v) return reference.sum(v, dim) end,
      inputs = { x },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("sum", function(t, attrs)
      return neap.op.sum(t[1], attrs[1] >= 0 and attrs[1] + 1 or nil)
    end)
  end)

  it("agrees with the reference on random shapes and dimensions", function()
    gradcheck.many(120, function(r)
      local dims = r.dims(r.int(0, 4), 4)
      local dim = r.int(0, #dims)
      return case(r.value(dims), dim > 0 and dim or nil)
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, dims in ipairs(numbers.shapes(3)) do
      for dim = 0, 3 do
        gradcheck.check(case(numbers.wave(dims, 1), dim > 0 and dim or nil))
      end
    end
  end)

  it("adds a million small numbers to one large without losing them", function()
    neap.scope(function()
      local n = 1000000
      local data = { 65536 }
      for i = 2, n do data[i] = 2 ^ -8 end
      -- an f32 that grows by 2^-8 stops at 65536: half a unit there is 2^-8
      local total = neap.op.sum(neap.tensor(data, { n })):item()
      numbers.close("sum", { 65536 + (n - 1) / 256 }, { total }, 2e-7)
    end)
  end)

  it("sums rows and columns of many sizes", function()
    for _, dims in ipairs({ { 70, 3 }, { 3, 70 }, { 130, 2 }, { 2, 33, 5 } }) do
      for dim = 1, #dims do gradcheck.check(case(numbers.wave(dims, 1), dim)) end
    end
  end)

  it("passes NaN on", function()
    neap.scope(function()
      local x = neap.tensor({ 1, 0 / 0, 3, 4 }, { 2, 2 })
      local all, rows = neap.op.sum(x):item(), neap.op.sum(x, 2):table()
      assert(all ~= all)
      assert(rows[1] ~= rows[1])
      assert.equal(7, rows[2])
    end)
  end)

  it("refuses a dimension that is not there", function()
    for _, dim in ipairs({ 3, 1.5, 100, 0 / 0 }) do
      gradcheck.fails("sum", "shape mismatch", function()
        return neap.op.sum(neap.zeros({ 2, 4 }), dim)
      end, "(2, 4)")
    end
  end)

  it("refuses dimensions below 1, which would be another's idea of the last one", function()
    for _, dim in ipairs({ 0, -1 }) do
      gradcheck.fails("sum", "shape mismatch", function()
        return neap.op.sum(neap.zeros({ 2, 4 }), dim)
      end, tostring(dim))
    end
  end)

  it("refuses integers, and a call without a tensor", function()
    gradcheck.fails("sum", "dtype", function()
      return neap.op.sum(neap.tensor({ 1 }, { 1 }, { dtype = "i32" }))
    end, "i32")
    gradcheck.fails("sum", "invalid argument", function() return neap.op.sum() end)
  end)
end)
