-- Buffers under recomputation: written once a step, and seen as they were by what runs again.
local models = require("spec.support.models")
local module = require("neap.nn.module")
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

-- a running mean of each column, and how many batches it saw
local Running = neap.nn.class("Running")
function Running:init(width)
  self.mean, self.tracked = module.buffer({ width }, 0), module.buffer({ 1 }, 0)
end
function Running:forward(x)
  local now = op.mean(x:detach(), 1)
  self.mean:copy_from(op.scale(self.mean, 0.9) + op.scale(now, 0.1))
  self.tracked:copy_from(self.tracked + neap.full({ 1 }, 1))
  return op.tanh(x)
end

-- like spectral norm: one step of an iteration, whose result the weight is divided by
local Iterating = neap.nn.class("Iterating")
function Iterating:init(width)
  self.linear = neap.nn.Linear(width, width)
  self.u = module.buffer({ 1, width }, 0.25)
end
function Iterating:forward(x)
  local v = op.linear(self.u, self.linear.weight:detach())
  local length = math.sqrt(op.sum(v * v):item() + 1e-6) -- null reads zeros
  self.u:copy_from(op.scale(v, 1 / length))
  -- a copy of it, because the layer may run twice in a forward
  return op.tanh(op.linear(x, op.scale(self.linear.weight, 1 / length))
    * op.reshape(op.scale(self.u, 1), { self.u:numel() }))
end

-- the layers of a stage, once more inside a region when told so
local Stage = neap.nn.class("Stage")
function Stage:init(options)
  self.norm, self.running, self.iterating = neap.nn.BatchNorm(8), Running(8), Iterating(8)
  self.layer = models.Layer(8, 0.3)
  rawset(self, "options", options)
end
local function body(self, x)
  return self.iterating(self.running(self.layer(self.norm(self.iterating(x)))))
end
function Stage:forward(x)
  if not self.options then return body(self, x) end
  return neap.checkpoint(self.options, body, self, x)
end

