local N = require("neap.ffi")
local fail = require("neap.fail")
local plans = require("neap.checkpoint.plan")
local stages = require("neap.checkpoint.stages")
local chains = require("spec.support.chains")
local interpreter = require("spec.support.plan_interpreter")

local C, ffi = N.C, N.ffi

local function stage(fields)
  local s = { name = "a", out_bytes = 10, saved_bytes = 100, forward_extra_bytes = 1,
    backward_extra_bytes = 2, forward_cost = 5, backward_cost = 7 }
  for key, value in pairs(fields or {}) do s[key] = value end
  return s
end

local function mode(fields)
  local m = { name = "matmul", saved_bytes = 40, forward_extra_bytes = 3,
    backward_extra_bytes = 70, forward_cost = 6, backward_cost = 9 }
  for key, value in pairs(fields or {}) do m[key] = value end
  return m
end

local function plan_of(...) return { actions = { ... } } end

local function forward(i, keep, name)
  return { op = "forward", stage = i, keep = keep, mode = name }
end

local function backward(i) return { op = "backward", stage = i } end

local FREE_1 = { op = "free", what = "x", stage = 1 }

-- one stage, one mode: forward, the loss goes, backward
local function simulate(a_stage, name)
  return plans.simulate(plan_of(forward(0, "everything", name), FREE_1, backward(0)),
    { stages = { a_stage } })
end

