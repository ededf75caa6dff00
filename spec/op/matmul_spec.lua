-- matmul: products of matrices, each transposed or not, in batches or with one shared b.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.matmul", function()
  setup(gradcheck.cpu)

  local kinds = { { false, false }, { false, true }, { true, false }, { true, true } }

  local function case(a, b, trans_a, trans_b)
    return {
      name = ("matmul of (%s) and (%s)"):format(
        table.concat(a.dims, ", "), table.concat(b.dims, ", ")),
      run = function(x, y) return neap.op.matmul(x, y, trans_a, trans_b) end,
      reference = function(x, y) return reference.matmul(x, y, trans_a, trans_b) end,
      inputs = { a, b },
    }
  end

  -- dims of a and b for a product (m, k) x (k, n) with leading dims
  local function dims_of(lead, m, k, n, trans_a, trans_b, shared)
    local a, b = { unpack(lead) }, shared and {} or { unpack(lead) }
    a[#a + 1], b[#b + 1] = trans_a and k or m, trans_b and n or k
    a[#a + 1], b[#b + 1] = trans_a and m or k, trans_b and k or n
    return a, b
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("matmul", function(t, attrs)
      return neap.op.matmul(t[1], t[2], attrs[1] == 1, attrs[2] == 1)
    end)
  end)

  it("agrees with the reference on random shapes", function()
    for _, kind in ipairs(kinds) do
      gradcheck.many(60, function(r, i)
        local a, b = dims_of(r.dims(r.int(0, 2), 3), r.int(1, 4), r.int(1, 4), r.int(1, 4),
          kind[1], kind[2], i % 2 == 0)
        return case(r.value(a), r.value(b), kind[1], kind[2])
      end)
    end
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, kind in ipairs(kinds) do
      for i, d in ipairs(numbers.shapes(4)) do
        local a, b = dims_of({ d[1] }, d[2], d[3], d[4], kind[1], kind[2], i % 2 == 0)
        gradcheck.check(case(numbers.wave(a, 1), numbers.wave(b, 2), kind[1], kind[2]))
      end
    end
  end)

  it("does not transpose unless told", function()
    neap.scope(function()
      local a, b = neap.tensor({ 1, 2, 3, 4 }, { 2, 2 }), neap.tensor({ 1, 0, 1, 1 }, { 2, 2 })
      assert.same({ 3, 2, 7, 4 }, neap.op.matmul(a, b):table())
    end)
  end)

  it("multiplies matrices of sizes around a block, in each orientation", function()
    neap.scope(function()
      for _, kind in ipairs(kinds) do
        local da, db = dims_of({ 2 }, 65, 67, 33, kind[1], kind[2], false)
        local a, b = numbers.wave(da, 1), numbers.wave(db, 2)
        local y = neap.op.matmul(gradcheck.tensor(a), gradcheck.tensor(b), kind[1], kind[2])
        numbers.close("output", reference.matmul(a, b, kind[1], kind[2]).data, y:table(), 2e-6, 8)
      end
    end)
  end)

  it("multiplies by a vector in each orientation", function()
    for _, kind in ipairs(kinds) do
      for _, size in ipairs({ { 1, 75, 33 }, { 33, 75, 1 }, { 1, 33, 75 }, { 75, 1, 33 } }) do
        local a, b = dims_of({}, size[1], size[2], size[3], kind[1], kind[2], true)
        gradcheck.check(case(numbers.wave(a, 1), numbers.wave(b, 2), kind[1], kind[2]))
      end
    end
  end)

  it("takes one tensor as both inputs", function()
    gradcheck.many(20, function(r)
      local n = r.int(1, 4)
      return {
        name = "matmul of one tensor",
        run = function(x) return neap.op.matmul(x, x, false, true) end,
        reference = function(x) return reference.matmul(x, x, false, true) end,
        inputs = { r.value({ r.int(1, 4), n }) },
      }
    end)
  end)

  it("refuses inner dimensions that differ, saying what is transposed", function()
    gradcheck.fails("matmul", "shape mismatch", function()
      return neap.op.matmul(neap.zeros({ 2, 3 }), neap.zeros({ 2, 3 }))
    end, "(2, 3)")
    gradcheck.fails("matmul", "shape mismatch", function()
      return neap.op.matmul(neap.zeros({ 2, 3 }), neap.zeros({ 3, 4 }), true, false)
    end, "(2, 3) transposed", "(3, 4)")
  end)

  it("refuses batches that differ, and vectors", function()
    for _, dims in ipairs({ { 3, 4, 5 }, { 1, 4, 5 }, { 1, 2, 4, 5 }, { 4 }, {} }) do
      gradcheck.fails("matmul", "shape mismatch", function()
        return neap.op.matmul(neap.zeros({ 2, 3, 4 }), neap.zeros(dims))
      end, "(2, 3, 4)")
    end
    gradcheck.fails("matmul", "shape mismatch", function()
      return neap.op.matmul(neap.zeros({ 3, 4 }), neap.zeros({ 2, 4, 5 }))
    end, "(2, 4, 5)")
  end)

  it("refuses integers", function()
    gradcheck.fails("matmul", "dtype", function()
      return neap.op.matmul(neap.zeros({ 1, 1 }), neap.tensor({ 1 }, { 1, 1 }, { dtype = "i32" }))
    end, "input 2", "i32")
  end)

  it("refuses a call with one tensor", function()
    gradcheck.fails("matmul", "invalid argument", function()
      return neap.op.matmul(neap.zeros({ 2, 4 }))
    end)
  end)
end)
