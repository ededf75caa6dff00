-- tensor:lerp: moves a tensor towards another one in place, as running means do.
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local C = require("neap.ffi").C

describe("tensor:lerp", function()
  setup(function() neap.device("cpu") end)

  it("adds weight times the difference, and gives the tensor back", function()
    neap.scope(function()
      local a, b = neap.tensor({ 0, 1, -2, 8 }), neap.tensor({ 4, 1, 2, 0 })
      assert.equal(a, a:lerp(b, 0.25))
      assert.same({ 1, 1, -1, 6 }, a:table())
      assert.same({ 4, 1, 2, 0 }, b:table())
      assert.same({ 1, 1, -1, 6 }, a:lerp(b, 0):table())
      assert.same({ 4, 1, 2, 0 }, a:lerp(b, 1):table())
      assert.same({ 4, 1, 2, 0 }, a:lerp(a, 0.5):table())
      assert.same({ 12, 1, 2, -8 }, a:lerp(neap.tensor({ 0, 1, 2, 4 }), -2):table())
      neap.empty({ 0, 3 }):lerp(neap.empty({ 0, 3 }), 0.5)
    end)
  end)

  it("moves every element of a large tensor, on one thread and on two", function()
    neap.scope(function()
      for threads = 1, 2 do
        neap.threads(threads)
        local a = neap.zeros({ 70001 }):lerp(neap.full({ 70001 }, 2), 0.5)
        for _, x in ipairs(a:table()) do assert(x == 1) end
      end
      neap.threads(1)
    end)
  end)

  it("raises the version, so that a backward that saved the old contents refuses", function()
    neap.scope(function()
      local x = neap.full({ 2 }, 1, { requires_grad = true })
      local other = neap.full({ 2 }, 3)
      local loss = neap.op.sum(neap.op.multiply(x, other))
      local version = other:version()
      other:lerp(neap.full({ 2 }, 1), 0.5)
      assert.equal(version + 1, other:version())
      failure_of("modified in place", loss.backward, loss)
    end)
  end)

  it("refuses other shapes, dtypes and devices, and weights that are no number", function()
    local null = neap.device("null", { size = 0 })
    neap.device("cpu")
    neap.scope(function()
      local elsewhere = neap.with_device(null, neap.zeros, { 4 })
      local a = neap.tensor({ 1, 2, 3, 4 })
      local version = a:version()
      assert.matches("%(4%), from is %(2, 2%)",
        failure_of("shape mismatch", a.lerp, a, neap.zeros({ 2, 2 }), 0.1))
      assert.matches("f32 and i32",
        failure_of("dtype", a.lerp, a, neap.zeros({ 4 }, { dtype = "i32" }), 0.1))
      assert.matches("cpu, null", failure_of("device", a.lerp, a, elsewhere, 0.1))
      for _, weight in ipairs({ 0 / 0, 1 / 0, -1 / 0, "0.1", {} }) do
        failure_of("invalid argument", a.lerp, a, neap.zeros({ 4 }), weight)
      end
      failure_of("invalid argument", a.lerp, a, neap.zeros({ 4 }))
      failure_of("invalid argument", a.lerp, a, 5, 0.1)
      failure_of("invalid argument", a.lerp, {}, a, 0.1)
      local freed = neap.zeros({ 4 })
      freed:free()
      failure_of("stale handle", a.lerp, a, freed, 0.1)
      failure_of("stale handle", a.lerp, freed, a, 0.1)
      assert.same({ 1, 2, 3, 4 }, a:table())
      assert.equal(version, a:version())
      -- on null nothing is held, but everything else is as elsewhere
      elsewhere:lerp(neap.with_device(null, neap.zeros, { 4 }), 0.5)
      assert.same({ 0, 0, 0, 0 }, elsewhere:table())
      assert.equal(0, C.neap_tensor_lerp(a.id, a.id, 0.5))
    end)
    null:close()
  end)
end)
