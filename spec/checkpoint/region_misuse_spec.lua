-- Wrong use of checkpoint(fn, ...): one sentence, and nothing is left.
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

describe("a checkpointed region refuses", function()
  local device
  before_each(function() device = neap.device("cpu") end)

  local function refused(text, ...)
    local waiting = regions.state(device)
    local arguments, n = { ... }, select("#", ...)
    assert.matches(text, regions.failure("usage", neap.scope, function()
      neap.checkpoint(unpack(arguments, 1, n))
    end), 1, true)
    assert.same(waiting, regions.state(device))
  end
  local function same_back(...) return ... end

  it("what is no function", function()
    refused("checkpoint: its function must be a function, found nil")
    refused("checkpoint: its function must be a function, found 3", 3)
    refused("checkpoint: its function must be a function, found nil", { name = "x" })
    refused("checkpoint: its function must be a function, found 'y'", { name = "x" }, "y")
  end)

  it("an option that is none, or has a value that is none", function()
    refused("unknown option 'nam', did you mean 'name'?", { nam = "x" }, same_back)
    refused("unknown option '1'", { 5 }, same_back)
    refused("checkpoint: name must be", { name = 5 }, same_back)
    refused("checkpoint: name must be", { name = "a\0b" }, same_back)
    refused("checkpoint: preserve_rng must be", { preserve_rng = 1 }, same_back)
    refused("unknown check 'values', did you mean 'value'?", { check = "values" }, same_back)
    refused("unknown check '5'", { check = 5 }, same_back)
    refused("unknown op 'matmull', did you mean 'matmul'?", { keep = "matmull" }, same_back)
    refused("checkpoint: keep", { keep = true }, same_back)
    refused("checkpoint: keep", { keep = { "matmul" } }, same_back)
  end)

  it("tables without an end, or too deep", function()
    local cycle = {}
    cycle[1] = cycle
    refused("contain themselves", same_back, cycle)
    refused("contain themselves", function() return cycle end)
    local deep = {}
    for _ = 1, 40 do deep = { deep } end
    refused("nested more than 32 deep", same_back, deep)
    local tensor = regions.tensor({ 2 }, 1)
    refused("no order", same_back, { [{}] = tensor })
    refused("no order", same_back, { [print] = { { tensor } } })
    tensor:free()
  end)

  it("more tensors than a node counts, as arguments or as results", function()
    local function many(n)
      local list = {}
      for i = 1, n do list[i] = regions.tensor({ 1 }, i) end
      return list
    end
    neap.scope(function()
      local x = regions.tensor({ 1 }, 1, { requires_grad = true })
      local list = many(255)
      local y = neap.checkpoint(function(all) return all[1] * all[255] * x end, list)
      op.sum(y):backward()
      assert.equal((list[1] * list[255]):item(), x:grad():item())
      list = many(256)
      assert.matches("at most 255 tensors are arguments",
        regions.failure("usage", neap.checkpoint, function() return x end, list))
      list = many(1)[1]
      local made = { neap.checkpoint(function()
        local out = {}
        for i = 1, 255 do out[i] = op.scale(x, i) end
        return unpack(out)
      end) }
      assert.equal(255, #made)
      assert.matches("at most 255 tensors are results",
        regions.failure("usage", neap.checkpoint, function()
          local out = {}
          for i = 1, 256 do out[i] = op.scale(x, i) end
          return unpack(out)
        end))
      assert.is_true(list:alive())
    end)
  end)

  it("a tensor that was freed", function()
    neap.scope(function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local gone = regions.tensor({ 4, 8 }, 2)
      gone:free()
      assert.matches("region 'middle': ",
        regions.failure("stale handle", neap.checkpoint, { name = "middle" }, same_back, x, gone))
    end)
  end)

  it("a tensor from outside that was freed, or has a history there", function()
    neap.scope(function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local outside = regions.tensor({ 4, 8 }, 2)
      local y = op.mean(neap.checkpoint({ name = "middle" }, function(a)
        return a * outside
      end, x))
      outside:free()
      assert.matches("^region 'middle': .*freed before backward; make it an argument",
        regions.failure("stale handle", y.backward, y))
      local h = op.gelu(x)
      assert.matches("^region 'middle': .*made outside this checkpointed region; pass it as an "
        .. "argument", regions.failure("graph", neap.checkpoint, { name = "middle" }, function(a)
          return a * h
        end, x))
    end)
  end)
end)