local function refused(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_true(fail.is(err, "usage"), tostring(err))
  assert.matches(pattern, err.message)
end

describe("a stage's named mode", function()
  it("keeps its own bytes from the forward until the backward, at its own costs", function()
    local found = simulate(stage({ modes = { mode() } }), "matmul")
    -- forward: x_1 10 + r 40 + 3; after it r 40 + x_1 10 + loss gradient 10
    assert.equal(60, found.timeline[1].peak_bytes)
    assert.equal(60, found.timeline[1].live_bytes)
    assert.equal(50, found.timeline[2].live_bytes)
    -- backward: r 40 + loss gradient 10 + 70
    assert.equal(120, found.timeline[3].peak_bytes)
    assert.equal(120, found.peak_bytes)
    assert.equal(6 + 9, found.cost)
  end)

  it("leaves storing all as it is", function()
    local with, without = simulate(stage({ modes = { mode() } })), simulate(stage())
    assert.same(without, with)
    assert.equal(12, with.cost)
  end)

  it("makes its output also where a recomputation of the stage would stop early", function()
    local a = stage({ stops_early = true, recompute_cost = 1, recompute_extra_bytes = 0,
      modes = { mode() } })
    local profile = { stages = { a } }
    local function again(name, ...)
      return plan_of(forward(0, "input"), FREE_1, forward(0, "everything", name), ...)
    end
    assert.is_true(plans.validate(again(nil, backward(0)), profile))
    assert.is_true(plans.validate(again("matmul", FREE_1, backward(0)), profile))
    local valid, message = plans.validate(again("matmul", backward(0)), profile)
    assert.is_nil(valid)
    assert.equal("after action 4: x_1 is still there", message)
    assert.equal(5 + 6 + 9, plans.simulate(again("matmul", FREE_1, backward(0)), profile).cost)
  end)

  it("uses its own peaks and its own saved tensors where the stage is measured", function()
    local a = stage({ measured = true, forward_peak_bytes = { 11, 12, 13 }, grad_bytes = 0,
      backward_peak_bytes = 14, out = { { source = -1, bytes = 10 } }, saves_in = 0, saves_out = 0,
      modes = { mode({ forward_peak_bytes = 200, backward_peak_bytes = 300, saves_in = 0,
        saves_out = 1 }) } })
    local found = simulate(a, "matmul")
    assert.equal(200, found.timeline[1].peak_bytes)
    -- the record holds x_1, so its 10 bytes stay when the executor lets go
    assert.equal(40 + 10 + 10, found.timeline[2].live_bytes)
    assert.equal(60 + 300, found.peak_bytes)
    assert.equal(0, found.timeline[3].live_bytes)
    assert.equal(100 + 10 + 14, simulate(a).timeline[3].peak_bytes)
  end)

  it("is the one that the latest record was made in", function()
    local profile = { stages = { stage({ modes = { mode(), mode({ name = "other",
      backward_cost = 1000 }) } }) } }
    local free_r = { op = "free", what = "r", stage = 0 }
    local plan = plan_of(forward(0, "everything", "other"), FREE_1, free_r,
      forward(0, "everything", "matmul"), FREE_1, backward(0))
    assert.equal(6 + 6 + 9, plans.simulate(plan, profile).cost)
  end)

  it("gives the peak and cost of an interpreter written apart from the simulator", function()
    local n = 0
    for seed = 1, 150 do
      local profile = chains.random_profile(seed, seed % 5 + 1, "modes")
      local random = chains.random(seed + 99)
      local plan = plans.build(seed % 2 == 0 and "none" or "every_n:2", profile)
      for _, action in ipairs(plan.actions) do
        local modes = profile.stages[action.stage + 1] and profile.stages[action.stage + 1].modes
        if action.keep == "everything" and #modes > 0 then
          action.mode = "m" .. random(1, #modes)
          n = n + 1
        end
      end
      local expected, reason = interpreter.run(plan, profile)
      local valid, message = plans.validate(plan, profile)
      assert.equal(expected ~= nil, valid == true, tostring(reason) .. tostring(message))
      if expected then
        local found = plans.simulate(plan, profile)
        assert.equal(expected.peak_bytes, found.peak_bytes, seed)
        assert.equal(expected.cost, found.cost, seed)
        assert.same(expected.timeline, found.timeline, seed)
      end
    end
    assert.is_true(n > 100)
  end)

  it("is an error by its name when the stage has none of that name", function()
    local profile = { stages = { stage({ modes = { mode() } }) } }
    refused("plan, action 1: stage 0 has no mode 'matmuls'; expected nil %(store all%), matmul",
      plans.simulate, plan_of(forward(0, "everything", "matmuls")), profile)
    refused("action 1: stage 0 has no mode 'matmul'; expected nil %(store all%)", plans.simulate,
      plan_of(forward(0, "everything", "matmul")), { stages = { stage() } })
  end)

  it("belongs only to a forward keeping everything", function()
    local profile = { stages = { stage({ modes = { mode() } }) } }
    for _, keep in ipairs({ "input", "nothing" }) do
      local valid, message = plans.validate(plan_of(forward(0, keep, "matmul")), profile)
      assert.is_nil(valid)
      assert.matches("action 1: mode 1 of stage 0, but only a forward keeping everything", message)
    end
  end)

  it("has a number in C, and numbers past the last are none", function()
    local profile = { stages = { stage({ modes = { mode(), mode({ name = "b" }) } }) } }
    local c_stages, n = stages.read(profile)
    collectgarbage()
    collectgarbage()
    local function code_of(number)
      local action = ffi.new("neap_action[1]", { { keep = C.NEAP_KEEP_EVERYTHING, mode = number } })
      return C.neap_plan_validate(n, c_stages, 1, action), ffi.string(C.neap_last_error())
    end
    for _, number in ipairs({ -1, 3, 64, 2 ^ 31 - 1 }) do
      local code, text = code_of(number)
      assert.equal(C.NEAP_ERR_PLAN, code)
      assert.matches("stage 0 has no mode", text)
    end
    assert.matches("the backward of stage 0 is missing", select(2, code_of(2)))
    local a = profile.stages[1]
    assert.same({ 0, 1, 2 }, { stages.mode_number(a), stages.mode_number(a, "matmul"),
      stages.mode_number(a, "b") })
    assert.is_nil(stages.mode_number(a, "c"))
    assert.is_nil(stages.mode_name(a, 0))
    assert.equal("b", stages.mode_name(a, 2))
    assert.is_nil(stages.mode_name(stage(), 1))
  end)

  it("is refused when its fields are missing, negative or misspelt", function()
    local function reading(fields, stage_fields)
      local a = stage(stage_fields)
      a.modes = { mode(), mode({ name = "b" }) }
      for key, value in pairs(fields) do a.modes[2][key] = value end
      return pcall(stages.read, { stages = { a } })
    end
    local function says(pattern, ...)
      local ok, err = reading(...)
      assert.is_false(ok)
      assert.is_true(fail.is(err, "usage"))
      assert.matches(pattern, err.message)
    end
    assert.is_true((reading({})))
    says("stage 0 %(a%), mode 2: saved_bytes is %-1", { saved_bytes = -1 })
    says("mode 2: forward_cost is 0.5", { forward_cost = 0.5 })
    says("mode 2: backward_cost is nan", { backward_cost = 0 / 0 })
    says("mode 2 is without a name", { name = false })
    says("modes 1 and 2 have the same name 'matmul'", { name = "matmul" })
    says("mode 1: field 'forward_peak_bytes' is missing", {}, { measured = true,
      forward_peak_bytes = { 0, 0, 0 }, backward_peak_bytes = 0, grad_bytes = 0, saves_in = 0,
      saves_out = 0, out = { { source = -1, bytes = 1 } } })
    refused("modes lists up to 64 .* found 5", stages.read, { stages = { stage({ modes = 5 }) } })
    local many = {}
    for m = 1, 65 do many[m] = mode({ name = "m" .. m }) end
    refused("found 65", stages.read, { stages = { stage({ modes = many }) } })
    refused("mode 1 is 7", stages.read, { stages = { stage({ modes = { 7 } }) } })
    local odd = mode({ saved_byte = 1 })
    odd.saved_bytes = nil
    refused("unknown field 'saved_byte', did you mean 'saved_bytes'", stages.read,
      { stages = { stage({ modes = { odd } }) } })
  end)

  it("is checked in C too", function()
    local modes, c_stages = ffi.new("neap_mode[2]"), ffi.new("neap_stage[1]")
    local actions = ffi.new("neap_action[1]")
    local function says(pattern)
      assert.equal(C.NEAP_ERR_INVALID, C.neap_plan_validate(1, c_stages, 1, actions))
      assert.matches(pattern, ffi.string(C.neap_last_error()))
    end
    c_stages[0].n_modes = 2
    says("stage 0: 2 modes %(NULL%)")
    c_stages[0].modes = modes
    c_stages[0].n_modes = -1
    says("%-1 modes")
    c_stages[0].n_modes = 65
    says("65 modes, allowed are 0..64")
    c_stages[0].n_modes = 2
    modes[1].backward_peak_bytes = -3
    says("stage 0, mode 2: backward_peak_bytes is %-3")
    modes[1].backward_peak_bytes = 0
    c_stages[0].measured, c_stages[0].n_out = 1, 1
    modes[1].saves_out = 2
    says("mode 2: saves_in 0 or saves_out 2 names a tensor past")
  end)
end)
