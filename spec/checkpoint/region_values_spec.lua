-- What goes into checkpointed regions and what comes out of them.
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
end)
