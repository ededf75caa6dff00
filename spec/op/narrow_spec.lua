-- narrow: some rows of the first dimension, in the same storage.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.narrow", function()
  setup(gradcheck.cpu)

  local function case(x, first, n)
    local row = 1
    for i = 2, #x.dims do row = row * x.dims[i] end
    return {
      name = ("narrow of (%s) to %d rows from %d"):format(table.concat(x.dims, ", "), n, first),
      run = function(t) return neap.op.narrow(t, first, n) end,
      reference = function(v)
        local dims = { unpack(v.dims) }
        dims[1] = n
        local before = (first - 1) * row
        return reference.value(dims, { unpack(v.data, before + 1, before + n * row) })
      end,
      inputs = { x },
    }
  end

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r)
      local dims = r.dims(r.int(1, 4), 4)
      local n = r.int(0, dims[1])
      return case(r.value(dims), r.int(1, dims[1] - n + 1), n)
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, dims in ipairs(numbers.shapes(2)) do
      for n = 0, dims[1] do gradcheck.check(case(numbers.wave(dims, 1), dims[1] - n + 1, n)) end
    end
  end)

  it("adds the gradients of parts that overlap", function()
    gradcheck.many(40, function(r)
      local dims = { 4, r.int(1, 4) }
      return {
        name = "narrow that overlaps",
        run = function(x)
          return neap.op.multiply(neap.op.narrow(x, 1, 3), neap.op.gelu(neap.op.narrow(x, 2, 3)))
        end,
        reference = function(x)
          local w = dims[2]
          local low = reference.value({ 3, w }, { unpack(x.data, 1, 3 * w) })
          local high = reference.value({ 3, w }, { unpack(x.data, w + 1) })
          return reference.multiply(low, reference.gelu(high))
        end,
        inputs = { r.value(dims) },
      }
    end)
  end)

  it("keeps integers integers", function()
    neap.scope(function()
      local y = neap.op.narrow(neap.tensor({ 1, 2, 16777217 }, { 3 }, { dtype = "i32" }), 2, 2)
      assert.same({ 2, 16777217 }, y:table())
    end)
  end)

  it("shares the storage", function()
    neap.scope(function()
      local C = require("neap.ffi").C
      local device, x = gradcheck.cpu(), neap.zeros({ 4, 4 })
      local live = C.neap_memory_live(device.id)
      local y = neap.op.narrow(x, 2, 2)
      assert.equal(live, C.neap_memory_live(device.id))
      assert.equal(C.neap_tensor_storage(x.id), C.neap_tensor_storage(y.id))
    end)
  end)

  it("refuses rows that are not there", function()
    local wrong = { { 1, 4 }, { 3, 2 }, { 0, 1 }, { -1, 1 }, { 1, -1 }, { 1.5, 1 }, { 1, 0.5 },
      { 0 / 0, 1 }, { 1, 1 / 0 }, { 1e300, 1 } }
    for _, rows in ipairs(wrong) do
      gradcheck.fails("narrow", "shape mismatch", function()
        return neap.op.narrow(neap.zeros({ 3, 2 }), rows[1], rows[2])
      end, "(3, 2)")
    end
  end)

  it("refuses a scalar, and a call without rows", function()
    gradcheck.fails("narrow", "shape mismatch", function()
      return neap.op.narrow(neap.zeros({}), 1, 1)
    end)
    gradcheck.fails("narrow", "invalid argument", function()
      return neap.op.narrow(neap.zeros({ 3 }))
    end)
    gradcheck.fails("narrow", "invalid argument", function()
      return neap.op.narrow(neap.zeros({ 3 }), 1)
    end)
  end)
end)
