-- select: one index of one dimension, which goes away.
local neap = require("neap")
local cells = require("spec.support.reference_cells")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")

describe("neap.op.select", function()
  setup(gradcheck.cpu)

  local function case(x, dim, index)
    return {
      name = ("select of (%s), dimension %d, index %d"):format(table.concat(x.dims, ", "), dim,
        index),
      run = function(t) return neap.op.select(t, dim, index) end,
      reference = function(v) return cells.select(v, dim, index) end,
      inputs = { x },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("select", function(t, attrs)
      return neap.op.select(t[1], attrs[1] + 1, attrs[2] + 1)
    end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(60, function(r)
      local dims = r.dims(r.int(1, 4), 4)
      local dim = r.int(1, #dims)
      return case(r.value(dims), dim, r.int(1, dims[dim]))
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, dims in ipairs(numbers.shapes(3)) do
      for dim = 1, 3 do
        for index = 1, dims[dim] do gradcheck.check(case(numbers.wave(dims, 1), dim, index)) end
      end
    end
  end)

  it("keeps integers integers", function()
    neap.scope(function()
      local x = neap.tensor({ 1, 2, 3, 16777217 }, { 2, 2 }, { dtype = "i32" })
      assert.same({ 2, 16777217 }, neap.op.select(x, 2, 2):table())
      assert.same({ 3, 16777217 }, neap.op.select(x, 1, 2):table())
    end)
  end)

  it("copies bf16 as it is", function()
    local native = require("neap.ffi")
    neap.scope(function()
      local x = neap.empty({ 2, 3 }, { dtype = "bf16" })
      local bits, out = native.ffi.new("uint16_t[6]", { 1, 2, 3, 65535, 5, 6 }),
        native.ffi.new("uint16_t[3]")
      native.check(native.C.neap_tensor_write(x.id, bits, 12))
      local column, row = neap.op.select(x, 2, 3), neap.op.select(x, 1, 2)
      assert.same({ "bf16", 2 }, { column:dtype(), column:numel() })
      native.check(native.C.neap_tensor_read(column.id, out, 4))
      assert.same({ 3, 6 }, { out[0], out[1] })
      native.check(native.C.neap_tensor_read(row.id, out, 6))
      assert.same({ 65535, 5, 6 }, { out[0], out[1], out[2] })
    end)
  end)

  it("refuses a dimension or an index that is not there", function()
    for _, wrong in ipairs({ { 0, 1 }, { 3, 1 }, { 1, 0 }, { 1, 4 }, { 2, 3 }, { -1, 1 },
      { 1.5, 1 }, { 1, 1.5 }, { 0 / 0, 1 }, { 1, 0 / 0 }, { 1e300, 1 }, { 1, 1e300 } }) do
      gradcheck.fails("select", "shape mismatch", function()
        return neap.op.select(neap.zeros({ 3, 2 }), wrong[1], wrong[2])
      end, "(3, 2)")
    end
    gradcheck.fails("select", "shape mismatch", function()
      return neap.op.select(neap.zeros({ 0, 2 }), 1, 1)
    end, "(0, 2)")
  end)

  it("refuses a call without a tensor, a dimension or an index", function()
    gradcheck.fails("select", "invalid argument", function() return neap.op.select(nil, 1, 1) end)
    gradcheck.fails("select", "invalid argument", function()
      return neap.op.select(neap.zeros({ 2 }))
    end, "dimension")
    gradcheck.fails("select", "invalid argument", function()
      return neap.op.select(neap.zeros({ 2 }), 1)
    end, "index")
  end)
end)
