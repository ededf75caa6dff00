local json = require("neap.json")
local plans = require("neap.checkpoint.plan")
local chains = require("spec.support.chains")
local failure_of = require("spec.support.failure_of")

local MiB = 2 ^ 20

local function profile_of(n_stages, stops_early)
  local stages = {}
  for i = 1, n_stages do
    stages[i] = {
      name = i == n_stages and "head" or "block." .. i - 1, out_bytes = 4 * MiB,
      saved_bytes = 20 * MiB, forward_extra_bytes = MiB, backward_extra_bytes = 2 * MiB,
      forward_cost = 10, backward_cost = 20, stops_early = stops_early,
      recompute_cost = stops_early and 7, recompute_extra_bytes = stops_early and 0,
    }
  end
  return { stages = stages }
end

-- "f0e b0 x1 r2": a plan in one line
local function short(plan)
  local words = {}
  for a, action in ipairs(plan.actions) do
    local letter = action.op == "free" and action.what or action.op:sub(1, 1)
    words[a] = letter .. action.stage .. (action.keep and action.keep:sub(1, 1) or "")
  end
  return table.concat(words, " ")
end

describe("the plan of a policy", function()
  it("keeps everything for none and for one segment", function()
    local expected = "f0e f1e f2e x3 b2 x2 b1 x1 b0"
    assert.equal(expected, short(plans.build("none", profile_of(3))))
    assert.equal(expected, short(plans.build("segments:1", profile_of(3))))
    assert.equal("f0e x1 b0", short(plans.build("none", profile_of(1))))
  end)

  it("recomputes each dropped stage right before its backward", function()
    assert.equal("f0i f1e f2i x3 f2e x3 b2 x2 b1 x1 f0e x1 b0",
      short(plans.build("every_n:2", profile_of(3))))
    assert.equal("f0i x1 f0e x1 b0", short(plans.build("all", profile_of(1))))
  end)

  it("makes no output in a recomputation that stops early", function()
    assert.equal("f0i f1e f2i x3 f2e b2 x2 b1 x1 f0e b0",
      short(plans.build("every_n:2", profile_of(3, true))))
    assert.equal("f0i f1n f2e f3e x4 b3 x3 b2 x2 f0e f1e b1 x1 b0",
      short(plans.build("segments:2", profile_of(4, true))))
  end)

  it("recomputes each segment but the last once, one at a time", function()
    assert.equal("f0i f1n f2i f3n f4e f5e x6 b5 x5 b4 x4 f2e f3e x4 b3 x3 b2 x2 f0e f1e x2 b1 x1 "
      .. "b0", short(plans.build("segments:3", profile_of(6))))
    assert.equal("f0i f1i f2e x3 b2 x2 f1e x2 b1 x1 f0e x1 b0",
      short(plans.build("segments:3", profile_of(3))))
  end)

  it("splits 9 stages in 5 segments of 1 or 2", function()
    local keeps = {}
    for a, action in ipairs(plans.build("segments:5", profile_of(9)).actions) do
      if a <= 9 then keeps[a] = action.keep:sub(1, 1) end
    end
    assert.equal("iininin" .. "ee", table.concat(keeps))
  end)

  it("is plain data that says what it came from", function()
    local plan = plans.build({ policy = "segments", k = 2 }, profile_of(4))
    assert.equal("segments:2", plan.spec)
    assert.equal(4, plan.n_stages)
    assert.same({ op = "forward", stage = 0, keep = "input" }, plan.actions[1])
    assert.same({ op = "free", what = "x", stage = 4 }, plan.actions[5])
    local back = json.decode(json.encode(plan))
    assert.same(plans.simulate(plan, profile_of(4)), plans.simulate(back, profile_of(4)))
  end)

  it("says out loud where it gains nothing", function()
    assert.same({ "segments:1 keeps everything" }, plans.build("segments:1", profile_of(3)).notes)
    assert.matches("head is the last stage: recomputing it saves nothing",
      plans.build("by_name:head", profile_of(3)).notes[1])
    assert.matches("greedy:1073741824 drops nothing here",
      plans.build("greedy:1GiB", profile_of(3)).notes[1])
    assert.is_nil(plans.build("none", profile_of(3)).notes)
    assert.is_nil(plans.build("segments:2", profile_of(3)).notes)
  end)

  it("refuses segments that the model does not have, with the allowed range", function()
    assert.equal("segments:99: this model has 6 stages; allowed 1..6",
      failure_of("usage", plans.build, "segments:99", profile_of(6)))
    for _, spec in ipairs({ "segments:0", "segments:-1", "segments:2.5", "segments:nan" }) do
      assert.matches("whole number, 1 to the number of stages",
        failure_of("usage", plans.build, spec, profile_of(6)))
    end
  end)

  it("lists close names when a name matches no stage", function()
    assert.matches("by_name:blok.3 matches no stage; close: block.3",
      failure_of("usage", plans.build, "by_name:blok.3", profile_of(6)), 1, true)
    assert.equal("by_name:blok matches no stage; close: block",
      failure_of("usage", plans.build, "by_name:blok", profile_of(6)))
  end)
end)

