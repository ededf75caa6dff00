-- In-place writes around checkpointed regions: those that would spoil gradients are errors.
local C = require("neap.ffi").C
local models = require("spec.support.models")
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

describe("writing in place", function()
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

  local writes = {
    fill = function(t) t:fill(3) end,
    copy = function(t) t:copy_from(neap.full(t:dims(), 2)) end,
    lerp = function(t) t:lerp(neap.full(t:dims(), 2), 0.5) end,
  }

  for name, write in pairs(writes) do
    it(name .. " to an argument is an error with its number and the place", function()
      local message = regions.failure("modified in place", neap.scope, function()
        local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
        neap.checkpoint({ name = "middle" }, function(_, list)
          local y = op.gelu(x)
          write(list[1])
          return y
        end, 5, { op.silu(x) })
      end)
      assert.matches("^region 'middle': its tensor argument 1 was written in place by " .. name
        .. " in region 'middle'", message)
    end)

    it(name .. " to an argument in the recomputation alone is one, too", function()
      local message = differs("modified in place", function(y, again)
        local z = layers[1](y)
        if again then write(y) end
        return z
      end)
      assert.matches("its input 1 was written in place by " .. name .. " in region 'middle'",
        message, 1, true)
    end)

    it(name .. " to a tensor made inside is fine", function()
      for _, keep in ipairs({ false, "matmul" }) do
        regions.same(function(x, checkpoint)
          return op.mean(checkpoint({ keep = keep or nil, check = "value" }, function(a)
            local h = layers[1].linear(a)
            local double = op.scale(h, 2)
            write(h)
            h:copy_from(double)
            local made = neap.zeros({ 4, 8 })
            write(made)
            return layers[2](h * double + made)
          end, x))
        end, { parameters = parameters })
      end
    end)

    it(name .. " to what is saved is an error with both places", function()
      local message = regions.failure("modified in place", neap.scope, function()
        local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
        local y = op.gelu(x)
        local z = neap.checkpoint({ name = "middle" }, layers[1], y)
        neap.checkpoint({ name = "writer" }, function(a)
          write(y)
          return op.gelu(a)
        end, x)
        op.mean(z):backward()
      end)
      assert.matches("region 'middle': its saved input 1 was written in place after forward by "
        .. name .. " in region 'writer'", message, 1, true)
    end)

    it(name .. " to what the region uses from outside is an error that names the op", function()
      local outside = regions.tensor({ 4, 8 }, 2)
      local message = regions.failure("modified in place", neap.scope, function()
        local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
        local y = neap.checkpoint({ name = "middle" }, function(a)
          return op.gelu(op.silu(a) * outside)
        end, x)
        write(outside)
        op.mean(y):backward()
      end)
      assert.matches("region 'middle': input 2 of multiply (op 2) was written in place after "
        .. "the first forward by " .. name, message, 1, true)
      outside:free()
    end)

    it(name .. " to a result that the region keeps is an error", function()
      local message = regions.failure("modified in place", neap.scope, function()
        local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
        local h, y = neap.checkpoint({ name = "middle", keep = "matmul" }, function(a)
          local b = layers[1].linear(a)
          return b, op.gelu(b)
        end, x)
        write(h)
        op.mean(y):backward()
      end)
      assert.matches("the kept output 1 of linear (op 1) was written in place after the first "
        .. "forward by " .. name, message, 1, true)
    end)
  end

  it("an optimizer's step between forward and backward is an error that names the op", function()
    local plain = neap.optim.SGD(layers[1]:parameters())
    local message = regions.failure("modified in place", neap.scope, function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local y = neap.checkpoint({ name = "middle" }, layers[1], x)
      layers[1]:zero_grad()
      plain:step(0.1)
      op.mean(y):backward()
    end)
    assert.matches("norm (LayerNorm): input 2 of layernorm (op 1) was written in place after the "
      .. "first forward by sgd", message, 1, true)
    plain:free()
  end)

  for name, write in pairs(writes) do
    it(name .. " by a stage to its input is an error that names the stage, under every plan",
      function()
      local Writer = neap.nn.class("Writer")
      function Writer:forward(x) -- luacheck: ignore 212
        local y = op.scale(x, 2)
        write(x)
        return y
      end
      local chain = neap.nn.Sequential({ { "layer", models.Layer(16, 0) }, { "writer", Writer() },
        { "loss", models.Loss() } })
      local like, batch = models.chain(2, 16), models.batch(10, 16)
      local profile = neap.profile(like, batch)
      for _, policy in ipairs({ "none", "all", "segments:2", "by_name:layer.1" }) do
        local message = regions.failure("modified in place", models.run, chain, batch,
          neap.plan(policy, profile))
        assert.matches("stage 'writer'", message)
        assert.matches("written in place", message)
        assert.matches(name .. " in stage 'writer'", message, 1, true)
      end
      rawget(chain, "_executor"):free()
      chain:free()
      like:free()
    end)
  end

  it("to what a stage saved names the stage and op that saved it, and the writer", function()
    local kept
    local Saver, Writer = neap.nn.class("Saver"), neap.nn.class("Writer")
    function Saver:forward(x) -- luacheck: ignore 212
      kept = op.scale(x, 2):detach()
      C.neap_scope_leave(kept.id)
      return op.gelu(x * kept)
    end
    function Writer:forward(x) -- luacheck: ignore 212
      kept:fill(1)
      return op.scale(x, 1)
    end
    local chain = neap.nn.Sequential({ { "layer", models.Layer(16, 0) }, { "saver", Saver() },
      { "writer", Writer() }, { "loss", models.Loss() } })
    local like, batch = models.chain(3, 16), models.batch(10, 16)
    local message = regions.failure("modified in place", models.run, chain, batch,
      neap.plan("none", neap.profile(like, batch)))
    assert.matches("^stage 'saver' backward: multiply in stage 'saver': its saved input 2 was "
      .. "written in place after forward by fill in stage 'writer'", message)
    kept:free()
    rawget(chain, "_executor"):free()
    chain:free()
    like:free()
  end)
end)
