-- Copies for the value check: predicted, counted under their own tag, gone after the step.
local neap = require("neap")
local nn = neap.nn

local function run(name, spec)
  local device = neap.device(name)
  local model = nn.GPT({ vocabulary = 65, context = 32, width = 32, n_head = 4, n_layer = 3,
    dropout = 0.1 })
  local batch = { inputs = neap.full({ 4, 32 }, 3, { dtype = "i32" }),
    targets = neap.full({ 4, 32 }, 5, { dtype = "i32" }) }
  local profile = neap.profile(model, batch, { cost = "flops", check = "value" })
  local executor = neap.executor(model, { check = "value" })
  executor:use_profile(profile)
  local plan = neap.plan(spec, profile)
  device:restart_peak("step")
  executor:run(batch, plan)
  local memory, predicted = device:memory(), executor:predicted_check_bytes(plan)
  batch.inputs:free()
  batch.targets:free()
  model:free()
  return predicted, memory.tags_at_peak.check, memory.tags.check
end

describe("the value check", function()
  for _, device in ipairs({ "cpu", "null" }) do
    it("takes the bytes that were predicted, under the tag check, on " .. device, function()
      for _, spec in ipairs({ "segments:2", "every_n:2" }) do
        local predicted, at_peak = run(device, spec)
        assert.is_true(predicted > 0)
        assert.equal(predicted, at_peak)
      end
    end)

    it("takes nothing where nothing is recomputed, on " .. device, function()
      local predicted, at_peak = run(device, "none")
      assert.equal(0, predicted)
      assert.equal(0, at_peak)
    end)

    it("leaves no copy behind, on " .. device, function()
      local predicted, _, after = run(device, "all")
      assert.is_true(predicted > 0)
      assert.equal(0, after)
    end)
  end

  it("cannot be predicted before a profile is told", function()
    local model = nn.Sequential({ { "a", nn.Linear(2, 2) } })
    local message = select(2, pcall(function()
      neap.executor(model):predicted_check_bytes({ actions = {} })
    end))
    assert.matches("use_profile", tostring(message))
    model:free()
  end)
end)
