-- The AdamW kernel, by its numbers in PyTorch and in the reference.
local neap = require("neap")
local native = require("neap.ffi")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap_adamw", function()
  setup(gradcheck.cpu)

  local C = native.C

  local function apply(t, o)
    return C.neap_adamw(t.param.id, t.grad.id, t.m.id, t.v.id,
      o.lr, o.beta1, o.beta2, o.eps, o.decay, o.step, o.grad_scale or 1)
  end

  -- param and its states of dims; a step with the gradient of k
  local function optimizer(dims, k)
    local t = { param = gradcheck.tensor(numbers.wave(dims, k)) }
    t.m, t.v = neap.zeros(dims), neap.zeros(dims)
    function t.step(grad, o)
      t.grad = gradcheck.tensor(grad)
      native.check(apply(t, o))
    end
    return t
  end

  local usual = { lr = 1e-2, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1 }
  local function options(changes)
    local o = {}
    for name, v in pairs(usual) do o[name] = v end
    for name, v in pairs(changes) do o[name] = v end
    return o
  end

  it("gives PyTorch's parameters after each step", function()
    local n = 0
    for _, row in ipairs(gradcheck.torch().optimizers) do
      if row.optimizer == "adamw" then
        n = n + 1
        neap.scope(function()
          local t = optimizer(row.dims, row.k)
          for step, after in ipairs(row.after) do
            row.hyper.step = step
            t.step(numbers.wave(row.dims, step), row.hyper)
            numbers.close("step " .. step, after, t.param:table(), 1e-6)
          end
        end)
      end
    end
    assert.equal(2, n)
  end)

  it("agrees with the reference for each length around a vector's width", function()
    for length = 0, 67 do
      neap.scope(function()
        local param = numbers.wave({ length }, 3)
        local state = { m = reference.value({ length }).data, v = reference.value({ length }).data }
        local t = optimizer({ length }, 3)
        for step = 1, 3 do
          local grad, o = numbers.wave({ length }, step), options({ step = step, grad_scale = 0.5 })
          reference.adamw(param.data, grad.data, state, o)
          t.step(grad, o)
        end
        numbers.close("parameters", param.data, t.param:table(), 1e-6)
        numbers.close("m", state.m, t.m:table(), 1e-6)
        numbers.close("v", state.v, t.v:table(), 1e-6)
      end)
    end
  end)

  it("stays exact after a hundred thousand steps, where 1 - beta ^ step is 1", function()
    neap.scope(function()
      local param, state = numbers.wave({ 5 }, 3), { m = { 0, 0, 0, 0, 0 }, v = { 0, 0, 0, 0, 0 } }
      local grad, o = numbers.wave({ 5 }, 1), options({ step = 100000 })
      local t = optimizer({ 5 }, 3)
      reference.adamw(param.data, grad.data, state, o)
      t.step(grad, o)
      numbers.close("parameters", param.data, t.param:table(), 1e-6)
    end)
  end)

  it("scales the gradient first", function()
    neap.scope(function()
      local scaled, halved = optimizer({ 9 }, 2), optimizer({ 9 }, 2)
      local grad = numbers.wave({ 9 }, 1)
      scaled.step(grad, options({ step = 1, grad_scale = 0.5 }))
      halved.step(reference.scale(grad, 0.5), options({ step = 1 }))
      numbers.same("parameters", halved.param:bits(), scaled.param:bits())
      numbers.same("v", halved.v:bits(), scaled.v:bits())
    end)
  end)

  it("only decays where there is no gradient", function()
    neap.scope(function()
      local t = optimizer({ 4 }, 2)
      local before = t.param:table()
      t.step(reference.value({ 4 }), options({ step = 1 }))
      for i, v in ipairs(before) do before[i] = v * (1 - 1e-2 * 0.1) end
      numbers.close("parameters", before, t.param:table(), 1e-7)
    end)
  end)

  it("leaves the gradient's bits and raises the versions of what it writes", function()
    neap.scope(function()
      local t = optimizer({ 6 }, 2)
      local grad = numbers.wave({ 6 }, 1)
      local before = {}
      for _, name in ipairs({ "param", "m", "v" }) do
        before[name] = C.neap_tensor_version(t[name].id)
      end
      t.step(grad, options({ step = 1 }))
      assert.same(grad.data, t.grad:table())
      for name, version in pairs(before) do assert(C.neap_tensor_version(t[name].id) > version) end
    end)
  end)

  it("refuses tensors of other shapes, leaving every bit", function()
    neap.scope(function()
      for _, name in ipairs({ "grad", "m", "v" }) do
        local t = optimizer({ 4 }, 2)
        t.grad = gradcheck.tensor(numbers.wave({ 4 }, 1))
        t[name] = neap.zeros({ 5 })
        local before = t.param:bits()
        assert.equal(C.NEAP_ERR_SHAPE, apply(t, options({ step = 1 })))
        assert(native.ffi.string(C.neap_last_error()):find("adamw", 1, true))
        numbers.same("parameters", before, t.param:bits())
      end
    end)
  end)

  it("refuses integers, stale handles and steps below 1", function()
    neap.scope(function()
      local t = optimizer({ 4 }, 2)
      t.grad = gradcheck.tensor({ dims = { 4 }, data = { 1, 2, 3, 4 }, dtype = "i32" })
      assert(apply(t, options({ step = 1 })) < 0)
      assert(native.ffi.string(C.neap_last_error()):find("adamw: .*i32"))
      t.grad = gradcheck.tensor(numbers.wave({ 4 }, 1))
      for _, step in ipairs({ 0, -1, 0 / 0 }) do
        assert.equal(C.NEAP_ERR_INVALID, apply(t, options({ step = step })))
      end
      t.grad:free()
      assert.equal(C.NEAP_ERR_STALE, apply(t, options({ step = 1 })))
    end)
  end)
end)
