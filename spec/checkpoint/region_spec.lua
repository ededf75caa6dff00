-- checkpoint(fn, ...): the bits of a plain call, whatever goes in and comes out.
local neap = require("neap")
local models = require("spec.support.models")
local region = require("neap.checkpoint.region")
local regions = require("spec.support.regions")
local op = neap.op

describe("a checkpointed region", function()
  local layers, parameters

  before_each(function()
    neap.device("cpu")
    neap.manual_seed(3)
    layers, parameters = {}, {}
    for i = 1, 4 do
      layers[i] = models.Layer(8, 0.3)
      for _, p in ipairs(layers[i]:parameters()) do parameters[#parameters + 1] = p.tensor end
    end
  end)

  after_each(function()
    for _, layer in ipairs(layers) do layer:free() end
    collectgarbage()
    collectgarbage()
  end)

  local function same(loss, o)
    o = o or {}
    o.parameters = parameters
    local found = regions.same(loss, o)
    assert.equal(0, region.n_waiting())
    return found
  end

  -- two layers in the region, one before and one after it
  local function sandwich(options)
    return function(x, checkpoint)
      x = layers[1](x)
      x = checkpoint(options, function(y) return layers[3](layers[2](y)) end, x)
      return op.mean(layers[4](x))
    end
  end

  for _, check in ipairs({ "none", "shape", "value" }) do
    it("gives the bits of a plain call with dropout inside, checked by " .. check, function()
      same(sandwich({ check = check }))
      same(sandwich({ check = check, keep = "matmul" }))
    end)
  end

  it("draws the random numbers after it that a plain call would leave", function()
    local drawn = same(sandwich({}))
    local ones = 0
    for _, bits in ipairs(drawn.random) do ones = ones + (bits == 0 and 0 or 1) end
    assert.is_true(ones > 4 and ones < 28)
  end)

  it("takes a function, a layer, and a layer's method", function()
    same(function(x, checkpoint)
      x = checkpoint(layers[1], x)
      x = checkpoint(layers[2].forward, layers[2], x)
      return op.mean(checkpoint(op.gelu, x))
    end)
  end)

  it("may do without the position of random numbers where none are drawn", function()
    same(function(x, checkpoint)
      return op.mean(checkpoint({ preserve_rng = false }, layers[1].linear, x))
    end)
  end)

  it("hands back what fn returns, also nil, numbers, texts, functions and tables", function()
    neap.scope(function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local fn = function() end
      local function pack(...) return select("#", ...), { ... } end
      local n, r = pack(neap.checkpoint(function(a, hole, number, text, callback, nested)
        assert.is_nil(hole)
        assert.equal(7, number)
        assert.equal("seven", text)
        assert.equal(fn, callback)
        return nil, op.gelu(a), 3, "three", callback, { op.gelu(nested.deep[1]), false }, nil
      end, x, nil, 7, "seven", fn, { deep = { x } }))
      assert.equal(7, n)
      assert.equal(3, r[3])
      assert.equal("three", r[4])
      assert.equal(fn, r[5])
      assert.is_false(r[6][2])
      assert.is_true(r[2]:alive() and r[6][1]:alive())
    end)
  end)

  it("takes tensors at any depth of tables, and gives them", function()
    same(function(x, checkpoint)
      local out = checkpoint(function(t, scale)
        return { y = { t.first[1] * t.second.deep, n = 2 }, z = op.scale(t.first[1], scale) }
      end, { first = { layers[1](x) }, second = { deep = layers[2](x), text = "x" } }, 3)
      return op.mean(out.y[1] + out.z)
    end)
  end)

  it("takes one tensor twice", function()
    same(function(x, checkpoint)
      x = layers[1](x)
      local y, z = checkpoint(function(a, b, list)
        return a * b, op.gelu(list[1])
      end, x, x, { x })
      return op.mean(y + z + x)
    end)
  end)

  it("takes no tensor at all, and one that needs no gradient, when parameters inside do", function()
    local constant = regions.tensor({ 4, 8 }, 2)
    same(function(x, checkpoint)
      local y = checkpoint(function() return layers[1](constant) end)
      local z = checkpoint(layers[2], constant)
      return op.mean(x * (y + z))
    end)
    local found = regions.run(function(x, checkpoint)
      return op.mean(x * checkpoint(layers[2], constant))
    end, { parameters = parameters })
    assert.is_not.same(found[1], found[5]) -- the layers' gains: none reached the first one
  end)

  it("gives many results, each with its gradient, also when one is not used", function()
    same(function(x, checkpoint)
      local list = { checkpoint(function(y)
        local out = {}
        for i = 1, 20 do out[i] = op.scale(layers[1](y), i) end
        return unpack(out)
      end, x) }
      local sum = list[1]
      for i = 2, 20 do
        if i ~= 7 then sum = sum + list[i] * list[i] end
      end
      return op.mean(sum)
    end)
  end)

  it("gives a result twice, an argument, and a parameter", function()
    same(function(x, checkpoint)
      x = layers[1](x)
      local y, again, argument, gain = checkpoint(function(a)
        local b = layers[2](a)
        return b, b, a, layers[2].norm.gain
      end, x)
      assert.is_true(gain:alive())
      return op.mean((y + again) * argument * gain)
    end)
  end)

  it("gives views of its arguments", function()
    same(function(x, checkpoint)
      local flat, rows = checkpoint(function(a)
        return op.reshape(a, { 32 }), op.narrow(op.gelu(a), 2, 1)
      end, layers[1](x))
      return op.mean(flat) + op.mean(rows)
    end)
  end)

  it("takes and gives whole numbers", function()
    local ids = neap.tensor({ 1, 0, 2, 1 }, { 4 }, { dtype = "i32" })
    local table_ = neap.nn.Embedding(3, 8)
    parameters[#parameters + 1] = table_.weight
    same(function(x, checkpoint)
      local y, same_ids = checkpoint(function(i, z) return table_(i) * z, i end, ids, x)
      return op.mean(y + table_(same_ids))
    end)
  end)

  it("takes leaves as arguments and sums their gradients in the order of a plain call", function()
    local w = parameters[3]
    same(function(x, checkpoint)
      local function twice(y, weight, leaf)
        return op.linear(op.gelu(op.linear(y, weight)), weight) * leaf + leaf
      end
      local y = checkpoint(twice, layers[1](x), w, x)
      y = checkpoint(twice, y, w, x)
      return op.mean(y * x)
    end)
  end)

  it("sums gradients of what is used inside and outside in the order of a plain call", function()
    same(function(x, checkpoint)
      local y = layers[1](x)
      local before = op.gelu(y) * y
      local z = checkpoint(function(a) return op.gelu(a) * a + op.silu(a) end, y)
      local after = op.tanh(y)
      return op.mean(before + z + after * y)
    end)
  end)

  it("shares a weight between regions: its gradient is the sum, by bits", function()
    same(function(x, checkpoint)
      x = checkpoint(layers[1], x)
      x = checkpoint(layers[2], x)
      return op.mean(checkpoint(layers[1], x))
    end)
  end)

  it("sees a table as it was at the call, and appends to the caller's once", function()
    local lists = {}
    same(function(x, checkpoint)
      local list = { layers[1](x) }
      lists[#lists + 1] = list
      local y = checkpoint(function(all, same_again)
        assert.equal(all, same_again)
        assert.equal(1, #all)
        all[2] = layers[2](all[1])
        return same_again[2] * all[1]
      end, list, list)
      return op.mean(y)
    end)
    assert.equal(2, #lists[1])
    assert.equal(2, #lists[2])
  end)

  it("finds tensors under any key of an argument's table", function()
    same(function(x, checkpoint)
      local y = checkpoint(function(t) return layers[1](t[1]) * t.a * t[true] + t[2.5] end,
        { [1] = x, a = layers[2](x), [true] = x, [2.5] = x })
      return op.mean(y)
    end)
  end)

  it("tells fn whether it recomputes, so that a counter rises once", function()
    local n, runs = 0, 0
    local function loss(x, checkpoint)
      return op.mean(checkpoint(function(y)
        runs = runs + 1
        if not neap.is_recomputing() then n = n + 1 end
        return layers[1](y)
      end, x))
    end
    regions.run(loss)
    assert.equal(1, n)
    assert.equal(2, runs)
    assert.is_false(neap.is_recomputing())
  end)

  it("is a plain call where nothing needs a gradient", function()
    local constant, runs = regions.tensor({ 4, 8 }, 2), 0
    local tape = require("neap.ffi").C.neap_tape_selected()
    neap.scope(function()
      local y = neap.checkpoint(function(a)
        runs = runs + 1
        return op.gelu(a)
      end, constant)
      assert.equal(0, require("neap.ffi").C.neap_tape_n_nodes(tape))
      op.mean(y):backward()
    end)
    assert.equal(1, runs)
    assert.equal(0, region.n_waiting())
  end)

  it("is a plain call without a tape and in evaluation: each op runs once", function()
    local function forward(x)
      return neap.scope(function() return neap.checkpoint(layers[1], x):bits() end)
    end
    local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
    local expected, found
    layers[1]:eval()
    expected = neap.scope(function() return layers[1](x):bits() end)
    local n = regions.counted("linear", function()
      found = neap.no_grad(forward, x)
      assert.equal(0, region.n_waiting())
    end)
    assert.equal(1, n)
    assert.same(expected, found)
    assert.equal(1, regions.counted("linear", function() found = forward(x) end))
    assert.same(expected, found)
  end)

  it("runs control flow that reads tensors as it ran at first", function()
    same(function(x, checkpoint)
      local y = checkpoint(function(a)
        local h = layers[1](a)
        local mean, big = op.mean(h), 0
        if mean:item() > -100 then h = op.scale(h, 1 + mean:item()) end
        for _, v in ipairs(op.tanh(h):table()) do big = big + (v > 0.1 and 1 or 0) end
        local c = neap.zeros({ 4, 8 }):copy_from(op.silu(h))
        return layers[2](op.scale(h, big)) * c
      end, x)
      return op.mean(y)
    end)
  end)

  it("leaves nothing of a thousand forwards that go without backward", function()
    local device = neap.device("cpu")
    local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
    local layer = models.Layer(8, 0.3)
    local function forward()
      neap.scope(function() op.mean(neap.checkpoint({ check = "value" }, layer, x)) end)
    end
    forward()
    collectgarbage()
    collectgarbage("stop")
    local live, most = device:memory().live_bytes, 0
    for _ = 1, 1000 do
      forward()
      assert.equal(live, device:memory().live_bytes)
      most = math.max(most, region.n_waiting())
    end
    collectgarbage("restart")
    assert.equal(0, most)
  end)

  it("leaves parameter names and their bits alone", function()
    local function names(list)
      local out = {}
      for i, layer in ipairs(list) do
        for _, p in ipairs(layer:parameters()) do out[#out + 1] = i .. "." .. p.name end
      end
      return out
    end
    local before, bits = names(layers), parameters[3]:bits()
    regions.run(sandwich({}), { parameters = parameters })
    assert.same(before, names(layers))
    assert.same(bits, parameters[3]:bits())
  end)
end)
