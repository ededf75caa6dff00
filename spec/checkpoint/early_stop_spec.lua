-- A recomputation stops where backward needs nothing more: what runs again, by counts of ops.
local models = require("spec.support.models")
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

describe("a recomputation of", function()
  before_each(function() neap.device("cpu") end)

  -- how often each op of the names runs forward in a region's backward
  local function again(names, fn, loss)
    local counts = {}
    neap.scope(function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local y = neap.checkpoint(fn, op.scale(x, 2))
      y = op.mean((loss or op.scale)(y, 1))
      local before = {}
      for _, name in ipairs(names) do before[name] = regions.count(name) end
      y:backward()
      for k, name in ipairs(names) do counts[k] = regions.count(name) - before[name] end
    end)
    return counts
  end

  local function linear_of(width, n_out)
    local w = regions.tensor({ n_out, width }, 1, { requires_grad = true })
    return function(x) return op.linear(x, w) end
  end

  describe("a transformer's block", function()
    local chain, batch, profile
    before_each(function()
      chain, batch = models.gpt(2), models.tokens()
      profile = neap.profile(chain, batch, { cost = "flops" })
    end)
    after_each(function() chain:free() end)

    -- of one step under a plan
    local function counted(name, policy)
      local plan = neap.plan(policy, profile)
      return regions.counted(name, function() models.run(chain, batch, plan) end)
    end

    it("leaves its last projection out: 3 of 4 products, 8 of 12 parts of their FLOPs", function()
      local n, flops = counted("linear", "none")
      local n_one, flops_one = counted("linear", "by_name:block.0")
      assert.equal(4 + 4 + 1, n)
      assert.equal(n + 3, n_one)
      -- 2 multiplications and additions a weight and position, 16 positions
      local block = 2 * 16 * 12 * 16 * 16
      assert.equal(2 * block + 2 * 16 * 13 * 16, flops)
      assert.equal(8 / 12 * block, flops_one - flops)
    end)

    it("does so in every block under all, and under segments where a block is the last", function()
      local n = counted("linear", "none")
      assert.equal(n + 3 + 3 + 1, counted("linear", "all")) -- the head saves its product's result
      -- embed, block.0 | block.1, head: the first segment runs again once
      assert.equal(n + 3, counted("linear", "segments:2"))
      -- embed, block.0, block.1 | head: the first block's output is the second one's input
      assert.equal(n + 4 + 3,
        counted("linear", { policy = "segments", starts = { "embed", "head" } }))
    end)

    it("leaves out what comes after the last save", function()
      -- attention | dropout, add | up, gelu, down | dropout, add
      assert.equal(1, counted("gelu", "by_name:block.0") - counted("gelu", "none"))
      assert.equal(1, counted("attention", "by_name:block.0") - counted("attention", "none"))
      assert.equal(2, counted("layernorm", "by_name:block.0") - counted("layernorm", "none"))
      assert.equal(1, counted("dropout", "by_name:block.0") - counted("dropout", "none"))
      assert.equal(1, counted("add", "by_name:block.0") - counted("add", "none"))
    end)

    it("is the same in a region by hand", function()
      local counts = again({ "linear", "gelu", "attention", "layernorm", "dropout", "add" },
        function(x)
          return chain.stages[2].module(op.reshape(op.linear(x,
            regions.tensor({ 16, 8 }, 1)), { 2, 2, 16 }))
        end)
      assert.same({ 1 + 3, 1, 1, 2, 1, 1 }, counts)
    end)
  end)

  it("an op that saves nothing, or only its inputs, leaves it out where it is the last", function()
    assert.same({ 0 }, again({ "scale" }, function(x) return op.scale(x, 3) end))
    assert.same({ 0 }, again({ "gelu" }, op.gelu))
    assert.same({ 0 }, again({ "linear" }, linear_of(8, 5)))
    assert.same({ 1, 0 }, again({ "scale", "gelu" }, function(x)
      return op.gelu(op.scale(x, 3))
    end))
    assert.same({ 0, 0 }, again({ "add", "scale" }, function(x)
      return op.scale(x + op.scale(x, 2), 3)
    end))
  end)

  it("an op that saves its output runs again", function()
    assert.same({ 1 }, again({ "tanh" }, op.tanh))
    assert.same({ 1, 1, 0 }, again({ "scale", "sigmoid", "add" }, function(x)
      return op.sigmoid(op.scale(x, 3)) + x
    end))
  end)

  it("what nobody uses is left out wherever it is", function()
    local down = linear_of(8, 8)
    assert.same({ 1, 2 }, again({ "linear", "gelu" }, function(x)
      down(op.gelu(x)) -- its result goes nowhere, its inputs are saved all the same
      return down(op.gelu(op.silu(op.scale(down(x), 2))))
    end))
  end)

  it("what the host read runs again", function()
    local down = linear_of(8, 8)
    assert.same({ 1, 1 }, again({ "linear", "mean" }, function(x)
      local y = down(x)
      return op.scale(y, op.mean(y):item() > 1e6 and 2 or 1)
    end))
    assert.same({ 1 }, again({ "linear" }, function(x)
      local y = down(x)
      y:table()
      return y
    end))
    assert.same({ 1 }, again({ "linear" }, function(x)
      local y = down(x)
      neap.zeros({ 4, 8 }):copy_from(y)
      return y
    end))
    assert.same({ 0 }, again({ "linear" }, function(x)
      local y = down(x)
      assert.same({ 4, 8 }, y:dims()) -- shapes are known
      return y
    end))
  end)

  it("a result that a later op outside saves is not made for it", function()
    local down = linear_of(8, 8)
    assert.same({ 0, 0 }, again({ "linear", "gelu" }, down, function(y) return op.gelu(y) end))
  end)

  it("an op defined in Lua leaves its ops out, too, unless they are saved", function()
    local function define(name, saves)
      return op.define({ name = name, n_inputs = 1,
        forward = function(save, x)
          local y = op.silu(op.scale(x, 3))
          if saves then save(y) end
          return y
        end,
        backward = function(_, g) return op.scale(g, 1) end })
    end
    assert.same({ 0 }, again({ "silu" }, define("early_stop_saves_nothing", false)))
    assert.same({ 1 }, again({ "silu" }, define("early_stop_saves", true)))
  end)

  it("kept products runs none of them, and everything else", function()
    local down = linear_of(8, 8)
    local function fn(x) return op.gelu(down(op.gelu(down(x)))) end
    local function counted(options)
      return regions.counted("linear", function()
        regions.run(function(x, checkpoint) return op.mean(checkpoint(options, fn, x)) end)
      end)
    end
    assert.equal(2 + 2, counted({}))
    assert.equal(2, counted({ keep = "matmul" }))
    assert.equal(2, counted({ keep = "linear" }))
    assert.equal(2 + 2, counted({ keep = "gelu,attention" }))
  end)

  describe("nested regions", function()
    local layers, parameters
    before_each(function()
      neap.manual_seed(3)
      layers, parameters = {}, {}
      for i = 1, 8 do
        layers[i] = models.Layer(8, 0.3)
        for _, p in ipairs(layers[i]:parameters()) do parameters[#parameters + 1] = p.tensor end
      end
    end)
    after_each(function()
      for _, layer in ipairs(layers) do layer:free() end
    end)

    -- layers first .. last, halved into regions so many levels deep
    local function nest(x, checkpoint, first, last, depth)
      if depth == 0 then
        for i = first, last do x = layers[i](x) end
        return x
      end
      local middle = math.floor((first + last) / 2)
      local function half(from, to)
        x = checkpoint({ name = from .. "-" .. to }, function(y)
          return nest(y, checkpoint, from, to, depth - 1)
        end, x)
      end
      half(first, middle)
      half(middle + 1, last)
      return x
    end

    local function counted(first, last, depth)
      return regions.counted("linear", function()
        regions.same(function(x, checkpoint)
          return op.mean(checkpoint({ name = "all" }, function(y)
            return nest(y, checkpoint, first, last, depth)
          end, x))
        end, { parameters = parameters })
      end) - (last - first + 1) -- those of the run without regions
    end

    it("gives the bits of plain calls; each inner one runs again twice, the last once", function()
      -- outer of 4, inner of 2: forward 4, the outer again 2 (the second inner one is not needed),
      -- each inner one again 2 (gelu after it needs the product)
      assert.equal(4 + 2 + 2 + 2, counted(1, 4, 1))
    end)

    it("does so at three levels", function()
      -- of 8, 4 and 2: forward 8; the outermost again 4; its halves again 2 + 2; the innermost
      -- 2 each
      assert.equal(8 + 4 + 2 * 2 + 4 * 2, counted(1, 8, 2))
    end)
  end)
end)
