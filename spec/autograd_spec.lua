-- Recording and walking back, as scripts see it.
local neap = require("neap")
local native = require("neap.ffi")
local failure_of = require("spec.support.failure_of")

local C = native.C

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("autograd", function()
  local device
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

  local function leaf(...) return neap.tensor({ ... }, nil, { requires_grad = true }) end
  local function nodes() return C.neap_tape_n_nodes(C.neap_tape_selected()) end
  local function sentence(message, ...)
    for _, part in ipairs({ ... }) do
      assert(message:find(part, 1, true), ("'%s' does not say '%s'"):format(message, part))
    end
  end

  alone("gives leaves the gradient of the loss, added up over backwards", function()
    local x, w = leaf(1, 2), leaf(3, 4)
    for n = 1, 3 do
      neap.scope(function() o.sum(o.multiply(x, w)):backward() end)
      assert.same({ 3 * n, 4 * n }, x:grad():table())
      assert.same({ 1 * n, 2 * n }, w:grad():table())
    end
    x:zero_grad()
    assert.same({ 0, 0 }, x:grad():table())
    assert.same({ 3, 6 }, w:grad():table())
  end)

  alone("may begin at a leaf: its own gradient is 1", function()
    local x = neap.tensor({ 5 }, {}, { requires_grad = true })
    x:backward()
    x:backward()
    assert.equal(2, x:grad():item())
  end)

  alone("adds up where a value goes several ways", function()
    local x = leaf(1, -2)
    neap.scope(function()
      local y = o.scale(x, 2)
      local z = o.add(o.add(o.scale(y, 3), y), o.multiply(y, x))
      -- z = 3 y + y + y x = 8 x + 2 x^2
      o.sum(z):backward()
    end)
    assert.same({ 8 + 4, 8 - 8 }, x:grad():table())
  end)

  alone("counts an input twice that an op takes twice, leaf or not", function()
    local calls = {
      add = { function(a) return o.add(a, a) end, { 2, 2, 2, 2 } },
      multiply = { function(a) return o.multiply(a, a) end, { 2, 4, 6, 8 } },
      -- d sum(A A) / dA = 1 A^T + A^T 1
      matmul = { function(a) return o.matmul(a, a) end, { 7, 11, 9, 13 } },
    }
    for name, call in pairs(calls) do
      neap.scope(function()
        local x = neap.tensor({ 1, 2, 3, 4 }, { 2, 2 }, { requires_grad = true })
        o.sum(call[1](x)):backward()
        assert.same(call[2], x:grad():table(), name)
        x:zero_grad()
        o.sum(call[1](o.scale(x, 1))):backward()
        assert.same(call[2], x:grad():table(), name .. " of a value")
      end)
    end
  end)

  alone("goes through views: rows of a narrow, the shape of a reshape", function()
    local x = neap.tensor({ 1, 2, 3, 4, 5, 6 }, { 3, 2 }, { requires_grad = true })
    neap.scope(function()
      local y = o.scale(x, 1)
      local rows = o.narrow(y, 2, 1)
      local weights = neap.tensor({ 10, 20, 30, 40, 50, 60 }, { 6 })
      local flat = o.multiply(o.reshape(y, { 6 }), weights)
      o.add(o.sum(flat), o.sum(o.multiply(rows, rows))):backward()
    end)
    assert.same({ 10, 20, 30 + 6, 40 + 8, 50, 60 }, x:grad():table())
    x:zero_grad()
    neap.scope(function() o.sum(o.narrow(x, 3, 1)):backward() end)
    assert.same({ 0, 0, 0, 0, 1, 1 }, x:grad():table())
  end)

  alone("refuses a loss that was computed from a gradient; its detach() is a constant", function()
    local x = neap.tensor({ 1, 2 }, { 2 }, { requires_grad = true })
    neap.scope(function()
      local function loss() return o.sum(o.multiply(x, x)) end
      loss():backward()
      local grad = x:grad()
      for _, wrong in ipairs({ function() return o.sum(o.multiply(grad, grad)) end,
        function() return o.add(loss(), o.sum(o.scale(grad, 2))) end }) do
        local ok, message = pcall(function() wrong():backward() end)
        assert.is_false(ok)
        assert.matches("computed from a gradient", tostring(message))
        assert.same({ 2, 4 }, grad:table())
      end
      o.add(loss(), o.sum(grad:detach())):backward()
      assert.same({ 4, 8 }, grad:table())
    end)
  end)

  alone("records nothing where nothing needs a gradient, nor under no_grad", function()
    local x, c = leaf(1, 2), neap.tensor({ 3, 4 })
    neap.scope(function()
      o.gelu(o.add(c, c))
      assert.equal(0, nodes())
      local y = neap.no_grad(function(a) return o.gelu(o.multiply(a, c)) end, x)
      assert.equal(0, nodes())
      assert.equal(0, C.neap_tensor_needs_grad(y.id))
      assert.is_false(pcall(neap.no_grad, function() error("no") end))
      o.multiply(x, y)
      assert.equal(1, nodes())
      x:requires_grad(false)
      o.multiply(x, y)
      assert.equal(1, nodes())
      failure_of("graph", x.grad, x)
    end)
    assert.same({ 1, nil, 3 }, { neap.no_grad(function() return 1, nil, 3 end) })
    sentence(failure_of("graph", neap.no_grad, function() o.sum(x):backward() end), "no_grad")
  end)

  alone("leaves nothing of a forward whose results were freed", function()
    local x = leaf(1, 2)
    local before = device:memory().live_bytes
    local y = o.gelu(o.silu(o.gelu(x)))
    collectgarbage()
    collectgarbage()
    assert.equal(3, nodes())
    y:free()
    assert.equal(0, nodes())
    assert.equal(before, device:memory().live_bytes)
    neap.scope(function() o.sum(o.gelu(o.multiply(x, x))) end)
    assert.same({ 0, before }, { nodes(), device:memory().live_bytes })
  end)

  alone("refuses to walk back twice, and what was made before, with a clear sentence", function()
    local x = leaf(1, 2)
    neap.scope(function()
      local y = o.scale(x, 2)
      local loss = o.sum(y)
      loss:backward()
      sentence(failure_of("graph", loss.backward, loss), "already", "backward")
      sentence(failure_of("graph", o.gelu, y), "freed already", "detach()")
      assert.same({ 2, 2 }, x:grad():table())
      assert.same({ 2, 4 }, o.scale(y:detach(), 1):table())
    end)
  end)

  alone("lets a value whose history is gone begin one of its own", function()
    local x = leaf(1, 2)
    neap.scope(function()
      local y = o.scale(x, 2)
      failure_of("graph", y.requires_grad, y)
      o.sum(y):backward()
      y:requires_grad()
      o.sum(o.multiply(y, y)):backward()
      assert.same({ 4, 8 }, y:grad():table())
    end)
    assert.same({ 2, 2 }, x:grad():table())
  end)

  alone("refuses a loss of several numbers, and leaves its history", function()
    local x = leaf(1, 2)
    neap.scope(function()
      local y = o.scale(x, 2)
      sentence(failure_of("shape mismatch", y.backward, y), "one number (a loss), found (2)")
      sentence(failure_of("invalid argument", neap.backward, 3), "expected a tensor, found number")
      o.sum(y):backward()
    end)
    assert.same({ 2, 2 }, x:grad():table())
  end)

  alone("finds a saved tensor that was written in place, names the op, goes on", function()
    local x = leaf(1, 2)
    local cases = {
      { "gelu", "input 1", function(y) return o.gelu(y) end },
      { "multiply", "input 2", function(y) return o.multiply(x, y) end },
      { "linear", "input 1", function(y)
        return o.linear(o.reshape(y, { 1, 2 }), neap.full({ 1, 2 }, 1, { requires_grad = true }))
      end },
    }
    for _, case in ipairs(cases) do
      neap.scope(function()
        local y = o.scale(x, 1)
        local loss = o.sum(case[3](y))
        y:fill(3)
        sentence(failure_of("modified in place", loss.backward, loss), case[1] .. ": ", case[2],
          "written in place")
      end)
      assert.equal(0, nodes())
      x:zero_grad()
      neap.scope(function() o.sum(o.scale(x, 5)):backward() end)
      assert.same({ 5, 5 }, x:grad():table())
    end
    neap.scope(function()
      local y = o.add(x, x)
      local loss = o.sum(o.add(y, y))
      y:fill(3) -- nobody saved it
      loss:backward()
    end)
  end)

  alone("finds a leaf that was freed between forward and backward", function()
    neap.scope(function()
      local x, y = leaf(1, 2), leaf(3, 4)
      local loss = o.sum(o.multiply(x, y))
      x:free()
      sentence(failure_of("graph", loss.backward, loss), "freed between forward and backward")
      y:zero_grad()
      o.sum(y):backward()
      assert.same({ 1, 1 }, y:grad():table())
    end)
  end)

  alone("walks a chain of 10,000 ops without recursion, freeing as it goes", function()
    local x = leaf(1)
    neap.scope(function()
      local y = x
      for i = 1, 10000 do y = i % 2 == 0 and o.add(y, x) or o.scale(y, 0.5) end
      assert.equal(10000, nodes())
      device:restart_peak("run")
      local before = device:memory().live_bytes
      o.sum(y):backward()
      assert(device:memory().peak.run - before <= 1024)
    end)
    -- y -> y / 2 + x: the gradient of x is 1 + 1/2 + 1/4 + ... = 2
    assert.equal(2, x:grad():item())
  end)

  alone("gives the same bits when it runs again", function()
    local function bits()
      return neap.scope(function()
        local x = neap.full({ 7, 9 }, 0.3, { requires_grad = true })
        local y = o.layernorm(o.gelu(x), neap.full({ 9 }, 1.5), neap.full({ 9 }, 0.1))
        o.mean(o.multiply(o.matmul(y, y, false, true), neap.full({ 7, 7 }, 0.7))):backward()
        return x:grad():bits()
      end)
    end
    assert.same(bits(), bits())
  end)
end)
