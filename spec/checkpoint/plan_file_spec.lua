-- Plans and profiles as files, and two plans beside each other.
local neap = require("neap")
local chains = require("spec.support.chains")
local failure_of = require("spec.support.failure_of")
local script = require("spec.support.script")

local directory
setup(function() directory = script.directory() end)
teardown(function() script.remove(directory) end)

local function path(name) return directory .. "/" .. name end

local function text_of(name)
  local file = assert(io.open(path(name), "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

describe("a plan in a file", function()
  it("comes back as it was, for each kind of policy and chain", function()
    for seed, kind in ipairs({ "table", "early", "measured", "modes" }) do
      local profile = chains.random_profile(seed, 5, kind)
      for _, spec in ipairs(chains.specs(seed, profile)) do
        local plan = neap.plan(spec, profile)
        plan.measured_peak_bytes = 123456789012345
        plan:save(path("plan.json"))
        local back = assert(neap.plan_load(path("plan.json"), profile))
        assert.same(plan, back)
        assert.same(neap.simulate(plan, profile), neap.simulate(back, profile))
        assert.equal(tostring(plan), tostring(back))
      end
    end
  end)

  it("keeps modes, and can be read without a profile", function()
    local profile = chains.random_profile(1, 2, "table")
    profile.stages[1].modes = { { name = "matmul", saved_bytes = 1, forward_extra_bytes = 0,
      backward_extra_bytes = 0, forward_cost = 1, backward_cost = 1 } }
    local plan = neap.plan({ rules = { { "s0", "selective:matmul" } } }, profile)
    plan:save(path("plan.json"))
    local back = assert(neap.plan_load(path("plan.json")))
    assert.equal("matmul", back.actions[1].mode)
    assert.matches("everything %(matmul%)", tostring(back))
  end)

  it("has a line an action", function()
    neap.plan("none", chains.random_profile(1, 1, "table")):save(path("plan.json"))
    assert.equal([[
{"format":"neap plan 1","spec":"none","n_stages":1,"names":["s0"],"actions":[
{"keep":"everything","op":"forward","stage":0},
{"op":"free","stage":1,"what":"x"},
{"op":"backward","stage":0}
]}
]], text_of("plan.json"))
  end)

  it("is refused for another chain, also one of as many stages", function()
    local profile = chains.random_profile(1, 3, "table")
    local plan = neap.plan("all", profile)
    plan:save(path("plan.json"))
    local other = chains.random_profile(1, 3, "table")
    other.stages[2].name = "conv"
    local expected = "the plan is of another chain: its stage 1 is 's1', the profile's is 'conv'"
    assert.equal(expected, failure_of("usage", neap.simulate, plan, other))
    local back, message = neap.plan_load(path("plan.json"), other)
    assert.is_nil(back)
    assert.equal("'" .. path("plan.json") .. "' is no plan: " .. expected, message)
    assert.matches("the plan is for 3 stages, the profile has 4",
      select(2, neap.plan_load(path("plan.json"), chains.random_profile(1, 4, "table"))))
  end)

  it("is refused with one sentence when it is torn anywhere", function()
    neap.plan("segments:2", chains.random_profile(1, 4, "table")):save(path("plan.json"))
    local text = text_of("plan.json")
    for n = 0, #text - 2 do
      script.write(path("torn.json"), text:sub(1, n))
      local plan, message = neap.plan_load(path("torn.json"))
      assert.is_nil(plan)
      assert.matches("^'[^\n]*torn.json' is no plan: [^\n]+$", message)
    end
  end)

  it("is refused with one sentence when something hostile is in it", function()
    local head = '{"format":"neap plan 1","n_stages":1,"actions":['
    local f = '{"op":"forward","stage":0,"keep":"everything"}'
    for text, expected in pairs({
      ["[]"] = "actions is nil",
      ["7"] = "not an object",
      ["\27LJ"] = "not JSON",
      ['{"format":"neap profile 1"}'] = "its format is 'neap profile 1', expected 'neap plan 1'",
      ['{"format":{}}'] = "its format is a table",
      ['{"actions":[],"n_stages":0}'] = "n_stages is 0",
      ['{"actions":[],"n_stages":1e9}'] = "n_stages is 1000000000",
      [head .. "]}"] = "n_stages is 1; expected a whole number, at most half the 0 actions",
      [head .. "1,2]}"] = "plan, action 1 is 1",
      [head .. f .. ',{"op":"backward","stage":7}]}'] = "action 2: stage 7 of 1",
      [head .. f .. ',{"op":"backward","stage":-1}]}'] = "stage is -1",
      [head .. f .. ',{"op":"os.exit","stage":0}]}'] = "unknown op 'os.exit'",
      [head .. f .. ',{"op":"backward","stage":0,"x":1}]}'] = "unknown key 'x'",
      [head .. f .. ',{"op":"forward","stage":0,"keep":"everything","mode":{}}]}']
        = "mode is a table",
      [head .. f .. ',' .. f .. '],"names":["a","b"]}'] = "2 names for 1 stages",
      [head .. f .. ',' .. f .. '],"names":["a\\u001b[2J"]}'] = "names[1] is 'a?[2J'",
      [head .. f .. ',' .. f .. '],"spec":7}'] = "spec is 7",
      [head .. f .. ',' .. f .. '],"least_bytes":-1}'] = "least_bytes is -1",
      [head .. f .. ',' .. f .. '],"evil":1}'] = "unknown key 'evil'",
    }) do
      script.write(path("bad.json"), text)
      local plan, message = neap.plan_load(path("bad.json"))
      assert.is_nil(plan, text)
      assert.matches(expected, message, 1, true)
      assert.not_matches("\n", message)
    end
    script.write(path("deep.json"), string.rep("[", 1e6))
    assert.matches("nested too deeply", select(2, neap.plan_load(path("deep.json"))))
    assert.matches("cannot read", select(2, neap.plan_load(path("none.json"))))
    assert.matches("it is a directory", select(2, neap.plan_load(directory)))
    assert.matches("path must be text", failure_of("usage", neap.plan_load, 7))
  end)

  it("is refused with the reason when it does not run on the profile given", function()
    script.write(path("bad.json"), '{"n_stages":1,"actions":['
      .. '{"op":"forward","stage":0,"keep":"everything"},{"op":"free","what":"x","stage":1}]}')
    assert.matches("the backward of stage 0 is missing",
      select(2, neap.plan_load(path("bad.json"), chains.random_profile(1, 1, "table"))))
  end)

  it("is not written where that cannot be", function()
    local plan = neap.plan("none", chains.random_profile(1, 1, "table"))
    assert.matches("nowhere", failure_of("input/output", plan.save, plan,
      directory .. "/nowhere/plan.json"))
  end)
end)

describe("a profile in a file", function()
  it("comes back as it was", function()
    for seed, kind in ipairs({ "table", "early", "measured", "modes" }) do
      local profile = chains.random_profile(seed, 6, kind)
      profile.unit, profile.stages[1].forward_cost = "FLOPs", 2 ^ 53
      profile.stages[2].shape = { 3, 4 }
      neap.profile_save(profile, path("profile.json"))
      assert.same(profile, assert(neap.profile_load(path("profile.json"))))
    end
  end)

  it("holds 64-bit integers where doubles do, and refuses larger ones", function()
    local profile = chains.random_profile(1, 2, "table")
    profile.stages[1].saved_bytes = 5LL
    neap.profile_save(profile, path("profile.json"))
    assert.equal(5, neap.profile_load(path("profile.json")).stages[1].saved_bytes)
    profile.stages[1].saved_bytes = 2LL ^ 54
    assert.matches("stage 0.saved_bytes is 18014398509481984LL; a file holds whole numbers up to",
      failure_of("usage", neap.profile_save, profile, path("profile.json")))
    profile.stages[1].saved_bytes, profile.stages[1].note = 5, print
    assert.matches("stage 0.note is a function",
      failure_of("usage", neap.profile_save, profile, path("profile.json")))
  end)

  it("may be written by hand, and is enough to plan by", function()
    script.write(path("hand.json"), '{"stages":[{"name":"a","out_bytes":1,"saved_bytes":2,'
      .. '"forward_extra_bytes":0,"backward_extra_bytes":0,"forward_cost":3,"backward_cost":4}]}')
    local profile = assert(neap.profile_load(path("hand.json")))
    -- x_1, r_0 and the loss gradient
    assert.equal(4, neap.simulate(neap.plan("none", profile), profile).peak_bytes)
  end)

  it("is refused with one sentence when it is torn or wrong", function()
    neap.profile_save(chains.random_profile(3, 3, "measured"), path("profile.json"))
    local text = text_of("profile.json")
    for n = 0, #text - 2, 7 do
      script.write(path("torn.json"), text:sub(1, n))
      local profile, message = neap.profile_load(path("torn.json"))
      assert.is_nil(profile)
      assert.matches("^'[^\n]*torn.json' is no profile: [^\n]+$", message)
    end
    for bad, expected in pairs({
      ['{"stages":[]}'] = "at least one stage",
      ['{"stages":[{"name":"a\\nb"}]}'] = "field 'out_bytes' is missing",
      ['{"format":"neap plan 1","stages":[]}'] = "expected 'neap profile 1'",
      [text:gsub('"forward_cost":%d+', '"forward_cost":1e300', 1)] = "forward_cost is 1e+300",
      [text:gsub('"name":"s1"', '"name":"a\\u0007"')] = "name is 'a?'",
    }) do
      script.write(path("bad.json"), bad)
      local profile, message = neap.profile_load(path("bad.json"))
      assert.is_nil(profile)
      assert.matches(expected, message, 1, true)
      assert.not_matches("\n", message)
    end
  end)
end)

describe("two plans beside each other", function()
  local profile = { stages = {} }
  for i = 1, 4 do
    profile.stages[i] = { name = "s" .. i - 1, out_bytes = 1, saved_bytes = 10,
      forward_extra_bytes = 0, backward_extra_bytes = 0, forward_cost = 10, backward_cost = 20 }
  end

  it("differ where their stages do", function()
    local found = neap.plan_compare(neap.plan("none", profile), neap.plan("by_name:s1", profile),
      profile)
    assert.is_false(found.same)
    assert.same({ { stage = 1, name = "s1", a = "everything, 0 recomputed",
      b = "input, 1 recomputed" } }, found.stages)
    assert.same({ spec = "none", peak_bytes = 45, cost = 120, forwards = 4 }, found.a)
    assert.same({ spec = "by_name:s1", peak_bytes = 35, cost = 130, forwards = 5 }, found.b)
    assert.equal("plans none -> by_name:s1\npeak 45 B -> 35 B (-22.2%)\ncost 120 -> 130 (+8.3%)\n"
      .. "forwards 4 -> 5 (+25.0%)\n"
      .. "  stage 1 (s1): everything, 0 recomputed -> input, 1 recomputed", tostring(found))
  end)

  it("are the same where their actions are", function()
    local found = neap.plan_compare(neap.plan("none", profile), neap.plan("segments:1", profile),
      profile)
    assert.is_true(found.same)
    assert.same({}, found.stages)
    assert.matches("none %-> segments:1: the same actions\npeak 45 B both", tostring(found))
  end)
end)
