-- The norm of all gradients together, as clipping needs it.
local neap = require("neap")
local native = require("neap.ffi")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap_global_norm", function()
  setup(gradcheck.cpu)

  local C, ffi = native.C, native.ffi

  local function norm(tensors)
    local ids, out = ffi.new("double[?]", #tensors + 1), ffi.new("double[1]")
    for i, t in ipairs(tensors) do ids[i - 1] = t.id end
    return C.neap_global_norm(#tensors, ids, out), out[0]
  end

  local function norm_of(values)
    return neap.scope(function()
      local tensors = {}
      for i, value in ipairs(values) do tensors[i] = gradcheck.tensor(value) end
      local code, found = norm(tensors)
      native.check(code)
      return found
    end)
  end

  it("is PyTorch's, and so are the clipped gradients", function()
    local rows = gradcheck.torch().clip
    for _, row in ipairs(rows) do
      local values = {}
      for k, dims in ipairs(row.dims) do values[k] = numbers.wave(dims, k) end
      local found = norm_of(values)
      numbers.close("norm", { row.norm }, { found }, 1e-12)
      local factor = math.min(1, row.max_norm / (found + 1e-6))
      for k, clipped in ipairs(row.clipped) do
        numbers.close("clipped", clipped, reference.scale(values[k], factor).data, 1e-12)
      end
    end
    assert.equal(2, #rows)
  end)

  it("agrees with the reference for sizes around a block", function()
    for _, sizes in ipairs({ { 0 }, { 1 }, { 4095 }, { 4096 }, { 4097, 3 }, { 0, 9000, 1, 17 } }) do
      local values = {}
      for k, n in ipairs(sizes) do values[k] = numbers.wave({ n }, k) end
      numbers.close("norm", { reference.global_norm(values) }, { norm_of(values) }, 1e-12)
    end
  end)

  it("is 0 for no tensors", function()
    assert.same({ 0, 0 }, { norm({}) })
  end)

  it("does not overflow or vanish where a square in f32 would", function()
    for _, unit in ipairs({ 1e30, 1e-30 }) do
      local found = norm_of({ { dims = { 2 }, data = { 3 * unit, 4 * unit } } })
      numbers.close("norm", { 5 * unit }, { found }, 1e-6)
    end
  end)

  it("is NaN or infinite when an element is", function()
    local nan = norm_of({ { dims = { 3 }, data = { 1, 0 / 0, 2 } } })
    assert(nan ~= nan)
    assert.equal(1 / 0, norm_of({ { dims = { 3 }, data = { 1, -1 / 0, 2 } } }))
  end)

  it("has the same bits on two threads", function()
    local value = numbers.wave({ 200003 }, 1)
    local one = norm_of({ value })
    neap.threads(2)
    local two = norm_of({ value })
    neap.threads(1)
    assert.equal(one, two)
  end)

  it("refuses integers and stale handles", function()
    neap.scope(function()
      local t = neap.zeros({ 3 })
      local integers = gradcheck.tensor({ dims = { 1 }, data = { 1 }, dtype = "i32" })
      assert(norm({ t, integers }) < 0)
      assert(ffi.string(C.neap_last_error()):find("global_norm: .*f32"))
      t:free()
      assert.equal(C.NEAP_ERR_STALE, (norm({ t })))
    end)
  end)
end)
