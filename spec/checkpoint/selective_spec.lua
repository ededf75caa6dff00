-- Selective recomputation in chains: products are kept, what is cheap is made again.
local models = require("spec.support.models")
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

-- the products by the position among a stage's products: the first two of each block
local function first_two()
  local stage, n
  return function(o)
    if o.stage ~= stage then stage, n = o.stage, 0 end
    if o.op == "linear" then n = n + 1 end
    return o.op == "linear" and n <= 2
  end
end

describe("selective recomputation of a transformer", function()
  local chain, batch, profile, device

  local function prepare(name)
    device = neap.device(name)
    collectgarbage()
    collectgarbage()
    chain, batch = models.gpt(2), models.tokens()
    local keep = first_two()
    profile = neap.profile(chain, batch, { cost = "flops", modes = { "matmul", "linear",
      "gelu,layernorm", { name = "mine", keep = keep },
      { name = "nothing", keep = function() return false end },
      { name = "everything", keep = function() return true end } } })
  end
  local function finish()
    local executor = rawget(chain, "_executor")
    if executor then executor:free() end
    chain:free()
    neap.device("cpu")
  end

  local SPECS = { "selective:matmul", "selective:linear", "selective:gelu,layernorm",
    { rules = { { "block.0", "selective:matmul" }, { "block.1", "recompute" } } },
    { rules = { { "block.0", "selective:linear" }, { "block.1", "selective:matmul" } } },
    { rules = { { "block", { policy = "selective", keep = first_two(), name = "mine" } } } } }

  it("gives the bits of keep-all, and the bytes that were measured, on cpu and null", function()
    for _, name in ipairs({ "cpu", "null" }) do
      prepare(name)
      local expected = models.run(chain, batch, neap.plan("none", profile))
      for _, spec in ipairs(SPECS) do
        local run = models.run_exactly(device, chain, batch, neap.plan(spec, profile), profile)
        assert.equal(expected.loss, run.loss)
        assert.same(expected.gradients, run.gradients)
      end
      finish()
    end
  end)

  describe("by counts of ops:", function()
    before_each(function() prepare("cpu") end)
    after_each(finish)

    local function counted(spec, names)
      local plan = neap.plan(spec, profile)
      local before, counts = {}, {}
      for k, name in ipairs(names) do before[k] = regions.count(name) end
      models.run(chain, batch, plan)
      for k, name in ipairs(names) do counts[name] = regions.count(name) - before[k] end
      return counts
    end
    local NAMES = { "linear", "attention", "layernorm", "gelu", "dropout", "add" }

    it("kept ops do not run again, the others do", function()
      local none = counted("none", NAMES)
      assert.same({ linear = 9, attention = 2, layernorm = 5, gelu = 2, dropout = 5, add = 5 },
        none)
      local kept = counted("selective:matmul", NAMES)
      assert.equal(none.linear, kept.linear)
      assert.equal(none.attention, kept.attention)
      assert.equal(none.layernorm + 5, kept.layernorm)
      assert.equal(none.gelu + 2, kept.gelu)
      -- what backward asks for goes as far as the first add of a block; its second dropout's mask
      -- is drawn again anyway
      assert.equal(none.dropout + 2, kept.dropout)
      assert.equal(none.add + 2, kept.add)
      local others = counted("selective:gelu,layernorm", NAMES)
      assert.equal(none.gelu, others.gelu)
      assert.equal(none.layernorm, others.layernorm)
      assert.is_true(others.linear > none.linear)
    end)

    it("a function is asked op by op, with its place, number and shape", function()
      local asked = {}
      neap.profile(chain, batch, { cost = "flops", modes = { { name = "asked",
        keep = function(o)
          if o.stage == "block.1" then asked[#asked + 1] = o end
          return false
        end } } })
      local names = {}
      for k, o in ipairs(asked) do
        names[k] = o.op
        assert.equal(k, o.number)
        assert.is_true(o.recorded)
      end
      assert.equal("layernorm linear attention linear dropout add layernorm linear gelu linear "
        .. "dropout add", table.concat(names, " "))
      assert.same({ 2, 8, 64 }, asked[9].shape)
      assert.equal(2 * 8 * 64 * 4, asked[9].bytes)
    end)

    it("a function keeps what it says in each stage, rules keep it in some", function()
      local none = counted("none", NAMES).linear
      local function rules(mode)
        return { rules = { { "block", { policy = "selective", keep = first_two(),
          name = mode } } } }
      end
      -- of each block's 4 products 2 are kept, the third runs again, the last is not needed
      assert.equal(none + 2, counted(rules("mine"), NAMES).linear)
      assert.equal(none + 6, counted(rules("nothing"), NAMES).linear)
      assert.equal(none, counted(rules("everything"), NAMES).linear)
      assert.equal(none + 3, counted({ rules = { { "block.0", "recompute" },
        { "block.1", "selective:linear" } } }, NAMES).linear)
    end)

    it("a plan brings what its functions keep, also to an executor of its own", function()
      local plan = neap.plan({ rules = { { "block", { policy = "selective", keep = first_two(),
        name = "mine" } } } }, profile)
      local executor = neap.executor(chain)
      assert.is_number(executor:run(batch, plan))
      executor:free()
      local actions = {}
      for k, action in ipairs(plan.actions) do actions[k] = action end
      executor = neap.executor(chain)
      local message = regions.failure("invalid plan", executor.run, executor, batch,
        { n_stages = plan.n_stages, actions = actions })
      assert.matches("what mode 'mine' keeps is not known here", message)
      executor:free()
    end)

    it("a step takes the policy alone", function()
      local expected = models.run(chain, batch, neap.plan("none", profile))
      for _, spec in ipairs({ "selective:matmul", { policy = "selective", keep = first_two() },
        { rules = { { "block.1", "selective:matmul" }, { "block.0", "recompute" } } } }) do
        assert.same(expected.gradients, models.run(chain, batch, spec).gradients)
      end
    end)

    it("it needs less than none and more than all", function()
      local peaks = {}
      for k, spec in ipairs({ "all", "selective:matmul", "none" }) do
        peaks[k] = neap.simulate(neap.plan(spec, profile), profile).peak_bytes
      end
      assert.is_true(peaks[1] < peaks[2] and peaks[2] < peaks[3], table.concat(peaks, " "))
    end)

    it("a function must say true or false", function()
      local message = regions.failure("usage", neap.profile, chain, batch,
        { modes = { { name = "odd", keep = function() return 1 end } } })
      assert.matches("keep must return true or false, found 1", message)
    end)
  end)

  it("leaves nothing after a step, nor after an error in one", function()
    prepare("cpu")
    local fuse
    local Bomb = neap.nn.class("Bomb")
    function Bomb:init() self.linear = neap.nn.Linear(16, 16) end
    function Bomb:forward(x)
      x = op.gelu(self.linear(x))
      if fuse == (neap.is_recomputing() and 2 or 1) then error("the fuse burnt") end
      return op.gelu(x)
    end
    local bombed = neap.nn.Sequential({ { "layer.0", models.Layer(16, 0.2) }, { "bomb", Bomb() },
      { "layer.1", models.Layer(16, 0.2) }, { "loss", models.Loss() } })
    local numbers = models.batch(10, 16)
    local measured = neap.profile(bombed, numbers, { cost = "flops", modes = { "matmul" } })
    local plan = neap.plan("selective:matmul", measured)
    local clean = models.run(bombed, numbers, plan)
    local before = regions.state(device)
    for k = 1, 2 do
      fuse = k
      assert.matches("stage 'bomb': the fuse burnt",
        regions.failure("error", models.run, bombed, numbers, plan))
      neap.rng({ seed = 5, step = 1, n_items = 10 })
      before.rng = regions.state(device).rng
      assert.same(before, regions.state(device))
    end
    fuse = nil
    local again = models.run(bombed, numbers, plan)
    assert.same(clean.gradients, again.gradients)
    assert.equal(before.live, device:memory().live_bytes)
    rawget(bombed, "_executor"):free()
    bombed:free()
    finish()
  end)

  it("works with the value check in an executor, as all other plans do", function()
    prepare("cpu")
    local expected = models.run(chain, batch, neap.plan("none", profile))
    local executor = neap.executor(chain, { check = "value" })
    executor:use_profile(profile)
    for _, spec in ipairs({ "none", "all", "segments:2", "selective:matmul" }) do
      chain:zero_grad()
      neap.rng({ seed = 5, step = 1, n_items = 2 })
      device:restart_peak("step")
      assert.equal(expected.loss, executor:run(batch, neap.plan(spec, profile)))
      assert.same(expected.gradients, models.gradient_bits(chain))
      assert.equal(0, device:memory().tags.check)
    end
    executor:free()
    finish()
  end)
end)

describe("an executor with the value check", function()
  it("finds a stage that computes other values, with its name and the difference", function()
    neap.device("cpu")
    local n = 0
    local Counting = neap.nn.class("Counting")
    function Counting:forward(x) -- luacheck: ignore 212
      n = n + 1
      return op.gelu(op.scale(x, n))
    end
    local chain = neap.nn.Sequential({ { "layer", models.Layer(16, 0) },
      { "counting", Counting() }, { "loss", models.Loss() } })
    local batch = models.batch(10, 16)
    local profile = neap.profile(chain, batch, { check = "none", cost = "flops" })
    for _, spec in ipairs({ "all", "segments:1", "by_name:counting" }) do
      local executor = neap.executor(chain, { check = "value" })
      local function run() return executor:run(batch, neap.plan(spec, profile)) end
      if spec == "segments:1" then
        assert.is_number(run()) -- nothing runs again
      else
        assert.matches("^stage 'counting': its values differ from the first forward: input 1 of "
          .. "gelu %(op 2%), %(10, 16%), largest difference %S+ at element %d+$",
          regions.failure("recomputation failed", run))
      end
      executor:free()
      executor = neap.executor(chain, { check = "shape" })
      assert.is_number(executor:run(batch, neap.plan(spec, profile)))
      executor:free()
    end
    chain:free()
  end)
end)
