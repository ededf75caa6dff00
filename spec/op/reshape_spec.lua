-- reshape: other dimensions for the same elements, in the same storage.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.reshape", function()
  setup(gradcheck.cpu)

  local function case(x, dims)
    return {
      name = "reshape",
      run = function(t) return neap.op.reshape(t, dims) end,
      reference = function(v) return reference.value({ unpack(dims) }, v.data) end,
      inputs = { x },
    }
  end

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r)
      local dims = r.dims(r.int(0, 5), 3)
      local n = 1
      for _, d in ipairs(dims) do n = n * d end
      local others = { { n }, { 1, n }, { n, 1, 1 }, { unpack(dims) } }
      if n % 2 == 0 then others[5] = { 2, n / 2 } end
      return case(r.value(dims), others[r.int(1, #others)])
    end)
  end)

  it("takes dimensions of 0 and scalars", function()
    gradcheck.check(case(numbers.wave({ 0 }, 1), { 3, 0, 2 }))
    gradcheck.check(case(numbers.wave({ 2, 0 }, 1), { 0 }))
    gradcheck.check(case(numbers.wave({}, 1), { 1, 1 }))
    gradcheck.check(case(numbers.wave({ 1 }, 1), {}))
  end)

  it("keeps integers integers", function()
    neap.scope(function()
      local y = neap.op.reshape(neap.tensor({ 1, 2, 16777217 }, { 3 }, { dtype = "i32" }), { 1, 3 })
      assert.same({ 1, 2, 16777217 }, y:table())
    end)
  end)

  it("shares the storage", function()
    neap.scope(function()
      local C = require("neap.ffi").C
      local device, x = gradcheck.cpu(), neap.zeros({ 4, 4 })
      local live = C.neap_memory_live(device.id)
      local y = neap.op.reshape(x, { 16 })
      assert.equal(live, C.neap_memory_live(device.id))
      assert.equal(C.neap_tensor_storage(x.id), C.neap_tensor_storage(y.id))
    end)
  end)

  it("refuses another number of elements", function()
    gradcheck.fails("reshape", "shape mismatch", function()
      return neap.op.reshape(neap.zeros({ 2, 3 }), { 4 })
    end, "(2, 3)", "6", "(4)")
  end)

  it("refuses dimensions that are no counts", function()
    for _, d in ipairs({ -1, 1.5, 0 / 0, 1 / 0, 2 ^ 60 }) do
      neap.scope(function()
        local ok, err = pcall(neap.op.reshape, neap.zeros({ 2, 3 }), { d, 6 })
        assert(not ok)
        assert(require("neap.fail").is(err), tostring(err))
      end)
    end
  end)

  it("refuses seven dimensions, and a call without dimensions", function()
    gradcheck.fails("reshape", "shape mismatch", function()
      return neap.op.reshape(neap.zeros({ 1 }), { 1, 1, 1, 1, 1, 1, 1 })
    end, "6", "7")
    gradcheck.fails("reshape", "shape mismatch", function()
      return neap.op.reshape(neap.zeros({ 1 }))
    end, "list")
  end)
end)
