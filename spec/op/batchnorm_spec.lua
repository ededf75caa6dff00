-- batchnorm: each channel to mean 0 and variance 1 over the batch; and the same with statistics
-- that are given.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local plain = require("spec.support.reference")
local reference = require("spec.support.reference_images")
local C = require("neap.ffi").C

local wave = numbers.wave

-- channels with a spread of about 1, so that their size does not amplify rounding
local function spread(x)
  for i, v in ipairs(x.data) do
    x.data[i] = numbers.f32(0.5 * v + math.floor(i * 0.618) % 2 * 2 - 1)
  end
  return x
end

local function shape(x) return "(" .. table.concat(x.dims, ", ") .. ")" end

-- bytes that the tape holds after run(tensors), where `wants` says which of them need a gradient
local function saved(inputs, wants, run)
  return neap.scope(function()
    local tensors = {}
    for k, input in ipairs(inputs) do
      tensors[k] = gradcheck.tensor(input, wants:sub(k, k) == "1" or nil)
    end
    local tape = C.neap_tape_new()
    local before = C.neap_tape_select(tape)
    local y = run(unpack(tensors)) -- luacheck: ignore 211
    local bytes = C.neap_tape_saved_bytes(tape)
    C.neap_tape_select(before)
    C.neap_tape_free(tape)
    return bytes
  end)
end

