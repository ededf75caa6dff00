-- tanh: its gradient comes from the output.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.tanh", function()
  local device
  setup(function() device = gradcheck.cpu() end)

  local function case(x)
    return {
      name = "tanh",
      run = function(t) return neap.op.tanh(t) end,
      reference = reference.tanh,
      inputs = { x },
      scale = 0.1, -- 1 - y^2 is as exact as 1 is, however small
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("tanh", function(t) return neap.op.tanh(t[1]) end)
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
      local y = neap.op.tanh(x)
      x:free() -- the tape does not hold it
      assert.equal(live, device:memory().live_bytes)
      assert.equal(1, C.neap_tape_saves(C.neap_tape_selected(), y.id))
    end)
  end)

  it("is exact far from 0 and at 0, and passes NaN on", function()
    neap.scope(function()
      local y = neap.op.tanh(neap.tensor({ -1 / 0, -1e4, -20, 20, 1e4, 1 / 0, 0 / 0, 0, -1e-60 }))
      local t = y:table()
      for i, expected in ipairs({ -1, -1, -1, 1, 1, 1 }) do assert.equal(expected, t[i]) end
      assert(t[7] ~= t[7])
      assert.equal(0, y:bits()[8])
      assert.equal(0x80000000, y:bits()[9])
    end)
  end)

  it("is as exact near 0 as elsewhere, to a few units in the last place", function()
    neap.scope(function()
      local list = {}
      for i = 0, 400 do list[i + 1] = (i % 2 * 2 - 1) * 1e-30 * 1.2 ^ i end
      for i = 402, 900 do list[i] = (i - 401) / 50 end
      local x = neap.tensor(list)
      local found = neap.op.tanh(x):table()
      for i, v in ipairs(x:table()) do
        local expected = math.tanh(v)
        assert(math.abs(found[i] - expected) <= 3e-7 * math.abs(expected), v .. ": " .. found[i])
      end
    end)
  end)

  it("refuses integers, and a call without a tensor", function()
    gradcheck.fails("tanh", "dtype", function()
      return neap.op.tanh(neap.tensor({ 1, 2 }, { 2 }, { dtype = "i32" }))
    end, "i32", "f32")
    gradcheck.fails("tanh", "invalid argument", function() return neap.op.tanh() end)
  end)
end)
