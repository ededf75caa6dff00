-- Policies beyond one word: rules by stage, segments by hand, selective keeping.
local plan_live = require("neap.checkpoint.plan_live")
local plans = require("neap.checkpoint.plan")
local policy = require("neap.checkpoint.policy")
local failure_of = require("spec.support.failure_of")

local function message_of(...) return failure_of("usage", policy.parse, ...) end

-- stages that offer the modes "matmul" and "linear,attention"
local function profile_of(names)
  local stages = {}
  for i, name in ipairs(names) do
    stages[i] = { name = name, out_bytes = 10, saved_bytes = 100, forward_extra_bytes = 0,
      backward_extra_bytes = 0, forward_cost = 10, backward_cost = 20, modes = {} }
    for m, mode in ipairs({ "matmul", "linear,attention", "mine" }) do
      stages[i].modes[m] = { name = mode, saved_bytes = 100 - 20 * m, forward_extra_bytes = 0,
        backward_extra_bytes = 0, forward_cost = 10, backward_cost = 20 + m }
    end
  end
  return { stages = stages }
end

local GPT = { "embed", "block.0", "block.1", "block.2", "block.10", "head" }

-- what each stage keeps after its first forward: s(tore), i(nput), n(othing), or a mode
local function keeps(spec, names)
  local plan, list, seen = plans.build(spec, profile_of(names or GPT)), {}, {}
  for _, action in ipairs(plan.actions) do
    if action.op == "forward" and not seen[action.stage] then
      seen[action.stage] = true
      list[#list + 1] = action.mode or (action.keep == "everything" and "s"
        or action.keep:sub(1, 1))
    end
  end
  return table.concat(list, " ")
end

describe("a selective policy", function()
  it("keeps the outputs of the named ops in every stage", function()
    assert.equal("matmul matmul matmul matmul matmul matmul", keeps("selective:matmul"))
    assert.equal("linear,attention linear,attention",
      keeps("selective:linear, attention", { "a", "b" }))
    assert.equal("linear,attention linear,attention",
      keeps({ policy = "selective", keep = { "linear", "attention" } }, { "a", "b" }))
    assert.equal("matmul", keeps({ policy = "selective", keep = "matmul" }, { "a" }))
    assert.equal("selective:linear,attention",
      policy.parse({ policy = "selective", keep = { "linear", "attention" } }).text)
  end)

  it("takes a function of an op's name under a name of its own", function()
    local function keep(name) return name == "linear" end
    local spec = policy.parse({ policy = "selective", keep = keep, name = "mine" })
    assert.equal("mine mine", keeps(spec, { "a", "b" }))
    assert.same({ { name = "mine", keep = keep } }, policy.modes(spec))
    assert.equal("function", policy.modes({ policy = "selective", keep = keep })[1].name)
    assert.is_false(spec.is_text)
  end)

  it("tells the modes that have to be measured", function()
    assert.same({ "matmul" }, policy.modes("selective:matmul"))
    assert.same({}, policy.modes("segments:3"))
    assert.same({ "matmul" }, policy.modes("optimal:auto"))
    assert.same({}, policy.modes({ policy = "optimal", budget = "1MiB", modes = {} }))
    assert.same({ "matmul" }, policy.modes({ rules = { { "a", "selective:matmul" },
      { "b", "selective:matmul" }, { "c", "store" } } }))
    assert.same({ "matmul", "linear" }, policy.modes({ policy = "optimal", budget = "1MiB",
      modes = { "matmul", { "linear" } } }))
  end)

  it("names the nearest op for a misspelt one, and the allowed ones", function()
    local message = message_of("selective:matmull")
    assert.matches("selective:matmull: unknown op 'matmull', did you mean 'matmul'?; allowed: add,",
      message, 1, true)
    assert.matches("'linaer', did you mean 'linear'", message_of({ policy = "selective",
      keep = { "linaer" } }))
    assert.matches("unknown op ''", message_of("selective:linear,"))
    assert.matches("unknown op 'checkpoint'", message_of("selective:checkpoint"))
    assert.equal("selective:linear", policy.parse("selective:linear,linear").text)
    assert.matches("expected selective:OPS", message_of("selective"))
    assert.matches("expected names of ops or groups", message_of({ policy = "selective",
      keep = {} }))
    assert.matches("keep is 7", message_of({ policy = "selective", keep = 7 }))
    assert.matches("'selective' needs 'keep'", message_of({ policy = "selective" }))
    assert.matches("a name is for a function", message_of({ policy = "selective", keep = "matmul",
      name = "x" }))
    assert.matches("name is 'a b'", message_of({ policy = "selective", keep = print,
      name = "a b" }))
  end)

  it("names the stage that was not measured in the mode", function()
    local profile = profile_of({ "a", "b" })
    profile.stages[2].modes = nil
    assert.matches("selective:matmul: stage 1 %(b%) was not measured in mode 'matmul'",
      failure_of("usage", plans.build, "selective:matmul", profile))
  end)

  it("prints the mode and what it keeps", function()
    local text = tostring(plans.build("selective:matmul", profile_of({ "a", "b" })))
    assert.matches("everything %(matmul%)  80 B +80 B +0", text)
    assert.matches("residuals of 0%-1 %(160 B%)", text)
  end)
end)