describe("neap.op.batchnorm", function()
  setup(gradcheck.cpu)

  local function case(x, gain, bias, eps)
    return {
      name = "batchnorm of " .. shape(x),
      run = function(t, g, b) return (neap.op.batchnorm(t, g, b, eps)) end,
      reference = function(t, g, b) return reference.batchnorm(t, g, b, eps) end,
      -- what is left of the gradient of one or two numbers is a difference near 0
      scale = #x.data / x.dims[2] <= 2 and 1 or nil,
      inputs = { spread(x), gain, bias },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("batchnorm", function(t, attrs)
      return (neap.op.batchnorm(t[1], t[2], t[3], attrs[1]))
    end)
  end)

  it("agrees with the reference on random shapes of 2 to 5 dimensions", function()
    gradcheck.many(60, function(r, i)
      local dims = r.dims(r.int(2, 5), 3)
      dims[1] = dims[1] + 2
      local c = { dims[2] }
      return case(r.value(dims), r.value(c, 0.5, 1), r.value(c), i % 2 == 0 and 1e-4 or 1e-2)
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, dims in ipairs(numbers.shapes(3)) do
      if dims[1] * dims[2] * dims[3] == 0 or dims[1] * dims[3] > 1 then
        gradcheck.check(case(wave(dims, 1), wave({ dims[2] }, 2), wave({ dims[2] }, 3), 1e-2))
      end
    end
  end)

  it("agrees on planes around a vector's width", function()
    for _, dims in ipairs({ { 2, 2, 15 }, { 2, 1, 16 }, { 1, 2, 17 }, { 2, 2, 47 }, { 1, 1, 67 },
      { 70, 2 } }) do
      gradcheck.check(case(wave(dims, 1), wave({ dims[2] }, 2, 0.5, 1), wave({ dims[2] }, 3),
        1e-4))
    end
  end)

  it("returns the mean and the variance, and passes gradients through them", function()
    local eps = 1e-2
    -- output k alone, then all three of them at once
    local function pick(k, op)
      return function(x, gain, bias)
        return (select(k, op(x, gain, bias)))
      end
    end
    local function all(o, y, mean, variance)
      return o.add(o.multiply(y, mean), variance)
    end
    local function definition(x, g, b)
      local mean, variance = reference.statistics(x)
      return reference.batchnorm(x, g, b, eps), mean, variance
    end
    for _, dims in ipairs({ { 5, 3 }, { 7, 1 } }) do
      local inputs = { spread(wave(dims, 1)), wave({ dims[2] }, 2, 0.5, 1), wave({ dims[2] }, 3) }
      local function run(x, g, b) return neap.op.batchnorm(x, g, b, eps) end
      for k = 2, 3 do
        -- gain and bias get no gradient from these
        local function fixed(i) return { dims = inputs[i].dims, data = inputs[i].data,
          fixed = true } end
        gradcheck.check({ name = "output " .. k, run = pick(k, run),
          reference = pick(k, definition), inputs = { inputs[1], fixed(2), fixed(3) } })
      end
      gradcheck.check({ name = "all outputs", inputs = inputs,
        run = function(...) return all(neap.op, run(...)) end,
        reference = function(...) return all(plain, definition(...)) end })
    end
  end)

  it("keeps its precision far from 0", function()
    neap.scope(function()
      local x = wave({ 4, 2, 16 }, 1, 1, 1000)
      local one, zero = wave({ 2 }, 0, 0, 1), wave({ 2 }, 0, 0)
      local y = neap.op.batchnorm(gradcheck.tensor(x), gradcheck.tensor(one),
        gradcheck.tensor(zero), 1e-5)
      -- a mean near 1000 is only known to 6e-5
      numbers.close("output", reference.batchnorm(x, one, zero, 1e-5).data, y:table(), 1e-4)
    end)
  end)

  it("gives 0 for a channel of equal numbers and passes NaN on in its channel alone", function()
    neap.scope(function()
      local x = neap.tensor({ 7, 1, 1, 7, 0 / 0, 2 }, { 2, 3 })
      local y = neap.op.batchnorm(x, neap.full({ 3 }, 1), neap.zeros({ 3 }), 1e-5):table()
      assert.same({ 0, 0 }, { y[1], y[4] })
      assert(y[2] ~= y[2] and y[5] ~= y[5])
      assert(y[3] == y[3] and y[6] == y[6])
    end)
  end)

  it("saves x, gain and statistics for x, no gain for the gain, nothing for the bias", function()
    local inputs = { wave({ 4, 3, 5 }, 1), wave({ 3 }, 2), wave({ 3 }, 3) }
    local function bytes(wants)
      return saved(inputs, wants, function(x, g, b) return (neap.op.batchnorm(x, g, b)) end)
    end
    local x, channels = 256, 64 -- 240 bytes and 12, rounded up
    assert.equal(x + 3 * channels, bytes("111"))
    assert.equal(x + 3 * channels, bytes("100"))
    assert.equal(x + 2 * channels, bytes("010"))
    assert.equal(0, bytes("001"))
  end)

  it("refuses shapes that do not fit, saying both", function()
    for _, x in ipairs({ { 4 }, {}, { 1, 2, 1, 1, 1, 1 } }) do
      gradcheck.fails("batchnorm", "shape mismatch", function()
        return neap.op.batchnorm(neap.zeros(x), neap.zeros({ 2 }), neap.zeros({ 2 }))
      end, "(" .. table.concat(x, ", ") .. ")", "2 to 5")
    end
    for k = 2, 3 do
      for _, dims in ipairs({ { 3 }, { 2, 1 }, {} }) do
        local given = { { 5, 2, 4 }, { 2 }, { 2 } }
        given[k] = dims
        gradcheck.fails("batchnorm", "shape mismatch", function()
          return neap.op.batchnorm(neap.zeros(given[1]), neap.zeros(given[2]),
            neap.zeros(given[3]))
        end, "(5, 2, 4)", "input " .. k, "(" .. table.concat(dims, ", ") .. ")", "(2)")
      end
    end
  end)

  it("refuses an eps that is not above 0, integers, and a call without a gain", function()
    local function call(options, ...)
      return neap.op.batchnorm(neap.zeros({ 2, 2 }, options), neap.zeros({ 2 }),
        neap.zeros({ 2 }), ...)
    end
    for _, eps in ipairs({ 0, -1e-5, 0 / 0, 1 / 0, "1" }) do
      gradcheck.fails("batchnorm", "invalid argument", function() return call(nil, eps) end, "eps")
    end
    gradcheck.fails("batchnorm", "dtype", function() return call({ dtype = "i32" }) end, "i32")
    gradcheck.fails("batchnorm", "invalid argument", function()
      return neap.op.batchnorm(neap.zeros({ 2, 2 }))
    end, "input 2")
  end)
end)

describe("neap.op.batchnorm_inference", function()
  setup(gradcheck.cpu)

  local function with_eps(f)
    return function(x, g, b, m, v) return f(x, g, b, m, v, 1e-3) end
  end

  local function case(x, r)
    local c = { x.dims[2] }
    return {
      name = "batchnorm_inference of " .. shape(x),
      run = with_eps(neap.op.batchnorm_inference),
      reference = with_eps(reference.batchnorm_inference),
      inputs = { x, r.value(c, 0.5, 1), r.value(c), r.value(c), r.value(c, 0.5, 1) },
    }
  end

  it("gives the values and gradients of PyTorch's operations", function()
    gradcheck.matches_torch("batchnorm_inference", function(t, attrs)
      return neap.op.batchnorm_inference(t[1], t[2], t[3], t[4], t[5], attrs[1])
    end)
  end)

  it("agrees with the reference on random shapes, for all five inputs", function()
    gradcheck.many(40, function(r) return case(r.value(r.dims(r.int(2, 5), 3)), r) end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for i, dims in ipairs(numbers.shapes(3)) do
      gradcheck.check(case(wave(dims, 1), numbers.random(i)))
    end
  end)

  it("saves only what the wanted gradients need", function()
    local inputs = { wave({ 4, 3, 5 }, 1) }
    for k = 2, 5 do inputs[k] = wave({ 3 }, k, 0.5, 1) end
    local x, c = 256, 64
    local expected = { ["10000"] = 2 * c, ["01000"] = x + 2 * c, ["00100"] = 0,
      ["00010"] = 2 * c, ["00001"] = x + 3 * c, ["11100"] = x + 3 * c }
    for wants, bytes in pairs(expected) do
      assert.equal(bytes, saved(inputs, wants, neap.op.batchnorm_inference), wants)
    end
  end)

  it("refuses statistics of another length, and a call without them", function()
    for k = 2, 5 do
      local given = { { 5, 2 }, { 2 }, { 2 }, { 2 }, { 2 } }
      given[k] = { 3 }
      gradcheck.fails("batchnorm_inference", "shape mismatch", function()
        local t = {}
        for i, dims in ipairs(given) do t[i] = neap.zeros(dims) end
        return neap.op.batchnorm_inference(unpack(t))
      end, "(5, 2)", "input " .. k, "(3)", "(2)")
    end
    gradcheck.fails("batchnorm_inference", "invalid argument", function()
      return neap.op.batchnorm_inference(neap.zeros({ 2, 2 }), neap.zeros({ 2 }),
        neap.zeros({ 2 }), neap.zeros({ 2 }))
    end, "input 5")
  end)
end)
