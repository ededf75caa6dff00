-- neap.optim.AdamW: options, state, which parameters decay; and the norm of all gradients.
local neap = require("neap")
local native = require("neap.ffi")
local failure_of = require("spec.support.failure_of")

local C = native.C

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("neap.optim.AdamW", function()
  local device
  before_each(function() device = neap.device("cpu", { budget = "1GiB" }) end)
  after_each(function()
    jit.flush() -- compiled code may hold on to handles
    collectgarbage()
    collectgarbage()
    assert.equal(0, device:memory().live_bytes)
    device:close()
    neap.device("cpu")
  end)

  local function parameters()
    local list = {}
    for i, dims in ipairs({ { 2, 3 }, { 3 }, { 2, 1, 2 }, {} }) do
      list[i] = { name = "p" .. i, tensor = neap.nn.parameter(dims, { fill = i }) }
    end
    return list
  end

  alone("decays matrices, and neither vectors nor scalars", function()
    local list = parameters()
    local optimizer = neap.optim.AdamW(list, { weight_decay = 0.5 })
    optimizer:step(0.1)
    -- the gradients are 0: nothing but the decay moves them
    local expected = { 1 * 0.95, 2, 3 * 0.95, 4 }
    for i, p in ipairs(list) do assert(math.abs(p.tensor:table()[1] - expected[i]) < 1e-6) end
    assert.equal(1, optimizer.steps)
  end)

  alone("moves each number by lr against its gradient at first, whatever its size", function()
    local list = parameters()
    local optimizer = neap.optim.AdamW(list, { weight_decay = 0 })
    for i, p in ipairs(list) do p.tensor:grad():fill(i % 2 == 0 and -1e-3 or 1e3) end
    optimizer:step(0.01)
    for i, p in ipairs(list) do
      assert(math.abs(p.tensor:table()[1] - (i + (i % 2 == 0 and 0.01 or -0.01))) < 1e-5)
    end
  end)

  alone("scales gradients by what clipping says", function()
    local function after(scale, factor)
      neap.manual_seed(2)
      local p = neap.nn.parameter({ 5 }, { normal = 1 })
      local optimizer = neap.optim.AdamW({ { name = "p", tensor = p } }, { eps = 1e-2 })
      for step = 1, 3 do
        p:grad():fill(0.03 * step * factor)
        optimizer:step(0.1, scale)
      end
      return p:bits()
    end
    assert.same(after(nil, 1), after(1, 1))
    assert.same(after(nil, 0.5), after(0.5, 1))
    assert.are_not.same(after(nil, 1), after(0.5, 1))
  end)

  alone("uses its options", function()
    local function after(options)
      local p = neap.nn.parameter({ 2, 2 }, { fill = 1 })
      local optimizer = neap.optim.AdamW({ { name = "p", tensor = p } }, options)
      for step = 1, 3 do
        p:grad():fill(step % 2 - 0.3)
        optimizer:step(0.1)
      end
      return p:table()[1]
    end
    assert.equal(after(), after({}))
    assert.equal(after(), after({ betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0.01 }))
    local seen, n = { [after()] = true }, 1
    for _, options in ipairs({ { betas = { 0.5, 0.999 } }, { betas = { 0.9, 0.5 } }, { eps = 0.1 },
      { weight_decay = 0.2 } }) do
      local found = after(options)
      if not seen[found] then n = n + 1 end
      seen[found] = true
    end
    assert.equal(5, n)
  end)

  alone("names the nearest of an unknown option, and the type that was expected", function()
    local function refused(options, ...)
      local message = failure_of("usage", neap.optim.AdamW, {}, options)
      for _, part in ipairs({ "AdamW: ", ... }) do
        assert(message:find(part, 1, true), ("'%s' does not say '%s'"):format(message, part))
      end
    end
    refused({ weight_decai = 1 }, "did you mean 'weight_decay'?",
      "allowed: betas, eps, weight_decay")
    refused({ lr = 1 }, "unknown option 'lr'")
    refused({ eps = "small" }, "eps must be a number, found string")
    refused({ betas = 0.9 }, "betas must be a table, found number")
  end)

  alone("keeps two moments a parameter, counted as optimizer's, in no scope, by name", function()
    local list, optimizer = parameters(), nil
    neap.scope(function() optimizer = neap.optim.AdamW(list) end)
    local memory = device:memory()
    assert.same({ 4 * 64, 4 * 64, 8 * 64 },
      { memory.tags.parameters, memory.tags.gradients, memory.tags.optimizer })
    local names = {}
    for i, t in ipairs(optimizer:tensors()) do
      names[i] = t.name
      assert.equal(C.NEAP_TAG_OPTIMIZER, C.neap_tensor_tag(t.tensor.id))
      for _, v in ipairs(t.tensor:table()) do assert.equal(0, v) end
    end
    assert.same({ "p1.m", "p1.v", "p2.m", "p2.v", "p3.m", "p3.v", "p4.m", "p4.v" }, names)
    optimizer:free()
    assert.equal(0, device:memory().tags.optimizer)
    failure_of("stale handle", optimizer.step, optimizer, 0.1)
  end)

  alone("refuses a rate that is no finite number", function()
    local list = parameters()
    local optimizer = neap.optim.AdamW(list)
    for _, bad in ipairs({ 0 / 0, math.huge }) do
      failure_of("invalid argument", optimizer.step, optimizer, bad)
      failure_of("invalid argument", optimizer.step, optimizer, 0.1, bad)
    end
    assert.has_error(function() optimizer:step(nil) end)
    assert.equal(1, list[1].tensor:table()[1])
  end)

  alone("has beside it the norm of all gradients", function()
    local list = parameters()
    local norm = neap.optim.grad_norm(list)
    assert.equal(0, norm:measure())
    for i, p in ipairs(list) do p.tensor:grad():fill(i) end
    -- 6 of 1, 3 of 2, 4 of 3, 1 of 4
    assert(math.abs(norm:measure() - math.sqrt(6 + 12 + 36 + 16)) < 1e-9)
    assert.equal(0, neap.optim.grad_norm({}):measure())
    list[2].tensor:free()
    failure_of("stale handle", norm.measure, norm)
  end)
end)
