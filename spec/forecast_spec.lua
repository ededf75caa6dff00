-- What a step will take, told from a twin of the model on the null device.
local C = require("neap.ffi").C
local forecasts = require("neap.forecast")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")

-- keeps a count of its calls in a buffer of four numbers
local Counting = neap.nn.class("Counting")
function Counting:init()
  self.table = neap.nn.Embedding(31, 8)
  self.count = neap.zeros({ 4 }, { tag = C.NEAP_TAG_BUFFERS })
end
function Counting:forward(x) return self.table(x) end

local Loss = neap.nn.class("Loss")
function Loss:forward(x) return neap.op.mean(x) end -- luacheck: ignore 212

local function gpt()
  return neap.nn.GPT({ vocabulary = 31, context = 16, width = 16, n_layer = 4, n_head = 2 })
end

local function forecast(build, chunks, more)
  local o = { build = build, chunks = chunks, context = 16,
    optimizer = function(model) return neap.optim.AdamW(model:parameters()) end }
  for key, value in pairs(more or {}) do o[key] = value end
  return forecasts.new(o)
end

describe("a forecast", function()
  it("counts a layer's buffers, and the two copies that recomputation takes of each", function()
    local found = forecast(function()
      return neap.nn.Sequential({ { "count", Counting() }, { "loss", Loss() } })
    end, { 2 })
    -- four numbers are 16 bytes, in a block of 64
    assert.equal(3 * 64, found.fixed.buffers)
    assert.matches("buffers +192 B", found:memory_table(found:predict("none")))
  end)

  it("says that no policy gains much where parameters dominate, and says so only there", function()
    local wide = forecast(function()
      return neap.nn.GPT({ vocabulary = 31, context = 4, width = 256, n_layer = 2, n_head = 2 })
    end, { 1 }, { context = 4 })
    assert.matches("activations are %d+%.%d%% of the peak; parameters, gradients and optimizer "
      .. "dominate", wide:policy_table("none"))
    assert.not_matches("dominate", forecast(gpt, { 64 }):policy_table("none"))
  end)

  it("leaves the default device as it was, and nothing alive on its own", function()
    local device = neap.device("cpu")
    forecast(gpt, { 3 })
    assert.equal(device, require("neap.device").current())
  end)

  it("has a plan for each chunk, and the peak of the largest", function()
    local found = forecast(gpt, { 4, 4, 2 })
    local spec = "optimal:auto"
    local p = found:predict(spec)
    assert.same({ 2, 4 }, { p.plans[2] and 2, p.plans[4] and 4 })
    assert.equal(4, p.chunk)
    assert.is_true(neap.simulate(p.plans[2], found.profiles[2]).peak_bytes
      < neap.simulate(p.plans[4], found.profiles[4]).peak_bytes)
  end)

  it("plans each chunk under what the device budget leaves for it", function()
    local free = forecast(gpt, { 4, 2 })
    local none = free:predict("none")
    local small = free.fixed_bytes + free.batch_bytes[2]
      + neap.simulate(none.plans[2], free.profiles[2]).peak_bytes
    -- room for keeping everything of two items, not of four
    local found = forecast(gpt, { 4, 2 }, { budget = small })
    local p = found:predict("optimal:auto")
    assert.is_true(p.peak_bytes <= small)
    assert.equal(6, neap.simulate(p.plans[2], found.profiles[2]).forwards)
    assert.is_true(neap.simulate(p.plans[4], found.profiles[4]).forwards > 6)
  end)

  it("gives the least plan and the reason where a plan budget cannot be kept", function()
    local found = forecast(gpt, { 4 })
    local p = found:predict("optimal:64")
    assert.matches("the least feasible peak of these 6 stages is %d+ bytes", p.infeasible)
    assert.equal(neap.frontier(found.profiles[4]).least_bytes, p.plan_bytes)
    assert.equal(p.infeasible, failure_of("does not fit", found.refuse, found, "optimal:64", p))
    assert.matches("optimal:64 .* does not fit", found:policy_table("optimal:64", 2 ^ 40))
    assert.is_nil(found:predict("segments:2").infeasible)
  end)

  it("knows how stages are kept that a policy keeps selectively", function()
    local found = forecast(gpt, { 4 }, { modes = { "matmul" } })
    local kept, none = found:predict("selective:matmul"), found:predict("none")
    assert.is_true(kept.peak_bytes < none.peak_bytes)
    assert.is_true(kept.cost >= none.cost)
    assert.matches("was not measured in mode 'linear'",
      failure_of("usage", found.predict, found, "selective:linear"))
  end)

  it("is printed beside what a run measured", function()
    local config = require("neap.config").load(nil, { "n_layer=2", "n_head=1", "width=8",
      "context=8", "chunk=2", "steps=1", "device=null", "budget=1GiB", "checkpoint=all",
      "data=README.md" })
    local trainer = require("neap.trainer").new(config, { tell = function() end,
      build = function(_, data)
        return neap.nn.GPT({ vocabulary = data.n_vocabulary, context = 8, width = 8, n_layer = 2,
          n_head = 1 })
      end })
    trainer:prepare()
    trainer:train_step()
    trainer:fill({})
    local text = tostring(trainer.prediction.plans[2])
    local predicted = text:match("predicted peak ([%d.]+ %a+)")
    assert.matches("measured peak " .. predicted, text, 1, true)
    trainer:free()
  end)
end)