describe("a recomputation in a mode", function()
  it("makes the stage's output, also where its backward comes next", function()
    local profile = profile_of({ "a", "b" })
    for _, stage in ipairs(profile.stages) do
      stage.stops_early, stage.recompute_cost, stage.recompute_extra_bytes = true, 5, 0
    end
    local plan = plans.build("by_name:a", profile)
    local at
    for a, action in ipairs(plan.actions) do
      if action.op == "forward" and action.stage == 0 then at = a end
    end
    plan.actions[at].mode = "matmul"
    table.insert(plan.actions, at + 1, { op = "backward", stage = 0 })
    plan.actions[at + 2] = { op = "free", what = "x", stage = 1 }
    local live = {}
    for _, item in ipairs(plan_live.at(plan, profile, at)) do
      live[#live + 1] = item.what .. item.stage .. "=" .. item.bytes
    end
    assert.equal("x1=10 r0=80 g1=10", table.concat(live, " "))
    assert.is_true(plans.validate(plan, profile))
  end)
end)

describe("a rule table", function()
  it("gives each stage its outcome, and the others the default", function()
    assert.equal("s i i i i matmul", keeps({ rules = { { "block", "recompute" },
      { "head", "selective:matmul" } } }))
    assert.equal("i s s s s i", keeps({ rules = { { "block.", "store" } }, default = "recompute" }))
    assert.equal("s s i s s s", keeps({ rules = { { "block.1", "recompute" } } }))
    assert.equal("matmul matmul s", keeps({ rules = { { "a", "store" } },
      default = "selective:matmul" }, { "b", "c", "a" }))
  end)

  it("takes a function as an outcome", function()
    assert.equal("s mine", keeps({ rules = { { "b", { policy = "selective", keep = print,
      name = "mine" } } } }, { "a", "b" }))
    local message = message_of({ rules = {
      { "a", { policy = "selective", keep = print } },
      { "b", { policy = "selective", keep = type } } } })
    assert.matches("two different choices are both called 'function'", message)
  end)

  it("lets two rules agree over one stage", function()
    assert.equal("s i i s s s", keeps({ rules = { { "block.0", "recompute" },
      { "block.1", "recompute" }, { "block.0", "recompute" } } }))
  end)

  it("refuses two rules that do not agree over one stage, naming both", function()
    local message = failure_of("usage", plans.build, { rules = { { "head", "store" },
      { "block.0", "store" }, { "block", "recompute" } } }, profile_of(GPT))
    assert.equal("stage 'block.0' is under rule 2 (block.0: store) and rule 3 (block: recompute); "
      .. "expected one outcome a stage", message)
    message = failure_of("usage", plans.build, { rules = { { "block.1", "store" },
      { "block.1", "store" }, { "block.1", "recompute" } } }, profile_of(GPT))
    assert.matches("is under rule 1 %(block.1: store%) and rule 3", message)
  end)

  it("refuses a rule that no stage is under, with close names", function()
    assert.equal("rule 1 (blok.1) matches no stage; close: block.1, block.0, block.2",
      failure_of("usage", plans.build, { rules = { { "blok.1", "store" } } }, profile_of(GPT)))
  end)

  it("names the nearest outcome for a misspelt one, and the place", function()
    assert.matches("rule 1 %(a%): unknown outcome 'recompte', did you mean 'recompute'",
      message_of({ rules = { { "a", "recompte" } } }))
    assert.matches("default: unknown outcome 'stor', did you mean 'store'",
      message_of({ rules = { { "a", "store" } }, default = "stor" }))
    assert.matches("rule 2 %(b%): selective:matmull: unknown op 'matmull', did you mean 'matmul'",
      message_of({ rules = { { "a", "store" }, { "b", "selective:matmull" } } }))
    assert.matches("unknown outcome 'nil'", message_of({ rules = { { "a" } } }))
    assert.matches("unknown outcome 'store:1'", message_of({ rules = { { "a", "store:1" } } }))
    assert.matches("unknown outcome 'a table'", message_of({ rules = { { "a", {} } } }))
  end)

  it("refuses what is no rule table", function()
    assert.matches("rules is empty", message_of({ rules = {} }))
    assert.matches("rules is 7", message_of({ rules = 7 }))
    assert.matches("rule 1 is 7", message_of({ rules = { 7 } }))
    assert.matches("rule 1: its stage is ''", message_of({ rules = { { "", "store" } } }))
    assert.matches("rule 1: unexpected 3", message_of({ rules = { { "a", "store", 1 } } }))
    assert.matches("unknown key 'defalt', did you mean 'default'",
      message_of({ rules = { { "a", "store" } }, defalt = "store" }))
  end)

  it("shows itself, and says that its text is not the whole of it", function()
    local spec = policy.parse({ rules = { { "block", "recompute" } } })
    assert.equal("rules{block=recompute, default=store}", spec.text)
    assert.is_false(spec.is_text)
    assert.is_true(policy.parse("selective:matmul").is_text)
  end)
end)

describe("segments by hand", function()
  local function starts(list, names)
    local plan, found = plans.build({ policy = "segments", starts = list },
      profile_of(names or GPT)), {}
    for a, action in ipairs(plan.actions) do
      if a > #(names or GPT) then break end
      if a == 1 or action.keep == "input" then found[#found + 1] = action.stage end
    end
    return table.concat(found, " "), plan
  end

  it("begin at the named stages and at the first one", function()
    assert.equal("0 2", (starts({ "block.1", "block.10" })))
    local text, plan = starts({ "head", "block.1", "embed" })
    assert.equal("0 2", text) -- the last segment keeps everything
    assert.equal("segments{head,block.1,embed}", plan.spec)
  end)

  it("begin at the first of several stages that a name stands for", function()
    assert.equal("0 1", (starts({ "b", "c" }, { "a", "b.x", "b.y", "c", "d" })))
  end)

  it("keep everything where only the first stage is named", function()
    local _, plan = starts({ "embed" })
    assert.same({ "segments{embed} keeps everything" }, plan.notes)
  end)

  it("refuse a name that is none and two that are the same stage", function()
    local function refused(list)
      return failure_of("usage", plans.build, { policy = "segments", starts = list },
        profile_of(GPT))
    end
    assert.matches("segments: start 'blok.1' matches no stage; close: block.1",
      refused({ "blok.1" }))
    assert.matches("'block.2' and 'block.2' both start at stage 3 %(block.2%)",
      refused({ "block.2", "block.2" }))
    assert.matches("expected the names of stages", refused({}))
    assert.matches("'%l+' or '%l+', not both", message_of({ policy = "segments", k = 2,
      starts = { "a" } }))
  end)
end)

describe("the words of the planner", function()
  it("are read from text and tables alike", function()
    for _, case in ipairs({
      { "segments:auto", { policy = "segments", k = "auto" }, "segments:auto" },
      { "revolve:3", { policy = "revolve", slots = 3 }, "revolve:3" },
      { "optimal:1MiB", { policy = "optimal", budget = "1MiB" }, "optimal:1048576" },
      { "optimal:1MiB", { policy = "optimal", budget = 2 ^ 20 }, "optimal:1048576" },
      { "optimal:auto", { policy = "optimal", budget = "auto" }, "optimal:auto" },
      { "selective:matmul", { policy = "selective", keep = "matmul" }, "selective:matmul" },
    }) do
      local text, tab = policy.parse(case[1]), policy.parse(case[2])
      assert.equal(case[3], text.text)
      assert.same(text, tab)
      assert.same(text, policy.parse(text.text))
    end
    assert.equal("optimal:500", policy.parse("optimal:50%", 1000).text)
  end)

  it("refuse budgets that are none", function()
    for _, budget in ipairs({ "12 bananas", "-1", "nan", "1e3", "", "80%" }) do
      assert.matches("optimal:", message_of("optimal:" .. budget), 1, true)
    end
    assert.matches("'12 bananas' is in an unknown unit 'bananas'",
      message_of("optimal:12 bananas"))
    for _, budget in ipairs({ 0 / 0, -1, math.huge, {}, true }) do
      assert.matches("optimal", message_of({ policy = "optimal", budget = budget }))
    end
    assert.matches("policy 'optimal' needs 'budget'", message_of({ policy = "optimal" }))
    assert.matches("did you mean 'budget'", message_of({ policy = "optimal", buget = 1 }))
    for _, slots in ipairs({ "0", "-1", "2.5", "x" }) do
      assert.matches("expected a whole number, 1 to", message_of("revolve:" .. slots))
    end
  end)
end)
