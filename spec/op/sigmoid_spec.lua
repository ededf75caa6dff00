-- sigmoid: its gradient comes from the output.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.sigmoid", function()
  local device
  setup(function() device = gradcheck.cpu() end)

  local function case(x)
    return {
      name = "sigmoid",
      run = function(t) return neap.op.sigmoid(t) end,
      reference = reference.sigmoid,
      inputs = { x },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("sigmoid", function(t) return neap.op.sigmoid(t[1]) end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(60, function(r) return case(r.value(r.dims(r.int(0, 4), 4), 4)) end)
  end)

  it("agrees where a dimension is 0 or 1, and at each length around a vector's width", function()
    for _, dims in ipairs(numbers.shapes(2)) do gradcheck.check(case(numbers.wave(dims, 1, 2))) end
    for n = 1, 35 do gradcheck.check(case(numbers.wave({ n }, n, 4))) end
  end)

  it("saves its output and no other byte", function()
    local C = require("neap.ffi").C
    neap.scope(function()
      local leaf = neap.full({ 64 }, 0.5, { requires_grad = true })
      local x = neap.op.scale(leaf, 1)
      local live = device:memory().live_bytes
      local y = neap.op.sigmoid(x)
      x:free() -- the tape does not hold it
      assert.equal(live, device:memory().live_bytes)
      assert.equal(1, C.neap_tape_saves(C.neap_tape_selected(), y.id))
    end)
  end)

  it("is exact far from 0 and passes NaN on", function()
    neap.scope(function()
      local y = neap.op.sigmoid(neap.tensor({ -1 / 0, -1e4, 0, 60, 1e4, 1 / 0, 0 / 0 })):table()
      for i, expected in ipairs({ 0, 0, 0.5, 1, 1, 1 }) do assert.equal(expected, y[i]) end
      assert(y[7] ~= y[7])
    end)
  end)

  it("refuses integers, and a call without a tensor", function()
    gradcheck.fails("sigmoid", "dtype", function()
      return neap.op.sigmoid(neap.tensor({ 1, 2 }, { 2 }, { dtype = "i32" }))
    end, "i32", "f32")
    gradcheck.fails("sigmoid", "invalid argument", function() return neap.op.sigmoid() end)
  end)
end)
