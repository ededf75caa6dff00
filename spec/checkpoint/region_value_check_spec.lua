-- The value check: a recomputation that makes other values than the first forward is an error.
local C = require("neap.ffi").C
local models = require("spec.support.models")
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

describe("a recomputation", function()
  local device, layers, parameters

  before_each(function()
    device = neap.device("cpu")
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

  describe("with other values", function()
    local n
    before_each(function() n = 0 end)

    local function scaled(y)
      n = n + 1
      return op.gelu(op.scale(y, n))
    end

    it("is an error under the value check, with the largest difference", function()
      local message = differs("recomputation failed", scaled, { check = "value" })
      assert.matches("its values differ from the first forward: input 1 of gelu (op 2), (4, 8), "
        .. "largest difference ", message, 1, true)
      -- gelu(sin(...)) doubled: the largest of it is the largest difference
      local largest = 0
      neap.scope(function()
        for _, v in ipairs(op.gelu(regions.tensor({ 4, 8 }, 1)):table()) do
          largest = math.max(largest, math.abs(v))
        end
      end)
      local told, element = message:match("largest difference (%S+) at element (%d+)$")
      assert.near(largest, tonumber(told), 1e-5)
      local at = neap.scope(function()
        return op.gelu(regions.tensor({ 4, 8 }, 1)):table()[tonumber(element)]
      end)
      assert.near(largest, math.abs(at), 1e-6)
    end)

    it("is not noticed by the check of shapes", function()
      passes(scaled)
      assert.equal(2, n)
    end)

    it("is found where only an op that is left out saved them", function()
      local message = differs("recomputation failed", function(y)
        n = n + 1
        return layers[1].linear(op.scale(y, n))
      end, { check = "value" })
      assert.matches("input 1 of linear (op 2)", message, 1, true)
    end)

    it("is found in each part of a tensor", function()
      for first = 0, 3 do
        n = 0
        local message = differs("recomputation failed", function(y)
          n = n + 1
          local row = { 1, 1, 1, 1 }
          row[first + 1] = n
          local column = neap.tensor(row, { 4 })
          local z = op.transpose(op.transpose(y) * column)
          local sum
          for i = 0, 3 do
            local part = op.sum(op.gelu(op.narrow(z, i + 1, 1)))
            sum = sum and sum + part or part
          end
          return sum
        end, { check = "value" })
        assert.matches("its values differ", message, 1, true)
      end
    end)

    it("is found in an op of a shape that shows only in its saved inputs", function()
      local weights = { regions.tensor({ 4, 300 }, 1, { requires_grad = true }),
        regions.tensor({ 4, 3 }, 1, { requires_grad = true }) }
      for _, order in ipairs({ { 1, 2 }, { 2, 1 } }) do
        local message = differs("shape mismatch", function(y, again)
          local w = weights[order[again and 2 or 1]]
          return op.sum(op.linear(op.scale(neap.full({ 4, w:dims()[2] }, 1), 2), w)) + op.sum(y)
        end, { check = "value" })
        assert.matches("input 1 of linear (op 2) is (4, ", message, 1, true)
      end
      for _, w in ipairs(weights) do w:free() end
    end)

    it("is not to be had from random numbers, masks or statistics", function()
      regions.same(function(x, checkpoint)
        local y = checkpoint({ check = "value" }, function(a)
          return op.gelu(op.dropout(layers[2](layers[1](a)), 0.5))
        end, x)
        return op.mean(y * y)
      end, { parameters = parameters })
    end)
  end)

  it("keeps copies for the value check, as many bytes as a plain forward saves, until backward",
    function()
    collectgarbage()
    collectgarbage()
    local function check_bytes() return device:memory().tags.check end
    local function body(a) return layers[2](op.gelu(layers[1](a))) end
    assert.equal(0, check_bytes())
    neap.scope(function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local y = neap.checkpoint({ check = "value" }, body, x)
      local tape = C.neap_tape_new()
      local before = C.neap_tape_select(tape)
      local held = neap.scope(function()
        local z = body(x)
        -- x itself and the parameters are there in any case
        local total = C.neap_tape_saved_bytes(tape)
        for _, t in ipairs({ x, unpack(parameters) }) do
          if C.neap_tape_saves(tape, t.id) == 1 then total = total - t:bytes() end
        end
        C.neap_tape_select(before)
        z:free()
        return total
      end)
      C.neap_tape_free(tape)
      assert.is_true(held > 0)
      assert.equal(held, check_bytes())
      op.mean(y):backward()
      assert.equal(0, check_bytes())
    end)
  end)
end)
