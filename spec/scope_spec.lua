-- Scopes: what is made inside is freed at the end, except what is returned.
local neap = require("neap")
local native = require("neap.ffi")
local scope = require("neap.scope")
local fail = require("neap.fail")
local failure_of = require("spec.support.failure_of")

local C, ffi, check = native.C, native.ffi, native.check

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("a scope", function()
  local device
  before_each(function() device = neap.device("cpu", { budget = "1GiB" }) end)
  after_each(function()
    jit.flush() -- compiled code may hold on to handles
    collectgarbage()
    collectgarbage()
    assert.equal(0, C.neap_scope_depth())
    assert.equal(0, scope.depth)
    assert.equal(0, device:memory().n_tensors)
    device:close()
    neap.device("cpu")
  end)

  local function n_tensors() return device:memory().n_tensors end

  alone("frees what was made inside, gives back what was returned", function()
    local inside
    local x, number, nothing, y = neap.scope(function(a, b)
      inside = neap.zeros({ 4 })
      return neap.full({ 2 }, a), b, nil, neap.full({ 1 }, 3)
    end, 7, "b")
    assert.same({ 7, 7 }, x:table())
    assert.same({ "b", 3 }, { number, y:item() })
    assert.is_nil(nothing)
    assert.is_false(inside:alive())
    assert.equal(2, n_tensors())
  end)

  alone("gives back all results, trailing nils too", function()
    assert.equal(3, select("#", neap.scope(function() return nil, false, nil end)))
    assert.equal(0, select("#", neap.scope(function() end)))
  end)

  alone("keeps what is returned in plain tables, not what hides behind a metatable", function()
    local hidden
    local found = neap.scope(function()
      hidden = setmetatable({ neap.zeros({ 1 }) }, {})
      return { a = { neap.full({ 1 }, 1), { b = neap.full({ 1 }, 2) } }, hidden = hidden, n = 5 }
    end)
    assert.same({ 1, 2 }, { found.a[1]:item(), found.a[2].b:item() })
    assert.is_false(hidden[1]:alive())
    assert.equal(2, n_tensors())
  end)

  alone("hands what it returns to the scope outside", function()
    local inner, outer
    neap.scope(function()
      inner = neap.scope(function() return neap.full({ 1 }, 4) end)
      assert.is_true(inner:alive())
      outer = neap.scope(function() return inner end)
      assert.equal(inner, outer)
      assert.equal(4, outer:item())
    end)
    assert.is_false(inner:alive())
    assert.equal(0, n_tensors())
  end)

  alone("leaves what was made outside, returned or not", function()
    local x = neap.zeros({ 1 })
    neap.scope(function() return x end)
    neap.scope(function() neap.op.scale(x, 2) end)
    assert.is_true(x:alive())
    neap.scope(function()
      local y = neap.zeros({ 1 })
      neap.scope(function() return { y, x } end)
      pcall(neap.scope, function() error("no") end)
      assert.is_true(y:alive())
    end)
    assert.is_true(x:alive())
  end)

  alone("frees everything after an error, which goes on as it was", function()
    for _, kind in ipairs({ "text", { 1 }, 5, false, true }) do
      local made
      local ok, err = pcall(neap.scope, function()
        neap.scope(function() made = neap.scope(function() return neap.zeros({ 1 }) end) end)
        made = neap.zeros({ 1 })
        scope.begin()
        neap.zeros({ 1 })
        error(kind, 0)
      end)
      assert.is_false(ok)
      assert.equal(kind, err)
      assert.is_false(made:alive())
      assert.equal(0, n_tensors())
    end
    assert.is_false(pcall(neap.scope, function() error() end))
    failure_of("out of memory", neap.scope, function() neap.zeros({ 2 ^ 40 }) end)
    assert.has_error(function() neap.scope(nil) end)
  end)

  alone("refuses to give back too many tensors or endless tables, freeing all", function()
    local function many(n)
      return neap.scope(function()
        local list = {}
        for i = 1, n do list[i] = neap.full({ 1 }, i) end
        return list
      end)
    end
    assert.equal(256, many(256)[256]:item())
    local ok, err = pcall(many, 257)
    assert.is_false(ok)
    assert(fail.message(err):find("at most 256 tensors", 1, true))
    assert.equal(0, C.neap_scope_depth())
    assert.is_false(pcall(neap.scope, function()
      local endless = { neap.zeros({ 1 }) }
      endless.self = endless
      return endless
    end))
    assert.equal(0, C.neap_scope_depth())
  end)

  alone("leaves a leaf's gradient with the leaf, whoever returns it", function()
    local x = neap.tensor({ 1, 2 }, nil, { requires_grad = true })
    neap.scope(function() neap.op.sum(neap.op.scale(x, 3)):backward() end)
    assert.same({ 3, 3 }, neap.scope(function() return x:grad() end):table())
    assert.same({ 3, 3 }, neap.scope(function() return { x:grad(), x } end)[1]:table())
    collectgarbage()
    collectgarbage()
    assert.same({ 3, 3 }, x:grad():table())
  end)

  alone("keeps live bytes constant over 100,000 iterations", function()
    local x = neap.full({ 8 }, 1)
    local op, run = neap.op, neap.scope
    local function body() return op.add(op.scale(x, 0.5), op.gelu(x)) end
    local function step() run(body) end
    for _ = 1, 100 do run(step) end
    local before = device:memory()
    device:restart_peak("run")
    for _ = 1, 100000 do run(step) end
    local after = device:memory()
    assert.equal(before.live_bytes, after.live_bytes)
    assert.equal(before.n_tensors, after.n_tensors)
    assert.equal(before.reserved_bytes, after.reserved_bytes)
    assert.equal(4 * 64, after.peak.run)
  end)

  alone("may be as deep as scripts recurse", function()
    local function deeper(n)
      if n == 0 then return neap.full({ 1 }, 6) end
      return neap.scope(function()
        neap.zeros({ 1 })
        return deeper(n - 1)
      end)
    end
    local x = deeper(100)
    assert.equal(6, x:item())
    assert.equal(1, n_tensors())
  end)

  alone("is left by a tensor that leaves all scopes", function()
    local x
    neap.scope(function()
      x = neap.full({ 1 }, 2)
      check(C.neap_scope_leave(x.id))
    end)
    assert.equal(2, x:item())
    x:free()
  end)

  alone("of C is ended only when it is open, and with it all deeper ones", function()
    for _, depth in ipairs({ 0, -1, 1, 100 }) do
      assert.equal(C.NEAP_ERR_STATE, C.neap_scope_end(depth, 0, nil))
    end
    assert.same({ 1, 2, 3 }, { C.neap_scope_begin(), C.neap_scope_begin(), C.neap_scope_begin() })
    assert.equal(C.NEAP_ERR_STATE, C.neap_scope_end(4, 0, nil))
    assert.equal(C.NEAP_ERR_STATE, C.neap_scope_end(2, 1, nil))
    assert.equal(C.NEAP_ERR_STATE, C.neap_scope_end(2, -1, nil))
    assert.equal(3, C.neap_scope_depth())
    local id = check(C.neap_tensor_new(device.id, C.NEAP_F32, 0, nil, -1))
    -- what it keeps moves to scope 1; numbers that name nothing are passed over
    check(C.neap_scope_end(2, 4, ffi.new("double[4]", id, 0, 0 / 0, 1e300)))
    assert.same({ 1, 1 }, { C.neap_scope_depth(), C.neap_tensor_alive(id) })
    check(C.neap_scope_end(1, 0, nil))
    assert.equal(0, C.neap_tensor_alive(id))
  end)
end)
