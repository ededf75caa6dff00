-- The SGD kernel, by its numbers in PyTorch and in the reference.
local neap = require("neap")
local native = require("neap.ffi")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap_sgd", function()
  setup(gradcheck.cpu)

  local C = native.C

  local function apply(t, o)
    return C.neap_sgd(t.param.id, t.grad.id, t.velocity and t.velocity.id or 0, o.lr, o.momentum,
      o.decay, o.grad_scale or 1)
  end

  local function optimizer(dims, k, momentum)
    local t = { param = gradcheck.tensor(numbers.wave(dims, k)) }
    t.velocity = momentum ~= 0 and neap.zeros(dims) or nil
    function t.step(grad, o)
      t.grad = gradcheck.tensor(grad)
      native.check(apply(t, o))
    end
    return t
  end

  it("gives PyTorch's parameters after each step", function()
    local n = 0
    for _, row in ipairs(gradcheck.torch().optimizers) do
      if row.optimizer == "sgd" then
        n = n + 1
        neap.scope(function()
          local t = optimizer(row.dims, row.k, row.hyper.momentum)
          for step, after in ipairs(row.after) do
            t.step(numbers.wave(row.dims, step), row.hyper)
            numbers.close("step " .. step, after, t.param:table(), 1e-6)
          end
        end)
      end
    end
    assert.equal(3, n)
  end)

  it("agrees with the reference for each length around a vector's width", function()
    for length = 0, 67 do
      for _, momentum in ipairs({ 0, 0.9 }) do
        neap.scope(function()
          local param, velocity = numbers.wave({ length }, 3), reference.value({ length }).data
          local t = optimizer({ length }, 3, momentum)
          local o = { lr = 0.1, momentum = momentum, decay = 0.01, grad_scale = 0.5 }
          for step = 1, 3 do
            local grad = numbers.wave({ length }, step)
            reference.sgd(param.data, grad.data, velocity, o)
            t.step(grad, o)
          end
          numbers.close("parameters", param.data, t.param:table(), 1e-6)
          if t.velocity then numbers.close("velocity", velocity, t.velocity:table(), 1e-6) end
        end)
      end
    end
  end)

  it("scales the gradient but not the decay", function()
    neap.scope(function()
      local t = optimizer({ 4 }, 2, 0)
      local before = t.param:table()
      t.step(numbers.wave({ 4 }, 1), { lr = 0.1, momentum = 0, decay = 0.5, grad_scale = 0 })
      for i, v in ipairs(before) do before[i] = v * (1 - 0.1 * 0.5) end
      numbers.close("parameters", before, t.param:table(), 1e-7)
    end)
  end)

  it("raises the versions of what it writes and leaves the gradient", function()
    neap.scope(function()
      local t = optimizer({ 6 }, 2, 0.9)
      local grad = numbers.wave({ 6 }, 1)
      local param = C.neap_tensor_version(t.param.id)
      local velocity = C.neap_tensor_version(t.velocity.id)
      t.step(grad, { lr = 0.1, momentum = 0.9, decay = 0 })
      assert.same(grad.data, t.grad:table())
      assert(C.neap_tensor_version(t.param.id) > param)
      assert(C.neap_tensor_version(t.velocity.id) > velocity)
    end)
  end)

  it("refuses tensors of other shapes, integers and stale handles, leaving every bit", function()
    neap.scope(function()
      local o = { lr = 0.1, momentum = 0.9, decay = 0 }
      local t = optimizer({ 4 }, 2, 0.9)
      local before = t.param:bits()
      t.grad = neap.zeros({ 5 })
      assert.equal(C.NEAP_ERR_SHAPE, apply(t, o))
      assert(native.ffi.string(C.neap_last_error()):find("sgd", 1, true))
      t.grad, t.velocity = neap.zeros({ 4 }), neap.zeros({ 2, 2 })
      assert.equal(C.NEAP_ERR_SHAPE, apply(t, o))
      t.velocity = neap.zeros({ 4 })
      t.grad = gradcheck.tensor({ dims = { 4 }, data = { 1, 2, 3, 4 }, dtype = "i32" })
      assert(apply(t, o) < 0)
      assert(native.ffi.string(C.neap_last_error()):find("sgd: .*i32"))
      t.grad = neap.zeros({ 4 })
      t.grad:free()
      assert.equal(C.NEAP_ERR_STALE, apply(t, o))
      numbers.same("parameters", before, t.param:bits())
    end)
  end)
end)
