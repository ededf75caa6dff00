-- Checks of one op: neap's f32 outputs and gradients against the f64 reference and PyTorch.
local assert = require("luassert")
local json = require("dkjson")
local neap = require("neap")
local fail = require("neap.fail")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

local M = {}

-- f32 keeps 6e-8 of a value. Sums here have at most a few hundred terms of one size, so 3e-6 of the
-- largest output and 2e-5 of the largest gradient leave room for rounding and for nothing else:
-- central differences in f64 (step 1e-4) are off by 1e-8.
local FORWARD_TOLERANCE, GRADIENT_TOLERANCE, STEP = 3e-6, 2e-5, 1e-4

local device
--- Opens the cpu with one thread and makes it the default device.
function M.cpu()
  device = neap.device("cpu")
  -- tensors that others left to the collector must not vanish while a check counts
  collectgarbage()
  collectgarbage()
  neap.threads(1)
  return device
end

--- A tensor of a value.
function M.tensor(value, requires_grad)
  return neap.tensor(value.data, value.dims, { dtype = value.dtype, requires_grad = requires_grad })
end

local function wants(input) return input.dtype ~= "i32" and not input.fixed end

local function dot(y, cotangent)
  local sum = 0
  for i = 1, #y.data do sum = sum + y.data[i] * cotangent.data[i] end
  return sum
end

-- d loss(values) / d input k by central differences, at each element
local function differences(loss, values, k)
  local data, gradient = values[k].data, {}
  for i = 1, #data do
    local x = data[i]
    data[i] = x + STEP
    local above = loss(unpack(values))
    data[i] = x - STEP
    local below = loss(unpack(values))
    data[i] = x
    gradient[i] = (above - below) / (2 * STEP)
  end
  return gradient
end

-- leaves NaN in the memory that the next tensors get, for whoever reads before writing
local function poison()
  neap.scope(function() neap.full({ 65536 }, 0 / 0) end)
end

-- forward, backward n times; keep names the only input that wants a gradient (nil: all that may)
local function run(case, cotangent, n, keep, forward)
  poison()
  return neap.scope(function()
    local tensors, result = {}, { grads = {}, bits = {} }
    for k, input in ipairs(case.inputs) do
      tensors[k] = M.tensor(input, wants(input) and (keep == nil or keep == k) or nil)
    end
    for _ = 1, n do
      local y = forward(tensors)
      result.dims, result.output, result.output_bits = y:dims(), y:table(), y:bits()
      neap.op.sum(neap.op.multiply(y, M.tensor(cotangent))):backward()
    end
    for k, input in ipairs(case.inputs) do
      if wants(input) and (keep == nil or keep == k) then
        local grad = tensors[k]:grad()
        assert.same(input.dims, grad:dims())
        result.grads[k], result.bits[k] = grad:table(), grad:bits()
      end
    end
    return result
  end)
end

local function plain(case)
  return function(tensors) return case.run(unpack(tensors)) end
end

-- the op twice over inputs that are no leaves, the product of both: gradients meet in each input,
-- and nothing may be overwritten while the other branch still needs it
local function twice(case)
  return function(tensors)
    local inner = {}
    for k, input in ipairs(case.inputs) do
      inner[k] = wants(input) and neap.op.scale(tensors[k], 1) or tensors[k]
    end
    return neap.op.multiply(case.run(unpack(inner)), case.run(unpack(inner)))
  end
end

local function compare_gradients(case, what, loss, found)
  local expected, largest = {}, 0
  for k, input in ipairs(case.inputs) do
    if wants(input) then
      expected[k] = differences(loss, case.inputs, k)
      for _, g in ipairs(expected[k]) do largest = math.max(largest, math.abs(g)) end
    end
  end
  -- a gradient that cancels to nothing is as exact as its terms, no better
  for k, gradient in pairs(expected) do
    numbers.close(("%s: %s of input %d"):format(case.name, what, k), gradient, found[k],
      case.tolerance or GRADIENT_TOLERANCE, math.max(case.scale or 0, 0.1 * largest))
  end
end

