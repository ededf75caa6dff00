-- Ops written in Lua.
local neap = require("neap")
local device_module = require("neap.device")
local native = require("neap.ffi")
local failure_of = require("spec.support.failure_of")

local C = native.C

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("neap.op.define", function()
  local device, n_names = nil, 0
  local o = neap.op
  before_each(function() device = neap.device("cpu", { budget = "1GiB" }) end)
  after_each(function()
    jit.flush() -- compiled code may hold on to handles
    collectgarbage()
    collectgarbage()
    assert.equal(0, C.neap_tape_n_nodes(C.neap_tape_selected()))
    assert.equal(0, device:memory().live_bytes)
    device:close()
    neap.device("cpu")
  end)

  -- names are for the life of the process
  local function define(options)
    n_names = n_names + 1
    options.name = ("%s_%d"):format(options.name, n_names)
    return o.define(options), options.name
  end
  local function leaf(...) return neap.tensor({ ... }, nil, { requires_grad = true }) end
  local function sentence(message, ...)
    for _, part in ipairs({ ... }) do
      assert(message:find(part, 1, true), ("'%s' does not say '%s'"):format(message, part))
    end
  end

  local function square_of(spy)
    return define({
      name = "square",
      n_inputs = 1,
      forward = function(save, x)
        save(x)
        return o.multiply(x, x)
      end,
      backward = function(saved, grad)
        if spy then spy(saved, grad) end
        return o.multiply(grad, o.scale(saved[1], 2))
      end,
    })
  end

  alone("runs forward, and backward with what was saved, inside a chain of other ops", function()
    local square, x = square_of(), leaf(1, -2, 3)
    local bits = {}
    for i, f in ipairs({ square, function(a) return o.multiply(a, a) end }) do
      neap.scope(function()
        local y = f(o.scale(f(o.gelu(x)), 3))
        bits[i] = { y:bits() }
        o.mean(o.silu(y)):backward()
        bits[i][2] = x:grad():bits()
        x:zero_grad()
      end)
    end
    assert.same(bits[2][1], bits[1][1])
    for k = 1, 3 do assert.equal(bits[2][2][k], bits[1][2][k]) end
  end)

  alone("keeps saved tensors by the tape, though all handles are freed", function()
    local found
    local square = square_of(function(saved, grad)
      found = { saved[1]:table(), grad:table(), #saved }
    end)
    local x = leaf(1, 2)
    neap.scope(function()
      local loss = neap.scope(function() return o.sum(square(o.scale(x, 2))) end)
      loss:backward()
    end)
    assert.same({ { 2, 4 }, { 1, 1 }, 1 }, found)
    assert.same({ 8, 16 }, x:grad():table())
  end)

  alone("records nothing where no input needs a gradient, and frees what forward made", function()
    local square = square_of()
    neap.scope(function()
      local y = square(neap.tensor({ 3 }))
      assert.equal(9, y:item())
      assert.equal(2, device:memory().n_tensors)
      assert.equal(0, C.neap_tape_n_nodes(C.neap_tape_selected()))
      assert.equal(9, neap.no_grad(square, leaf(3)):item())
      assert.equal(0, C.neap_tape_n_nodes(C.neap_tape_selected()))
    end)
  end)

  alone("gives several outputs; backward gets false where no gradient came", function()
    local seen
    local both = define({
      name = "both",
      n_inputs = 2,
      n_outputs = 2,
      forward = function(_, a, b) return o.add(a, b), o.scale(b, 10) end,
      backward = function(_, first, second)
        seen = { first and first:table(), second and second:table() }
        local b = first and second and o.add(first, o.scale(second, 10)) or first
          or o.scale(second, 10)
        return first or nil, b
      end,
    })
    local x, y = leaf(1), leaf(2)
    local function grads(run)
      neap.scope(function() run(both(x, y)):backward() end)
      local found = { x:grad():item(), y:grad():item() }
      x:zero_grad()
      y:zero_grad()
      return found
    end
    assert.same({ 1, 11 }, grads(function(a, b) return o.sum(o.add(a, b)) end))
    assert.same({ { 1 }, { 1 } }, seen)
    assert.same({ 0, 10 }, grads(function(_, b) return o.sum(b) end))
    assert.same({ false, { 1 } }, seen)
    assert.same({ 1, 1 }, grads(function(a) return o.sum(a) end))
  end)

  alone("may give one gradient twice, or its own grad on", function()
    local sum = define({
      name = "plus",
      n_inputs = 2,
      forward = function(_, a, b) return o.add(a, b) end,
      backward = function(_, grad) return grad, grad end,
    })
    local x, y = leaf(1, 2), leaf(3, 4)
    neap.scope(function()
      local a = o.scale(x, 2)
      o.sum(o.multiply(sum(a, y), sum(a, a))):backward()
    end)
    -- (2x + y) * 4x
    assert.same({ 16 + 12, 32 + 16 }, x:grad():table())
    assert.same({ 4, 8 }, y:grad():table())
  end)

  alone("names itself when forward or backward raises, leaves tape and memory alone", function()
    local place
    local null = neap.device("null", { budget = 4096 })
    device_module.make_current(device)
    local bad, name = define({
      name = "bad",
      n_inputs = 1,
      forward = function(save, x)
        save(x)
        if place == "forward" then error("boom " .. place, 0) end
        return o.scale(x, 2)
      end,
      backward = function(_, grad)
        local made = o.scale(grad, 2)
        if place == "backward" then error({ "a table" }) end
        if place == "shape" then return neap.zeros({ 7 }) end
        if place == "device" then return neap.zeros({ 2 }, { device = null }) end
        if place == "type" then return 5 end
        return made
      end,
    })
    local x = leaf(1, 2)
    for _, case in ipairs({ { "forward", "error" }, { "backward", "error" },
      { "shape", "shape mismatch" }, { "device", "device" }, { "type", "invalid argument" } }) do
      local tape, live = C.neap_tape_selected(), device:memory().live_bytes
      place = case[1]
      local message = failure_of(case[2], neap.scope, function()
        o.sum(o.gelu(bad(o.scale(x, 1)))):backward()
      end)
      if case[2] == "error" then
        sentence(message, name, place == "forward" and "boom" or "backward")
      end
      assert.equal(tape, C.neap_tape_selected())
      assert.same({ 0, 0 }, { C.neap_tape_n_nodes(tape), C.neap_scope_depth() })
      assert.equal(live, device:memory().live_bytes)
    end
    null:close()
    place = nil
    x:zero_grad()
    neap.scope(function() o.sum(bad(x)):backward() end)
    assert.same({ 2, 2 }, x:grad():table())
  end)

  alone("finds a saved tensor that was written in place", function()
    local square, name = square_of()
    local x = leaf(1, 2)
    neap.scope(function()
      local y = o.scale(x, 1)
      local loss = o.sum(square(y))
      y:fill(4)
      sentence(failure_of("modified in place", loss.backward, loss), name, "tensor 1")
    end)
  end)

  alone("is refused with wrong options, names and counts", function()
    local function nothing() end
    local good = { name = "good_name", n_inputs = 1, forward = nothing, backward = nothing }
    local function with(changes)
      local options = {}
      for key, value in pairs(good) do options[key] = value end
      for key, value in pairs(changes) do options[key] = value end
      return options
    end
    sentence(failure_of("usage", o.define, with({ forwards = nothing })), "did you mean 'forward'?")
    sentence(failure_of("usage", o.define, with({ backward = "x" })), "good_name", "backward")
    failure_of("duplicate", o.define, with({ name = "gelu" }))
    failure_of("invalid argument", o.define, with({ name = "" }))
    failure_of("invalid argument", o.define, with({ name = ("x"):rep(101) }))
    for _, n in ipairs({ 0, -1, 7, 100 }) do
      failure_of("invalid argument", o.define, with({ n_inputs = n }))
    end
    for _, n in ipairs({ 0, 5 }) do
      failure_of("invalid argument", o.define, with({ n_outputs = n }))
    end
    assert.equal(C.NEAP_ERR_NOT_FOUND, C.neap_op_find("good_name"))
  end)

  alone("refuses a wrong number of inputs and outputs, and what is no tensor", function()
    local result
    local give, name = define({
      name = "give",
      n_inputs = 2,
      forward = function() return result end,
      backward = function() end,
    })
    local x = leaf(1)
    sentence(failure_of("invalid argument", give, x), name, "expected 2 inputs, found 1")
    sentence(failure_of("invalid argument", give, x, x), name, "returned 0 tensors, expected 1")
    for _, bad in ipairs({ 5, "x", {}, true }) do
      result = bad
      sentence(failure_of("invalid argument", give, x, x), name, "expected a tensor")
    end
    result = x
    sentence(failure_of("graph", give, x, x), "returns new tensors")
    result = nil
    neap.scope(function()
      result = neap.zeros({ 1 })
      failure_of("invalid argument", give, x, 5)
    end)
  end)
end)
