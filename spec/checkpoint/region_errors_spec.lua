-- What goes wrong in checkpointed regions: one sentence with the region's name, and everything as
-- before.
local C = require("neap.ffi").C
local fail = require("neap.fail")
local models = require("spec.support.models")
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

describe("an error in a checkpointed region", function()
  local device, layers, parameters, broken
  local armed = false

  setup(function()
    device = neap.device("cpu")
    broken = op.define({ name = "broken_in_a_region", n_inputs = 1,
      forward = function(_, x) return op.scale(x, 1) end,
      backward = function(_, g)
        if armed == "backward" then error("the fuse burnt") end
        return op.scale(g, 1)
      end })
  end)

  before_each(function()
    neap.device("cpu")
    neap.manual_seed(3)
    layers, parameters = {}, {}
    for i = 1, 4 do
      layers[i] = models.Layer(8, 0.3)
      for _, p in ipairs(layers[i]:parameters()) do parameters[#parameters + 1] = p.tensor end
    end
    for _, p in ipairs(parameters) do p:zero_grad() end
    collectgarbage()
    collectgarbage()
  end)
  after_each(function()
    C.neap_memory_fail(0, 0)
    for _, layer in ipairs(layers) do layer:free() end
  end)

  local function now() return neap.is_recomputing() and "recomputation" or "first forward" end

  -- layers around a region that fails where it is told to
  local function loss(x, checkpoint)
    x = layers[1](x)
    x = checkpoint({ name = "middle" }, function(y)
      y = layers[2](y)
      if armed == now() then error("the fuse burnt") end
      if armed == "usage in " .. now() then fail.usage("the fuse is wet") end
      return layers[3](broken(y))
    end, x)
    return op.mean(layers[4](x))
  end

  -- fails like that, changes nothing, and the next pass is as if it had not been
  local function check_failure(kind, when, fn)
    armed = false
    local clean = regions.run(loss, { parameters = parameters })
    local position = { seed = 9, step = 4, call = 7 }
    neap.rng(position)
    local before = regions.state(device)
    armed = when
    local message = regions.failure(kind, neap.scope, fn)
    assert.same(before, regions.state(device))
    armed = false
    assert.same(clean, regions.run(loss, { parameters = parameters }))
    return message
  end

  local function pass()
    local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
    local y = loss(x, neap.checkpoint)
    -- where numbers are drawn is the caller's; what a region draws must not show up there
    local position = regions.state(device).rng
    local ok, err = pcall(y.backward, y)
    assert.equal(position, regions.state(device).rng)
    neap.rng({ seed = 9, step = 4, call = 7 })
    if not ok then error(err, 0) end
  end

  for _, when in ipairs({ "first forward", "recomputation", "backward" }) do
    it("leaves everything as before when it is thrown in the " .. when, function()
      local message = check_failure("error", when, function()
        if when == "first forward" then
          local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
          local position = regions.state(device).rng
          local y = layers[1].linear(x) -- draws nothing
          local ok, err = pcall(neap.checkpoint, { name = "middle" }, function(z)
            z = layers[2](z)
            error("the fuse burnt" .. z:numel())
          end, y)
          assert.equal(position, regions.state(device).rng)
          assert.is_false(ok)
          error(err, 0)
        end
        pass()
      end)
      assert.matches("region 'middle'", message)
      assert.matches("the fuse burnt", message)
    end)
  end

  it("keeps its kind", function()
    local message = check_failure("usage", "usage in recomputation", pass)
    assert.equal("region 'middle': the fuse is wet", message)
  end)

  it("names a region by where its function is, when it has no name", function()
    local message = regions.failure("error", neap.scope, function()
      neap.checkpoint(function() error("the fuse burnt") end)
    end)
    assert.matches("^region 'region_errors_spec.lua:%d+': the fuse burnt$", message)
    local Named = neap.nn.class("Named")
    function Named:forward() error("the fuse burnt") end -- luacheck: ignore 212
    message = regions.failure("error", neap.scope, neap.checkpoint, Named())
    assert.matches("^region 'Named': ", message)
  end)

  it("names all regions it came through", function()
    local message = regions.failure("error", neap.scope, function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local y = neap.checkpoint({ name = "outer" }, function(a)
        return neap.checkpoint({ name = "inner" }, function(b)
          if neap.is_recomputing() then error("the fuse burnt") end
          return layers[2](b)
        end, layers[1](a))
      end, x)
      op.mean(y):backward()
    end)
    assert.matches("^region 'outer': region 'inner': the fuse burnt$", message)
  end)

  for _, count in ipairs({ 1, -1 }) do
    it("may be memory that runs out at any allocation, " .. (count == 1 and "once" or "for good"),
      function()
      -- only layers: what fails on the way is an error, or was tried once more and succeeded
      local function scenario()
        return regions.run(loss, { parameters = parameters })
      end
      local clean = scenario()
      neap.rng({ seed = 9, step = 4, call = 7 })
      collectgarbage()
      collectgarbage()
      local before, k, n_failed = regions.state(device), 0, 0
      repeat
        k = k + (count == 1 and 1 or 3)
        neap.rng({ seed = 9, step = 4, call = 7 })
        C.neap_memory_fail(k, count)
        local ok, result = pcall(scenario)
        local reached = C.neap_memory_n_attempts() >= k
        C.neap_memory_fail(0, 0)
        if ok then
          assert.same(clean, result)
        else
          n_failed = n_failed + 1
          assert.is_true(fail.is(result, "out of memory"), tostring(result))
        end
        neap.rng({ seed = 9, step = 4, call = 7 })
        assert.same(before, regions.state(device))
      until not reached
      assert.is_true(k > 40)
      if count == -1 then assert.equal(k / 3 - 1, n_failed) end
      assert.same(clean, scenario())
    end)
  end

  it("is a second backward: its history was freed", function()
    neap.scope(function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local y = loss(x, neap.checkpoint)
      y:backward()
      local before = x:grad():bits()
      assert.matches("history was freed already", regions.failure("graph", y.backward, y))
      assert.same(before, x:grad():bits())
    end)
  end)

  it("is a backward inside a region, in its first forward and in its recomputation", function()
    for _, when in ipairs({ "first forward", "recomputation" }) do
      local message = regions.failure("graph", neap.scope, function()
        local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
        local y = neap.checkpoint({ name = "middle", check = "none" }, function(a)
          local b = op.gelu(a)
          if now() == when then op.mean(b):backward() end
          return layers[1](b)
        end, x)
        op.mean(y):backward()
      end)
      assert.matches("region 'middle': .*is running", message)
    end
    assert.is_false(neap.is_recomputing())
  end)

  it("is a gradient of a gradient, through a region or not; its detach() is a constant", function()
    local function run(x, checkpoint, constant)
      op.mean(checkpoint(layers[1], x)):backward()
      local grad = x:grad()
      if constant then grad = grad:detach() end
      grad = op.scale(grad, 2) -- read before the next backward adds to it
      return op.mean(checkpoint(function(a, g) return layers[2](a) * g end, x, grad))
    end
    for _, checkpoint in ipairs({ neap.checkpoint, function(fn, ...) return fn(...) end }) do
      neap.scope(function()
        local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
        local y = run(x, checkpoint)
        assert.matches("computed from a gradient", regions.failure("graph", y.backward, y))
      end)
    end
    regions.same(function(x, checkpoint) return run(x, checkpoint, true) end,
      { parameters = parameters })
  end)

  it("is a region that nobody knows how to run again", function()
    neap.scope(function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local y = op.mean(neap.checkpoint({ name = "middle" }, layers[1], x))
      local again = require("neap.checkpoint.region_again").regions
      for trace in pairs(again) do again[trace] = nil end
      assert.matches("nobody knows how to run the region again",
        regions.failure("recomputation failed", y.backward, y))
    end)
    assert.equal(0, C.neap_tape_n_nodes(C.neap_tape_selected()))
  end)

  it("is drawing random numbers without their position", function()
    local message = regions.failure("wrong state", neap.scope, function()
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      neap.checkpoint({ name = "middle", preserve_rng = false }, layers[1], x)
    end)
    assert.matches("^region 'middle': it draws random numbers", message)
  end)
end)
