-- mean: over all elements, or over one dimension, which goes away.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.mean", function()
  setup(gradcheck.cpu)

  local function case(x, dim)
    return {
      name = ("mean of (%s) over %s"):format(table.concat(x.dims, ", "), dim or "all"),
      run = function(t) return neap.op.mean(t, dim) end,
      reference = function(v) return reference.mean(v, dim) end,
      inputs = { x },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("mean", function(t, attrs)
      return neap.op.mean(t[1], attrs[1] >= 0 and attrs[1] + 1 or nil)
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
        local over = dims[dim] or dims[1] * dims[2] * dims[3]
        if over > 0 then
          gradcheck.check(case(numbers.wave(dims, 1), dim > 0 and dim or nil))
        end
      end
    end
  end)

  it("is NaN over nothing, as in PyTorch, and its gradient is empty", function()
    neap.scope(function()
      local x = neap.tensor({}, { 2, 0 }, { requires_grad = true })
      local y = neap.op.mean(x, 2)
      assert.same({ 2 }, y:dims())
      for _, v in ipairs(y:table()) do assert(v ~= v) end
      local all = neap.op.mean(x)
      assert(all:item() ~= all:item())
      all:backward()
      assert.same({}, x:grad():table())
    end)
  end)

  it("averages rows and columns of many sizes", function()
    for _, dims in ipairs({ { 70, 3 }, { 3, 70 }, { 130, 2 }, { 2, 33, 5 } }) do
      for dim = 1, #dims do gradcheck.check(case(numbers.wave(dims, 1), dim)) end
    end
  end)

  it("passes NaN on", function()
    neap.scope(function()
      local x = neap.tensor({ 1, 0 / 0, 3, 4 }, { 2, 2 })
      local all, rows = neap.op.mean(x):item(), neap.op.mean(x, 2):table()
      assert(all ~= all)
      assert(rows[1] ~= rows[1])
      assert.equal(3.5, rows[2])
    end)
  end)

  it("refuses a dimension that is not there", function()
    for _, dim in ipairs({ 3, 1.5, 100, 0 / 0 }) do
      gradcheck.fails("mean", "shape mismatch", function()
        return neap.op.mean(neap.zeros({ 2, 4 }), dim)
      end, "(2, 4)")
    end
  end)

  it("refuses dimensions below 1, which would be another's idea of the last one", function()
    for _, dim in ipairs({ 0, -1 }) do
      gradcheck.fails("mean", "shape mismatch", function()
        return neap.op.mean(neap.zeros({ 2, 4 }), dim)
      end, tostring(dim))
    end
  end)

  it("refuses integers, and a call without a tensor", function()
    gradcheck.fails("mean", "dtype", function()
      return neap.op.mean(neap.tensor({ 1 }, { 1 }, { dtype = "i32" }))
    end, "i32")
    gradcheck.fails("mean", "invalid argument", function() return neap.op.mean() end)
  end)
end)
