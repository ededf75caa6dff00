-- checkpoint(fn, ...): the bits of a plain call.
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

  it("around each block of a transformer gives the bits of keep-all", function()
    local gpt, batch = models.gpt(2), models.tokens()
    local ctx, found = { batch = batch }, {}
    for k, checkpoint in ipairs({ regions.plain, neap.checkpoint }) do
      gpt:zero_grad()
      neap.rng({ seed = 5, step = 1, n_items = 2 })
      neap.scope(function()
        local x = gpt.stages[1].module(batch.inputs, ctx)
        for i = 2, 3 do x = checkpoint(gpt.stages[i].module, x) end
        local loss = gpt.stages[4].module(x, ctx)
        loss:backward()
        found[k] = { loss:bits(), models.gradient_bits(gpt) }
      end)
    end
    assert.same(found[1], found[2])
    gpt:free()
  end)

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
