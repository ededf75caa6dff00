-- Random programs of many ops: what one op leaves behind must never disturb another.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local reference = require("spec.support.reference")

-- each op takes one value of (3, 4), or two, or one and the weights, and gives another

local OPS = {
  { "gelu", function(o, x) return o.gelu(x) end },
  { "silu", function(o, x) return o.silu(x) end },
  { "scale", function(o, x) return o.scale(x, -0.75) end },
  { "add", function(o, x, y) return o.add(x, y) end },
  { "add of one", function(o, x) return o.add(x, x) end },
  { "add of a row", function(o, x, _, w) return o.add(x, w.bias) end },
  { "multiply", function(o, x, y) return o.scale(o.multiply(x, y), 0.5) end },
  { "square", function(o, x) return o.scale(o.multiply(x, x), 0.5) end },
  { "multiply by a row", function(o, x, _, w) return o.multiply(x, w.gain) end },
  { "layernorm", function(o, x, _, w) return o.layernorm(x, w.gain, w.bias, 0.1) end },
  { "rmsnorm", function(o, x, _, w) return o.rmsnorm(x, w.gain, 0.1) end },
  { "linear", function(o, x, _, w) return o.linear(x, w.matrix, w.bias) end },
  { "matmul", function(o, x, y) return o.scale(o.matmul(o.matmul(x, y, false, true), x), 0.2) end },
  { "transpose", function(o, x) return o.transpose(o.gelu(o.transpose(x))) end },
  { "reshape", function(o, x) return o.reshape(o.silu(o.reshape(x, { 2, 6 })), { 3, 4 }) end },
  { "narrow", function(o, x) return o.add(x, o.reshape(o.narrow(x, 2, 1), { 4 })) end },
  { "attention", function(o, x, _, w)
    local y = o.attention(o.reshape(o.linear(x, w.packed), { 1, 3, 12 }), 2, true)
    return o.reshape(y, { 3, 4 })
  end },
  { "sum", function(o, x) return o.add(x, o.sum(x, 1)) end },
  { "mean", function(o, x) return o.multiply(x, o.mean(x)) end },
}

-- the reference's views, which the op table above calls by neap's names
local function reference_ops()
  local ops = setmetatable({}, { __index = reference })
  function ops.reshape(x, dims) return reference.value({ unpack(dims) }, x.data) end
  function ops.narrow(x) return reference.value({ 1, 4 }, { unpack(x.data, 5, 8) }) end
  return ops
end

describe("a program of random ops", function()
  setup(gradcheck.cpu)

  -- picks are made once, so that both sides run the same program
  local function program(r, length)
    local steps = {}
    for i = 1, length do
      -- the last values more often, so that chains get long
      steps[i] = { OPS[r.int(1, #OPS)][2], math.max(1, i - r.int(0, 2)), r.int(1, i) }
    end
    return function(ops, x, gain, bias, matrix, packed)
      local weights = { gain = gain, bias = bias, matrix = matrix, packed = packed }
      local values = { x }
      for i, step in ipairs(steps) do
        local y = step[1](ops, values[step[2]], values[step[3]], weights)
        -- keeps sizes near 1 whatever the program multiplies
        values[i + 1] = ops.rmsnorm(y, gain, 0.5)
      end
      return ops.add(values[length + 1], values[math.ceil(length / 2)])
    end
  end

  for length = 5, 30, 5 do
    it(("of %d steps has the gradients of central differences"):format(length), function()
      gradcheck.many(20, function(r, i)
        local run, plain = program(r, length), reference_ops()
        return {
          name = ("program %d of %d steps"):format(i, length),
          run = function(...) return run(neap.op, ...) end,
          reference = function(...) return run(plain, ...) end,
          inputs = {
            r.value({ 3, 4 }), r.value({ 4 }, 0.3, 1), r.value({ 4 }), r.value({ 4, 4 }, 0.6),
            r.value({ 12, 4 }, 0.6),
          },
          -- rounding adds up over the steps
          forward_tolerance = 2e-6 * length,
          tolerance = 2e-5 * length,
        }
      end)
    end)
  end
end)