describe("a printed plan", function()
  it("has a row a stage, the peak and where, and the cost beside keep-all", function()
    local plan = plans.build("segments:2", profile_of(4))
    plan.measured_peak_bytes, plan.least_bytes = 62 * MiB, 40 * MiB
    assert.equal([[
plan segments:2: 4 stages, 15 actions
  stage  name     keeps           kept  residuals  recomputed
  0      block.0  input            0 B   20.0 MiB           1
  1      block.1  nothing          0 B   20.0 MiB           1
  2      block.2  everything  24.0 MiB   20.0 MiB           0
  3      head     everything  24.0 MiB   20.0 MiB           0
predicted peak 58.0 MiB at action 6 of 15: backward 3 (head)
there: x 2-3 (8.0 MiB); residuals of 2-3 (40.0 MiB); gradient of x 3-4 (8.0 MiB)
measured peak 62.0 MiB
cost +16.7% over keep-all; 6 forwards, 2 of them recomputed
least feasible budget 40.0 MiB
least budget without recomputation 102.0 MiB]], tostring(plan))
  end)

  it("folds equal neighbours of a long chain into one row, and hides nothing else", function()
    local text = tostring(plans.build("segments:2", profile_of(101)))
    assert.matches("\n  0 +block.0 +input +0 B +20.0 MiB +1\n", text)
    assert.matches("\n  1 .. 49 +block.1 .. block.49 +nothing +0 B +20.0 MiB +1\n", text)
    assert.matches("\n  50 .. 100 +block.50 .. head +everything +24.0 MiB +20.0 MiB +0\n", text)
    assert.not_matches("\n  7 +", text)
    assert.matches("\n  7 +block.7 ", tostring(plans.build("segments:2", profile_of(39))))
  end)

  it("shows what can be known without a profile, and what is wrong with it", function()
    local plan = plans.new({ n_stages = 1, actions = { { op = "forward", stage = 0,
      keep = "everything" } } })
    assert.equal("plan by hand: 1 stage, 1 actions\n  stage  keeps       recomputed\n"
      .. "  0      everything           0", tostring(plan))
    assert.matches("not a valid plan: after action 1: the backward of stage 0 is missing",
      tostring(plans.new(plan, profile_of(1))))
    assert.matches("note: segments:1 keeps everything",
      tostring(plans.build("segments:1", profile_of(2))))
  end)
end)

