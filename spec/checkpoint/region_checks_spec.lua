-- How a recomputation is compared with the first forward.
local C = require("neap.ffi").C
local models = require("spec.support.models")
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

describe("a recomputation", function()
  local layers, parameters

  before_each(function()
    neap.device("cpu")
    neap.manual_seed(3)
    layers, parameters = {}, {}
    for i = 1, 3 do
      layers[i] = models.Layer(8, 0.3)
      for _, p in ipairs(layers[i]:parameters()) do parameters[#parameters + 1] = p.tensor end
    end
  end)
  after_each(function()
    for _, layer in ipairs(layers) do layer:free() end
    assert.equal(0, C.neap_tape_n_nodes(C.neap_tape_selected()))
  end)

  -- the error of one pass through region 'middle', whose function is told whether it runs again
  local function differs(kind, fn, options)
    options = options or {}
    options.name = "middle"
    local message = regions.failure(kind, neap.scope, function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      op.mean((neap.checkpoint(options, function(y)
        return fn(y, neap.is_recomputing())
      end, op.gelu(x)))):backward()
    end)
    assert.matches("region 'middle': ", message, 1, true)
    return message
  end

  local function passes(fn, options)
    neap.scope(function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      op.mean((neap.checkpoint(options or {}, function(y)
        return fn(y, neap.is_recomputing())
      end, x))):backward()
    end)
  end

  describe("of other ops is an error that names both:", function()
    it("another shape", function()
      local weights = { regions.tensor({ 5, 8 }, 1), regions.tensor({ 6, 8 }, 1) }
      local message = differs("shape mismatch", function(y, again)
        return op.sum(op.gelu(op.linear(y, weights[again and 2 or 1])))
      end)
      assert.matches("the output of linear (op 1) is (4, 6), it was (4, 5)", message, 1, true)
    end)

    it("a cache that grew with each run", function()
      local cache = {}
      local message = differs("shape mismatch", function(y)
        cache[#cache + 1] = 1
        return op.sum(op.linear(y, neap.full({ #cache, 8 }, 1)))
      end)
      assert.matches("linear (op 1) is (4, 2), it was (4, 1)", message, 1, true)
    end)

    it("another op, another order", function()
      local message = differs("recomputation failed", function(y, again)
        return op.sum(again and op.silu(op.scale(y, 2)) or op.gelu(op.scale(y, 2)))
      end)
      assert.matches("op 2 is silu and makes (4, 8), it was gelu and made (4, 8)", message, 1, true)
      message = differs("recomputation failed", function(y, again)
        return op.sum(again and op.silu(op.gelu(y)) or op.gelu(op.silu(y)))
      end)
      assert.matches("op 1 is gelu", message, 1, true)
    end)

    it("one op more, before the end and after it", function()
      local message = differs("recomputation failed", function(y, again)
        if again then y = op.gelu(y) end
        return op.sum(op.silu(y))
      end)
      assert.matches("op 1 is gelu and makes (4, 8), it was silu", message, 1, true)
      message = differs("recomputation failed", function(y, again)
        y = op.silu(y)
        return again and op.gelu(y) or y
      end)
      assert.matches("one op more, gelu, which makes (4, 8)", message, 1, true)
    end)

    it("one op fewer, also the last one", function()
      local message = differs("recomputation failed", function(y, again)
        if not again then y = op.gelu(y) end
        return op.sum(op.silu(y))
      end)
      assert.matches("op 1 is silu and makes (4, 8), it was gelu", message, 1, true)
      message = differs("recomputation failed", function(y, again)
        y = op.silu(y)
        return again and y or op.gelu(y)
      end)
      assert.matches("it ended before op 2, gelu, which made (4, 8)", message, 1, true)
    end)

    it("another number of inputs", function()
      local layer = neap.nn.Linear(8, 8)
      local message = differs("recomputation failed", function(y, again)
        return op.gelu(op.linear(y, layer.weight, not again and layer.bias or nil))
      end)
      assert.matches("linear (op 1) has 2 inputs, it had 3", message, 1, true)
      layer:free()
    end)

    it("fewer results, or one without its history", function()
      assert.matches("it returned 1 of its 2 tensors", differs("recomputation failed",
        function(y, again)
          local a, b = op.silu(y), op.gelu(y)
          if again then return a end
          return a, b
        end))
      assert.matches("it returned 0 of its 1 tensors", differs("recomputation failed",
        function(y, again)
          y = op.silu(y)
          return again and y:detach() or y
        end))
    end)
  end)

  it("without a check may do anything; what does not fit together is still an error", function()
    passes(function(y, again)
      return op.sum(again and op.silu(op.scale(y, 2)) or op.gelu(y))
    end, { check = "none" })
    differs("shape mismatch", function(y, again)
      return again and op.narrow(op.gelu(y), 1, 2) or op.gelu(y)
    end, { check = "none" })
  end)

  it("may leave out ops that need no gradient, and have others", function()
    local constant, weights = regions.tensor({ 4, 8 }, 3), {}
    for i = 1, 3 do weights[i] = regions.tensor({ 8, 8 }, i) end
    for _, keep in ipairs({ false, "matmul" }) do
      regions.same(function(x, checkpoint)
        return op.mean(checkpoint({ keep = keep or nil, check = "value" }, function(y)
          -- the same op and shape as the one below, first and only at first
          if not neap.is_recomputing() then
            op.linear(constant, weights[1])
            op.mean(op.linear(constant, weights[2])):item()
          end
          local c = op.linear(constant, weights[3])
          local z = layers[1](y) * c
          if neap.is_recomputing() then op.gelu(op.linear(constant, weights[2])) end
          return layers[2](z)
        end, x))
      end, { parameters = parameters })
    end
  end)
end)
