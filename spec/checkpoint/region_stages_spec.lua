-- Regions inside a chain's stages, under every kind of plan.
local models = require("spec.support.models")
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

local POLICIES = { "none", "all", "every_n:2", "segments:2", "segments:3", "revolve:2" }

describe("a region inside a stage", function()
  local Inner = neap.nn.class("Inner")
  function Inner:init(options, inner)
    self.first, self.second = models.Layer(16, 0.3), models.Layer(16, 0.3)
    rawset(self, "options", options)
    rawset(self, "inner", inner)
  end
  function Inner:forward(x)
    local checkpoint = self.options and neap.checkpoint or regions.plain
    return checkpoint(self.options or {}, function(y)
      y = self.inner and checkpoint(self.options, self.first, y) or self.first(y)
      return op.gelu(self.second(y)), y
    end, op.scale(x, 2)) + x
  end

  local function chain_of(options, inner)
    neap.manual_seed(3)
    local list = {}
    for i = 0, 4 do list[#list + 1] = { "stage." .. i, Inner(options, inner) } end
    list[#list + 1] = { "loss", models.Loss() }
    return neap.nn.Sequential(list)
  end

  local variants = {
    { "plain", {} }, { "checked by value", { check = "value" } },
    { "that keeps products", { keep = "matmul" } }, { "with one inside", {}, true },
  }

  for _, variant in ipairs(variants) do
    it(variant[1] .. " gives the bits and the bytes that were measured", function()
      local expected
      for _, name in ipairs({ "cpu", "null" }) do
        local device = neap.device(name)
        local chain, batch = chain_of(variant[2], variant[3]), models.batch(10, 16)
        local profile = neap.profile(chain, batch, { cost = "flops" })
        for _, policy in ipairs(POLICIES) do
          local run = models.run_exactly(device, chain, batch, neap.plan(policy, profile), profile)
          if name == "cpu" then
            if not expected then
              local without = chain_of()
              expected = models.run(without, batch, neap.plan("none", profile))
              without:free()
            end
            assert.equal(expected.loss, run.loss)
            assert.same(expected.gradients, run.gradients)
          end
        end
        rawget(chain, "_executor"):free()
        chain:free()
        collectgarbage()
      end
      neap.device("cpu")
    end)
  end

  it("is checked by value in the stage's recomputation, too", function()
    neap.device("cpu")
    local n = 0
    local Counting = neap.nn.class("Counting")
    function Counting:forward(x) -- luacheck: ignore 212
      return neap.checkpoint({ name = "middle", check = "value" }, function(y)
        n = n + 1
        return op.gelu(op.scale(y, n))
      end, x)
    end
    local chain = neap.nn.Sequential({ { "layer", models.Layer(16, 0) },
      { "counting", Counting() }, { "loss", models.Loss() } })
    local batch = models.batch(10, 16)
    -- a plan of a chain like it, because measuring would find the difference already
    local like = models.chain(2, 16)
    local plan = neap.plan("by_name:layer.1", neap.profile(like, batch))
    like:free()
    n = 0
    assert.matches("stage 'counting' backward: region 'middle': its values differ",
      regions.failure("recomputation failed", models.run, chain, batch, plan))
    assert.equal(3, n)
    rawget(chain, "_executor"):free()
    chain:free()
  end)

  it("runs each op as often as the plan and the region ask for", function()
    neap.device("cpu")
    local chain, batch = chain_of({}), models.batch(10, 16)
    local profile = neap.profile(chain, batch, { cost = "flops" })
    local function counted(policy)
      local plan = neap.plan(policy, profile)
      return regions.counted("linear", function() models.run(chain, batch, plan) end)
    end
    assert.equal(10 + 10, counted("none"))
    -- a stage that runs again needs nothing of what its region makes, the region itself does
    assert.equal(10 + 10, counted("all"))
    -- all stages but the last of the first segment are needed by the next one
    assert.equal(10 + 2 * 2 + 10, counted("segments:2"))
    rawget(chain, "_executor"):free()
    chain:free()
  end)

  it("saves memory beyond what the plan saves", function()
    neap.device("cpu")
    local batch = models.batch(64, 16)
    local peaks = {}
    for k, options in ipairs({ false, {} }) do
      local chain = chain_of(options or nil)
      local profile = neap.profile(chain, batch, { cost = "flops" })
      local plan = neap.plan("none", profile)
      peaks[k] = neap.simulate(plan, profile).peak_bytes
      chain:free()
    end
    assert.is_true(peaks[2] < 0.6 * peaks[1])
  end)
end)

describe("a chain of 16 layers and more", function()
  it("peaks lower under plans that recompute, with the same bits on 1 and on 2 threads", function()
    local device = neap.device("cpu")
    local chain, batch = models.chain(18, 16, 0.3), models.batch(32, 16)
    local profile = neap.profile(chain, batch, { cost = "flops" })
    local expected, most
    for threads = 1, 2 do
      neap.threads(threads)
      for _, policy in ipairs({ "none", "all", "every_n:2", "segments:4",
        "segments:auto", "revolve:4", "optimal:60%" }) do
        local made = policy == "optimal:60%" and { policy = "optimal",
          budget = math.floor(0.6 * most) } or policy
        local run, peak = models.run_exactly(device, chain, batch, neap.plan(made, profile),
          profile)
        expected, most = expected or run, most or peak
        assert.equal(expected.loss, run.loss)
        assert.same(expected.gradients, run.gradients)
        if policy ~= "none" then assert.is_true(peak < 0.85 * most, policy) end
      end
    end
    neap.threads(1)
    rawget(chain, "_executor"):free()
    chain:free()
  end)
end)

describe("names and bits of parameters", function()
  it("are the same whether steps recomputed or not", function()
    neap.device("cpu")
    local found = {}
    for k, policy in ipairs({ "none", "all", "segments:2" }) do
      local chain, batch = models.gpt(2), models.tokens()
      local optimizer = neap.optim.AdamW(chain:parameters())
      local plan = neap.plan(policy, neap.profile(chain, batch, { cost = "flops" }))
      for _ = 1, 2 do
        models.run(chain, batch, plan)
        optimizer:step(1e-2)
      end
      local path = os.tmpname()
      require("neap.state").save(path, { model = chain, optimizer = optimizer,
        counts = { step = 2, position = 4, seed = 5 } })
      local file = assert(io.open(path, "rb"))
      found[k] = file:read("*a")
      file:close()
      os.remove(path)
      rawget(chain, "_executor"):free()
      chain:free()
      optimizer:free()
    end
    assert.is_true(found[1] == found[2])
    assert.is_true(found[1] == found[3])
  end)
end)
