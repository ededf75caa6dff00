-- Profiles whose costs are time: measured on the device, estimated for a machine.
local neap = require("neap")
local timing = require("neap.checkpoint.timing")
local failure_of = require("spec.support.failure_of")
local models = require("spec.support.models")

local COSTS = { forward_cost = true, backward_cost = true, recompute_cost = true }

-- all of a profile but its costs
local function bytes_of(profile)
  local list = {}
  for i, stage in ipairs(profile.stages) do
    list[i] = {}
    for key, value in pairs(stage) do
      if not COSTS[key] then list[i][key] = value end
    end
  end
  return list
end

describe("a profile in seconds", function()
  local chain, batch, flops

  before_each(function()
    neap.device("cpu")
    chain, batch = models.chain(4, 16, 0.1), models.batch(8, 16)
    flops = neap.profile(chain, batch, { cost = "flops" })
  end)

  it("holds whole nanoseconds, the same for equal stages, and the exact bytes", function()
    local profile = neap.profile(chain, batch, { cost = "seconds", runs = 3 })
    assert.equal("nanoseconds", profile.unit)
    assert.same(bytes_of(flops), bytes_of(profile))
    for _, stage in ipairs(profile.stages) do
      for key in pairs(COSTS) do
        if stage[key] then assert.equal(0, stage[key] % 1) end
      end
    end
    -- the first stage makes no gradient of its input: it is another one
    for i = 3, 4 do
      assert.equal(profile.stages[2].forward_cost, profile.stages[i].forward_cost)
      assert.equal(profile.stages[2].backward_cost, profile.stages[i].backward_cost)
    end
  end)

  it("is what is measured where kernels run, and FLOPs on null", function()
    assert.equal("nanoseconds", neap.profile(chain, batch).unit)
    assert.equal("FLOPs", flops.unit)
    neap.device("null")
    assert.equal("FLOPs", neap.profile(models.chain(2, 16), models.batch(8, 16)).unit)
  end)

  it("leaves parameters and bits as they were", function()
    local before = models.run(chain, batch, neap.plan("none", flops))
    neap.profile(chain, batch, { cost = "seconds", runs = 2 })
    local after = models.run(chain, batch, neap.plan("none", flops))
    assert.equal(before.loss, after.loss)
    assert.same(before.gradients, after.gradients)
  end)

  it("refuses what it cannot do", function()
    local function refused(options)
      return failure_of("usage", neap.profile, chain, batch, options)
    end
    assert.matches("unknown cost 'second', did you mean 'seconds'", refused({ cost = "second" }))
    assert.matches("runs must be a whole number, 1 to 1000", refused({ runs = 0 }))
    assert.matches("a machine is for cost", refused({ machine = "h200" }))
    assert.matches("unknown option 'run', did you mean 'runs'", refused({ run = 1 }))
    assert.matches("expected a Sequential", failure_of("usage", neap.profile, 7, batch))
    assert.matches("batch", failure_of("usage", neap.profile, chain))
  end)
end)

describe("costs of equal stages", function()
  local function stage(name, saved, cost)
    return { name = name, saved_bytes = saved, forward_cost = cost, backward_cost = 2 * cost,
      modes = { { name = "m", saved_bytes = 1, forward_cost = cost + 1, backward_cost = cost } } }
  end

  it("become their mean, also in modes; other stages keep theirs", function()
    local profile = { stages = { stage("a", 5, 10), stage("b", 5, 13), stage("c", 6, 90) } }
    timing.average(profile, { "x", "x", "y" })
    local found = {}
    for i, s in ipairs(profile.stages) do
      found[i] = { s.forward_cost, s.backward_cost, s.modes[1].forward_cost }
    end
    assert.same({ { 12, 23, 13 }, { 12, 23, 13 }, { 90, 180, 91 } }, found)
  end)

  it("are told apart by anything but the name", function()
    local a, b = stage("a", 5, 10), stage("b", 5, 10)
    assert.equal(timing.signature(a), timing.signature(b))
    b.modes[1].saved_bytes = 2
    assert.not_equal(timing.signature(a), timing.signature(b))
    b = stage("b", 5, 11)
    assert.not_equal(timing.signature(a), timing.signature(b))
    b = stage("b", 6, 10)
    assert.not_equal(timing.signature(a), timing.signature(b))
  end)
end)

describe("an estimate of time", function()
  local chain, batch

  before_each(function()
    neap.device("null")
    chain, batch = models.chain(3, 32), models.batch(8, 32)
  end)

  local function estimate(machine)
    return neap.profile(chain, batch, { cost = "estimate", machine = machine })
  end

  it("divides FLOPs by what a machine computes a second, and bytes by what it moves", function()
    local flops = neap.profile(chain, batch)
    local fast_memory = estimate({ gflops = 1, gbytes = 1e15 })
    local fast_products = estimate({ gflops = 1e15, gbytes = 1 })
    for i, stage in ipairs(flops.stages) do
      assert.equal(stage.forward_cost, fast_memory.stages[i].forward_cost)
      assert.equal(stage.backward_cost, fast_memory.stages[i].backward_cost)
      -- at least what the stage makes is written
      assert.is_true(fast_products.stages[i].forward_cost >= stage.out_bytes + stage.saved_bytes)
    end
    assert.same(bytes_of(flops), bytes_of(fast_memory))
  end)

  it("knows machines by name, and this one by a short measurement", function()
    local a, b = estimate("h200"), estimate("v100-sxm2")
    assert.equal("h200", a.machine)
    for i, stage in ipairs(a.stages) do
      assert.is_true(stage.forward_cost <= b.stages[i].forward_cost)
    end
    local here = estimate()
    assert.equal("this machine", here.machine)
    assert.is_true(here.stages[1].backward_cost > 0)
    assert.equal("null", neap.profile(chain, batch) and require("neap.device").current().name)
  end)

  it("refuses a machine that is none", function()
    assert.matches("unknown machine 'h20', did you mean 'h200'", failure_of("usage", estimate,
      "h20"))
    for _, machine in ipairs({ { gflops = 0, gbytes = 1 }, { gflops = 1, gbytes = 0 / 0 },
      { gflops = 1 }, { gflops = 1, gbytes = 1, gbyte = 1 }, 7 }) do
      assert.matches("machine", failure_of("usage", estimate, machine))
    end
  end)
end)
