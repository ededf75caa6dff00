-- neap.optim.SGD: options, state, which parameters decay.
local neap = require("neap")
local failure_of = require("spec.support.failure_of")

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("neap.optim.SGD", function()
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
    return {
      { name = "matrix", tensor = neap.nn.parameter({ 2, 2 }, { fill = 1 }) },
      { name = "vector", tensor = neap.nn.parameter({ 3 }, { fill = 1 }) },
    }
  end
  local function run(options, grads)
    local list = parameters()
    local optimizer = neap.optim.SGD(list, options)
    for _, g in ipairs(grads) do
      for _, p in ipairs(list) do p.tensor:grad():fill(g) end
      optimizer:step(0.1)
    end
    assert.equal(#grads, optimizer.steps)
    return { list[1].tensor:table()[4], list[2].tensor:table()[3] }
  end
  local function close(expected, found)
    for i, v in ipairs(expected) do assert(math.abs(v - found[i]) < 1e-6, found[i]) end
  end

  alone("walks against the gradient", function()
    close({ 1 - 0.1 * 2 + 0.1 * 3, 1 + 0.1 }, run(nil, { 2, -3 }))
  end)

  alone("keeps a velocity: v = momentum v + g", function()
    -- v: 1, 1.5, 0.75 + 4
    close({ 1 - 0.1 * (1 + 1.5 + 4.75), 1 - 0.725 }, run({ momentum = 0.5 }, { 1, 1, 4 }))
  end)

  alone("decays matrices, no vectors", function()
    close({ 1 - 0.1 * 0.5, 1 }, run({ weight_decay = 0.5 }, { 0 }))
  end)

  alone("holds a state only where there is momentum", function()
    local list = parameters()
    local plain = neap.optim.SGD(list)
    assert.same({}, plain:tensors())
    assert.equal(0, device:memory().tags.optimizer)
    local heavy = neap.optim.SGD(list, { momentum = 0.9 })
    assert.equal(128, device:memory().tags.optimizer)
    local names = {}
    for i, t in ipairs(heavy:tensors()) do names[i] = t.name end
    assert.same({ "matrix.velocity", "vector.velocity" }, names)
    heavy:free()
    plain:free()
    assert.equal(0, device:memory().tags.optimizer)
  end)

  alone("scales gradients, refuses unknown options and rates that are none", function()
    local list = parameters()
    local optimizer = neap.optim.SGD(list)
    list[1].tensor:grad():fill(4)
    optimizer:step(0.1, 0.5)
    close({ 0.8 }, list[1].tensor:table())
    local message = failure_of("usage", neap.optim.SGD, list, { momentun = 0.9 })
    assert(message:find("unknown option 'momentun', did you mean 'momentum'?", 1, true), message)
    failure_of("usage", neap.optim.SGD, list, { momentum = true })
    for _, bad in ipairs({ 0 / 0, -math.huge }) do
      failure_of("invalid argument", optimizer.step, optimizer, bad)
    end
    close({ 0.8 }, list[1].tensor:table())
  end)
end)