describe("the validator", function()
  local profile = profile_of(3)

  local function verdict(text)
    local keeps = { n = "nothing", i = "input", e = "everything" }
    local plan = { actions = {} }
    for letter, stage, keep in text:gmatch("(%a)(%d+)(%a?)") do
      local op = letter == "f" and "forward" or letter == "b" and "backward" or "free"
      plan.actions[#plan.actions + 1] = {
        op = op, stage = tonumber(stage), keep = keeps[keep],
        what = op == "free" and letter or nil,
      }
    end
    local ok, message = plans.validate(plan, profile)
    return message or ok
  end

  it("accepts a plan that forgets everything and starts again", function()
    assert.is_true(verdict("f0n f1n f2e x3 b2 x2 f0n f1e x2 b1 x1 f0e x1 b0"))
  end)

  it("names the action and the reason", function()
    for text, message in pairs({
      ["f1e"] = "action 1 (forward 1): reads x_1, which is not there",
      ["f0e f0i"] = "action 2 (forward 0): makes x_1, which is there already",
      ["f0e x1 f0e"] = "action 3 (forward 0, keep everything): the record r_0 is there already",
      ["f0e f1n f1e"] = "action 3 (forward 1): reads x_1, which is not there",
      ["b2"] = "action 1 (backward 2): reads the gradient of x_3, which is not there",
      ["f0e f1e f2e b1"] = "action 4 (backward 1): the next backward is that of 2",
      ["f0e f1e f2i b2"] = "action 4 (backward 2): reads r_2, which is not there",
      ["f0e f1e f2e x2 b2"] = "action 5 (backward 2): reads x_2, which is not there",
      ["f0e f1e f2e b2 b1 b0 b0"] = "action 7 (backward 0): all backwards are done",
      ["f0i x1 x1"] = "action 3 (free x_1): it is not there",
      ["f0i r0"] = "action 2 (free r_0): it is not there",
      ["x0"] = "action 1: stage 0 is not one of 1..3",
      ["f0i x4"] = "action 2: stage 4 is not one of 1..3",
      ["f3e"] = "action 1: stage 3 is not one of 0..2",
      ["f0e f1e f2e b2 b1"] = "after action 5: the backward of stage 0 is missing",
      ["f0e f1e f2e b2 x3 x2 b1 b0"] = "after action 8: x_1 is still there",
      ["f0e f1e f2e x3 b2 x2 b1 x1 b0 f0e x1"] = "after action 11: r_0 is still there",
      [""] = "after action 0: the backward of stage 2 is missing",
    }) do
      assert.equal(message, verdict(text))
    end
  end)

  it("refuses a malformed plan", function()
    local function refused(plan) return failure_of("usage", plans.validate, plan, profile) end
    local function action(fields) return refused({ actions = { fields } }) end
    assert.matches("a plan is a table", refused(nil))
    assert.matches("found no actions", refused({}))
    assert.matches("the plan is for 4 stages, the profile has 3", refused({ n_stages = 4,
      actions = {} }))
    assert.matches("plan, action 1 is 7", action(7))
    assert.matches("unknown op 'forwrd', did you mean 'forward'", action({ op = "forwrd" }))
    assert.matches("stage is nil", action({ op = "forward" }))
    assert.matches("stage is 0.5", action({ op = "backward", stage = 0.5 }))
    assert.matches("stage is %-?nan", action({ op = "backward", stage = 0 / 0 }))
    assert.matches("unknown keep 'all'", action({ op = "forward", stage = 0, keep = "all" }))
    assert.matches("unknown keep 'nil'", action({ op = "forward", stage = 0 }))
    assert.matches("unknown what 'y'", action({ op = "free", stage = 1, what = "y" }))
    assert.matches("stage 0 has no mode 'fast'", action({ op = "forward", stage = 0,
      keep = "input", mode = "fast" }))
  end)
end)

describe("a profile", function()
  local function refused(change)
    local profile = chains.random_profile(3, 3, "table")
    for _, stage in ipairs(profile.stages) do stage.stops_early = nil end
    change(profile.stages[2], profile)
    return failure_of("usage", plans.build, "none", profile)
  end

  it("is refused with the stage and the field", function()
    for field, bad in pairs({ out_bytes = -1, saved_bytes = 0 / 0, forward_extra_bytes = 0.5,
      backward_extra_bytes = math.huge, forward_cost = "3", backward_cost = true }) do
      assert.equal(string.format("profile, stage 1 (s1): %s is %s; expected a whole number of at "
        .. "least 0", field, type(bad) == "string" and "'3'" or tostring(bad)),
        refused(function(stage) stage[field] = bad end))
      assert.equal("profile, stage 1 (s1): field '" .. field .. "' is missing",
        refused(function(stage) stage[field] = nil end))
    end
    assert.matches("unknown field 'saved_byte', did you mean 'saved_bytes'",
      refused(function(stage) stage.saved_bytes, stage.saved_byte = nil, 3 end))
    assert.matches("unknown field 'stop_early'", refused(function(stage) stage.stop_early = 1 end))
    assert.matches("stage 1: name is nil", refused(function(stage) stage.name = nil end))
    assert.matches("stage 0 has the same name", refused(function(stage) stage.name = "s0" end))
    assert.matches("stops_early is 1; expected true or false",
      refused(function(stage) stage.stops_early = 1 end))
    assert.matches("field 'recompute_cost' is missing",
      refused(function(stage) stage.stops_early = true end))
    assert.matches("stage 1 is 7", refused(function(_, profile) profile.stages[2] = 7 end))
    assert.matches("found no stages", refused(function(_, profile) profile.stages = {} end))
    assert.matches("found nil", failure_of("usage", plans.build, "none", nil))
  end)

  it("may hold more than a plan needs", function()
    local profile = chains.random_profile(3, 3, "table")
    profile.stages[2].shape, profile.device = { 1, 2 }, "null"
    assert.equal(3, plans.build("none", profile).n_stages)
  end)
end)