--- Checks one op on one set of inputs: values, gradients, repeats, accumulation, each input alone,
--- fan-out, and that no tensor is left.
--- case = { name, run = function(tensors...), reference = function(values...), inputs = values };
--- an input with dtype "i32" or fixed = true gets no gradient. Where results are small differences
--- of terms, scale is the size of those; tolerance and forward_tolerance replace the usual ones.
function M.check(case)
  local expected = case.reference(unpack(case.inputs))
  local cotangent = numbers.wave(expected.dims, 11)
  local function loss(...) return dot(case.reference(...), cotangent) end
  local before = device:memory()

  local first = run(case, cotangent, 1, nil, plain(case))
  assert.same(expected.dims, first.dims)
  numbers.close(case.name .. ": output", expected.data, first.output,
    case.forward_tolerance or FORWARD_TOLERANCE, case.scale)
  compare_gradients(case, "gradient", loss, first.grads)

  local again = run(case, cotangent, 1, nil, plain(case))
  numbers.same(case.name .. ": output again", first.output_bits, again.output_bits)
  local doubled = run(case, cotangent, 2, nil, plain(case))
  for k, bits in pairs(first.bits) do
    numbers.same(("%s: gradient %d again"):format(case.name, k), bits, again.bits[k])
    local sum = {}
    for i, g in ipairs(first.grads[k]) do sum[i] = 2 * g end
    numbers.close(("%s: gradient %d of two backwards"):format(case.name, k), sum,
      doubled.grads[k], FORWARD_TOLERANCE, 0.1)
    local alone = run(case, cotangent, 1, k, plain(case))
    numbers.same(("%s: gradient %d alone"):format(case.name, k), bits, alone.bits[k])
  end

  local both = run(case, cotangent, 1, nil, twice(case))
  compare_gradients(case, "gradient of the square", function(...)
    local y = case.reference(...)
    return dot(reference.multiply(y, y), cotangent)
  end, both.grads)
  local after = device:memory()
  assert.equal(before.n_tensors, after.n_tensors)
  assert.equal(before.live_bytes, after.live_bytes)
end

--- n random cases: make(random, i) gives one.
function M.many(n, make)
  for i = 1, n do M.check(make(numbers.random(i), i)) end
end

local torch
--- What spec/support/torch_values.py wrote.
function M.torch()
  if not torch then
    local file = assert(io.open("spec/vectors/torch_ops.json"))
    torch = json.decode(file:read("*a"))
    file:close()
  end
  return torch
end

--- Compares an op with PyTorch's rows for it: call(tensors, attrs) runs neap's.
function M.matches_torch(op, call)
  local n = 0
  for _, row in ipairs(M.torch().ops) do
    if row.op == op then
      n = n + 1
      local inputs = {}
      for k, input in ipairs(row.inputs) do
        inputs[k] = input.ids and { dims = input.dims, data = input.ids, dtype = "i32" }
          or numbers.wave(input.dims, input.k, input.scale, input.offset)
      end
      local name = ("%s, PyTorch's row %d"):format(op, n)
      local cotangent = numbers.wave(row.output_dims, torch.cotangent_k)
      local found = run({ name = name, inputs = inputs }, cotangent, 1, nil, function(tensors)
        return call(tensors, row.attrs)
      end)
      assert.same(row.output_dims, found.dims)
      numbers.close(name, row.output, found.output, FORWARD_TOLERANCE)
      for k, grad in pairs(found.grads) do
        numbers.close(name .. ", gradient " .. k, row.grads[k], grad, GRADIENT_TOLERANCE)
      end
    end
  end
  assert(n > 0, "no row of PyTorch for " .. op)
end

--- fn fails with one clear sentence that names the op (and each further word), leaving no tensor.
function M.fails(op, kind, fn, ...)
  local before = device:memory()
  local ok, err = pcall(neap.scope, fn)
  assert(not ok, op .. ": no error")
  local message = fail.message(err)
  assert(fail.is(err), op .. ": not a Failure: " .. tostring(err))
  assert.equal(kind, err.kind)
  for _, word in ipairs({ op, ... }) do
    assert(message:find(word, 1, true), ("'%s' does not say '%s'"):format(message, word))
  end
  assert(not message:find("\n") and not message:find("%.lua:%d") and #message < 200, message)
  local after = device:memory()
  assert.equal(before.n_tensors, after.n_tensors)
  assert.equal(before.live_bytes, after.live_bytes)
end

return M