local function chain_of(options)
  neap.manual_seed(3)
  local list = {}
  for i = 0, 3 do list[#list + 1] = { "stage." .. i, Stage(options) } end
  list[#list + 1] = { "loss", models.Loss() }
  return neap.nn.Sequential(list)
end

local function bits(layer)
  local out = {}
  for _, b in ipairs(layer:buffers()) do out[b.name] = b.tensor:bits() end
  return out
end

describe("a buffer", function()
  before_each(function()
    neap.device("cpu")
    collectgarbage()
    collectgarbage()
  end)

  local function free(chain)
    if rawget(chain, "_executor") then rawget(chain, "_executor"):free() end
    chain:free()
    neap.device("cpu")
  end

  it("moves once a step: 0.1 of the way from 0 to the batch's 1, tracked once", function()
    for _, how in ipairs({ "plain", "none", "all", "segments:1", "segments:2", "region" }) do
      local Middle = neap.nn.class("Middle")
      function Middle:init() self.running = Running(8) end
      function Middle:forward(x)
        if how == "region" then return neap.checkpoint(self.running, x) end
        return self.running(x)
      end
      neap.manual_seed(3)
      local chain = neap.nn.Sequential({ { "running", Middle() }, { "layer", models.Layer(8, 0) },
        { "loss", models.Loss() } })
      local batch = { inputs = neap.full({ 4, 8 }, 1), targets = neap.full({ 4, 8 }, 0) }
      if how == "plain" or how == "region" then
        neap.scope(function()
          local x = neap.full({ 4, 8 }, 1)
          x:requires_grad()
          chain(x, { batch = batch }):backward()
        end)
      else
        models.run(chain, batch, how)
      end
      local running = chain.stages[1].module.running
      for _, v in ipairs(running.mean:table()) do assert.near(0.1, v, 1e-7) end
      assert.equal(1, running.tracked:item())
      batch.inputs:free()
      batch.targets:free()
      free(chain)
    end
  end)

  for _, options in ipairs({ false, {}, { check = "value" }, { keep = "matmul" } }) do
    local how = not options and "without regions" or string.format("inside regions with %s %s",
      options.check and "check" or "keep", options.check or options.keep or "nothing")
    it("has the bits of keep-all under every plan, and so has what uses it, " .. how, function()
      local function restart(chain)
        for _, buffer in ipairs(chain:buffers()) do
          buffer.tensor:fill(buffer.name:find("u$") and 0.25
            or buffer.name:find("variance$") and 1 or 0)
        end
      end
      local expected
      for _, name in ipairs({ "cpu", "null" }) do
        local device = neap.device(name)
        local plain, chain, batch = chain_of(), chain_of(options or nil), models.batch(6, 8)
        local before = bits(chain)
        local profile = neap.profile(chain, batch, { cost = "flops",
          modes = { "matmul", "linear" } })
        assert.same(before, bits(chain))
        for _, spec in ipairs({ "none", "all", "every_n:2", "segments:2", "segments:3", "revolve:2",
          "selective:matmul", { rules = { { "stage.1", "selective:linear" },
            { "stage.2", "recompute" } } } }) do
          if name == "cpu" and not expected then
            local plan = neap.plan("none", profile)
            models.run(plain, batch, plan)
            local run = models.run(plain, batch, plan)
            expected = { run.loss, run.gradients, bits(plain) }
          end
          restart(chain)
          assert.same(before, bits(chain))
          local run = models.run_exactly(device, chain, batch, neap.plan(spec, profile), profile)
          if name == "cpu" then -- after two steps
            assert.same(expected, { run.loss, run.gradients, bits(chain) })
            assert.equal(2, chain.stages[1].module.running.tracked:item())
          end
        end
        free(plain)
        free(chain)
      end
    end)
  end

  it("is seen as it was by regions inside of regions, three deep", function()
    neap.manual_seed(3)
    local layer = Stage()
    local parameters = {}
    for _, p in ipairs(layer:parameters()) do parameters[#parameters + 1] = p.tensor end
    local found = {}
    for k, checkpoint in ipairs({ regions.plain, neap.checkpoint }) do
      for _, buffer in ipairs(layer:buffers()) do buffer.tensor:fill(0.25) end
      found[k] = { regions.run(function(x)
        local function nest(y, depth)
          if depth == 0 then return layer(y) end
          return checkpoint(function(z) return nest(layer(nest(z, depth - 1)), depth - 1) end, y)
        end
        return op.mean(nest(x, 3))
      end, { parameters = parameters }), bits(layer) }
    end
    assert.same(found[1], found[2])
    layer:free()
  end)

  it("is as before after a step that failed, wherever it failed", function()
    local fuse
    local Bomb = neap.nn.class("Bomb")
    function Bomb:init() self.stage = Stage() end
    function Bomb:forward(x)
      x = self.stage(x)
      if fuse == (neap.is_recomputing() and "recomputation" or "first forward") then
        error("the fuse burnt")
      end
      return x
    end
    neap.manual_seed(3)
    local chain = neap.nn.Sequential({ { "stage.0", Stage() }, { "bomb", Bomb() },
      { "stage.1", Stage() }, { "loss", models.Loss() } })
    local batch = models.batch(6, 8)
    local profile = neap.profile(chain, batch, { cost = "flops", modes = { "matmul" } })
    local before = bits(chain)
    for _, spec in ipairs({ "none", "all", "segments:2", "selective:matmul" }) do
      local plan = neap.plan(spec, profile)
      for _, when in ipairs({ "first forward", "recomputation" }) do
        fuse = when
        local ok = pcall(models.run, chain, batch, plan)
        if spec == "all" or when == "first forward" then assert.is_false(ok) end
        if not ok then assert.same(before, bits(chain)) end
        before = bits(chain)
      end
    end
    free(chain)
  end)

  it("has copies in an executor that are fixed bytes of their own tag, freed with it", function()
    local device = neap.device("cpu")
    local chain, batch = chain_of(), models.batch(6, 8)
    local function buffer_bytes() return device:memory().tags.buffers end
    local own = 0
    for _, b in ipairs(chain:buffers()) do own = own + b.tensor:bytes() end
    collectgarbage("stop")
    local before = buffer_bytes()
    local executor = neap.executor(chain)
    assert.equal(before + 2 * own, buffer_bytes())
    local profile = neap.profile(chain, batch, { cost = "flops" })
    assert.equal(before + 2 * own, buffer_bytes())
    for _, spec in ipairs({ "none", "all", "segments:2" }) do
      executor:run(batch, neap.plan(spec, profile))
      assert.equal(before + 2 * own, buffer_bytes())
    end
    executor:free()
    assert.equal(before, buffer_bytes())
    collectgarbage("restart")
    free(chain)
  end)

  it("is left alone by evaluation, and by a profile, which leaves random numbers, too", function()
    local chain, batch = chain_of({}), models.batch(6, 8)
    local before = bits(chain)
    neap.rng({ seed = 9, step = 4, call = 7 })
    local position = regions.state(neap.device("cpu")).rng
    neap.profile(chain, batch, { cost = "flops", modes = { "matmul" } })
    assert.equal(position, regions.state(neap.device("cpu")).rng)
    assert.same(before, bits(chain))
    -- also by one that fails
    local broken = models.batch(6, 8)
    broken.targets = neap.full({ 1 }, 0)
    assert.is_false((pcall(neap.profile, chain, { inputs = broken.inputs, targets = nil })))
    assert.equal(position, regions.state(neap.device("cpu")).rng)
    assert.same(before, bits(chain))
    free(chain)
  end)

  it("that is freed, or written by the caller, after a region's forward does not disturb it",
    function()
    for _, what in ipairs({ "free", "fill" }) do
      neap.manual_seed(3)
      local layer = Iterating(8)
      local x = regions.tensor({ 4, 8 }, 1, { requires_grad = true })
      local function grad(checkpoint, meddle)
        layer.u:fill(0.25)
        x:zero_grad()
        layer:zero_grad()
        neap.scope(function()
          local y = op.mean(checkpoint(layer, x))
          if meddle == "fill" then layer.u:fill(7) end
          y:backward()
        end)
        return { x:grad():bits(), layer.linear.weight:grad():bits() }
      end
      assert.same(grad(regions.plain), grad(neap.checkpoint, what))
      if what == "fill" then assert.equal(7, layer.u:table()[1]) end
      layer:free()
      x:free()
    end
  end)
end)
