-- relu: the positive part; its slope at 0 is 0, as in PyTorch.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")
local C = require("neap.ffi").C

describe("neap.op.relu", function()
  setup(gradcheck.cpu)

  -- central differences mean nothing across the corner
  local function away_from_0(x)
    for i, v in ipairs(x.data) do
      if math.abs(v) < 0.01 then x.data[i] = 0.5 end
    end
    return x
  end

  local function case(x)
    return {
      name = "relu",
      run = function(t) return neap.op.relu(t) end,
      reference = reference.relu,
      inputs = { away_from_0(x) },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("relu", function(t) return neap.op.relu(t[1]) end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r)
      return case(r.value(r.dims(r.int(0, 4), 4), 4))
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, dims in ipairs(numbers.shapes(3)) do
      gradcheck.check(case(numbers.wave(dims, 1, 2)))
    end
  end)

  it("agrees at each length around a vector's width", function()
    for n = 1, 70 do gradcheck.check(case(numbers.wave({ n }, n, 4))) end
  end)

  it("is exact far from 0 and passes NaN on", function()
    neap.scope(function()
      local y = neap.op.relu(neap.tensor({ -1e4, -60, 0, 60, 1e4, 1 / 0, 0 / 0 }, { 7 })):table()
      for i, expected in ipairs({ 0, 0, 0, 60, 1e4, 1 / 0 }) do assert.equal(expected, y[i]) end
      assert(y[7] ~= y[7])
    end)
  end)

  it("has slopes 0 and 1 far from 0, and 0 at 0", function()
    neap.scope(function()
      local x = neap.tensor({ -1e4, -60, 0, 60, 1e4 }, { 5 }, { requires_grad = true })
      neap.op.sum(neap.op.relu(x)):backward()
      numbers.close("slopes", { 0, 0, 0, 1, 1 }, x:grad():table(), 1e-6)
    end)
  end)

  it("saves its output and nothing else", function()
    neap.scope(function()
      local x = neap.full({ 100 }, 1, { requires_grad = true })
      local tape = C.neap_tape_new()
      local before = C.neap_tape_select(tape)
      local y = neap.op.relu(x)
      assert.equal(448, C.neap_tape_saved_bytes(tape)) -- 400 bytes, rounded up
      assert.equal(1, C.neap_tape_saves(tape, y.id))
      assert.equal(0, C.neap_tape_saves(tape, x.id))
      C.neap_tape_select(before)
      C.neap_tape_free(tape)
    end)
  end)

  it("refuses integers", function()
    gradcheck.fails("relu", "dtype", function()
      return neap.op.relu(neap.tensor({ 1, 2 }, { 2 }, { dtype = "i32" }))
    end, "i32", "f32")
  end)

  it("refuses a call without a tensor", function()
    gradcheck.fails("relu", "invalid argument", function() return neap.op.relu() end)
  end)
end)
