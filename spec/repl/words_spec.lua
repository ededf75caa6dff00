-- The words of the REPL over a small model: what they answer, what they change and what not.
local neap = require("neap")
local script = require("spec.support.script")
local support = require("spec.support.repl")

describe("the REPL's word", function()
  local directory, data, repl
  local STAGES = { "embed", "block.0", "block.1", "block.2", "head" }

  setup(function()
    directory = script.directory()
    data = support.text(directory)
  end)
  teardown(function() script.remove(directory) end)
  before_each(function() repl = support.new(data) end)
  after_each(function() repl.close() end)

  local function value(expression)
    local _, complaint = repl.feed("result = " .. expression)
    assert.is_nil(complaint)
    return repl.repl.evaluator.env.result
  end

  local function complaint_of(line)
    local _, complaint = repl.feed(line)
    assert.truthy(complaint, line .. " was taken")
    return complaint
  end

  it("stages lists every stage with what it keeps", function()
    local said = repl.feed("stages()")
    for i, name in ipairs(STAGES) do
      assert.matches("\n  " .. (i - 1) .. " +" .. name:gsub("%.", "%%."), said)
    end
    assert.matches("block%.1 +Block +everything +3280 ", said) -- 12 w^2 + 13 w, w = 16
  end)

  for _, line in ipairs({ "stages()", "segments(2)", "policy()", "plan()", "profile()",
    "frontier()", "whatif('1MiB')", "timeline()", "peak()", "saved()", "chunk()", "who()" }) do
    it(line .. " says predicted and measured peak and the cost beside keep-all", function()
      repl.feed("step(1)")
      local said, complaint = repl.feed(line)
      assert.is_nil(complaint)
      assert.matches("predicted peak [%d.]+ KiB, ", said)
      assert.matches("measured", said)
      assert.matches("cost %+[%d.]+%% over keep%-all %([%d.]+ KiB%)", said)
    end)
  end

  it("policy sets what train.lua's --checkpoint sets, and step peaks where it was predicted",
    function()
      for _, spec in ipairs({ "none", "all", "every_n:2", "by_name:block.1", "segments:2",
        "segments:auto", "revolve:2", "optimal:auto", "selective:matmul" }) do
        assert.equal(spec, value(string.format("policy(%q)", spec)).policy)
        local answer = value("step(1)")
        assert.equal(answer.predicted_peak_bytes, answer.measured_peak_bytes)
        assert.equal(spec, repl.session.trainer.config.checkpoint)
      end
    end)

  it("policy trains to the same bits whatever it chooses", function()
    local hashes = {}
    for i, spec in ipairs({ "none", "segments:2", "all" }) do
      repl.close()
      repl = support.new(data)
      repl.feed(string.format("policy(%q)", spec))
      repl.feed("step(2)")
      hashes[i] = repl.session.trainer:state_hash()
    end
    assert.equal(hashes[1], hashes[2])
    assert.equal(hashes[1], hashes[3])
  end)

  it("policy that is misspelt names the nearest and changes nothing", function()
    repl.feed("segments(2)")
    assert.matches("did you mean 'segments'", complaint_of("policy('segmnts:3')"))
    assert.matches("close: block%.1", complaint_of("segments{ 'blok.1' }"))
    assert.matches("allowed 1%.%.5", complaint_of("segments(9)"))
    assert.matches("whole number", complaint_of("segments(1.5)"))
    assert.equal("segments:2", value("policy()").policy)
  end)

  it("segments takes a number, auto, or the stages where they start", function()
    assert.equal("segments:3", value("segments(3)").policy)
    assert.equal("segments:auto", value("segments('auto')").policy)
    local plan = value("segments{ 'block.1', 'head' }").plan
    local kept = {}
    for _, action in ipairs(plan.actions) do
      kept[action.stage] = kept[action.stage] or action.keep
    end
    assert.same({ [0] = "input", "nothing", "input", "nothing", "everything" },
      { [0] = kept[0], kept[1], kept[2], kept[3], kept[4] })
  end)

  it("policy that does not fit the device budget is refused with the numbers", function()
    local none = value("plan('none')").predicted_peak_bytes
    local all = value("plan('all')").predicted_peak_bytes
    repl.close()
    repl = support.new(data, { keys = { budget = none - 1, checkpoint = "all" } })
    assert.matches(string.format("needs %.0f bytes.*budget is %.0f bytes", none, none - 1),
      complaint_of("policy('none')"))
    assert.equal(all, value("step(1)").measured_peak_bytes)
    assert.matches("none +[%d.]+ KiB +does not fit", (repl.feed("compare('none', 'all')")))
  end)

  it("plan is the planner's table; plan(spec) changes nothing", function()
    assert.matches("plan all: 5 stages.*least budget without", (repl.feed("plan('all')")))
    assert.equal("none", value("policy()").policy)
    assert.matches("least feasible peak", complaint_of("plan('optimal:100')"))
    assert.matches("least feasible peak", complaint_of("compare('none', 'optimal:100')"))
    assert.truthy(neap.simulate(value("plan()").plan, value("profile()").profile))
  end)

  it("frontier draws the curve from the least feasible peak to keep-all", function()
    local answer, said = value("frontier()"), repl.feed("frontier()")
    local points = answer.points
    assert.is_true(#points > 1)
    assert.equal(points[1].peak_bytes, answer.least_bytes)
    assert.matches("█", said)
    assert.matches("K", said:match("[^\n]*KiB[^\n]*\n([^\n]*)"))
    assert.matches("%+0%.0%%", said)
  end)

  it("whatif finds the least cost within a plan budget, tries it and leaves the policy", function()
    local points = value("frontier()").points
    local middle = points[math.ceil(#points / 2)]
    local answer = value(string.format("whatif(%.0f)", middle.peak_bytes))
    assert.equal(middle.peak_bytes, answer.plan_bytes)
    assert.equal(answer.predicted_peak_bytes, answer.measured_peak_bytes)
    assert.equal("none", value("policy()").policy)
    assert.matches("least feasible peak.*plan budget is 100 bytes", complaint_of("whatif(100)"))
    assert.matches("not a size", complaint_of("whatif('much')"))
    assert.matches("expected a plan budget", complaint_of("whatif()"))
  end)

  it("compare tries each policy and leaves model and policy as they were", function()
    repl.feed("step(1)")
    local hash, position = repl.session.trainer:state_hash(), repl.session.trainer.position
    neap.rng({ seed = 7, step = 5, item = 3, n_items = 2, stage = 1 })
    local rng = require("neap.rng").get()
    local rows = value("compare('none', 'segments:3')").rows
    for _, row in ipairs(rows) do
      assert.equal(row.predicted_peak_bytes, row.measured_peak_bytes)
    end
    assert.is_true(rows[2].predicted_peak_bytes < rows[1].predicted_peak_bytes)
    assert.equal(0, rows[1].extra_cost)
    assert.is_true(rows[2].extra_cost > 0)
    assert.equal(hash, repl.session.trainer:state_hash())
    assert.equal(position, repl.session.trainer.position)
    assert.same(rng, require("neap.rng").get())
    assert.equal("none", value("policy()").policy)
    assert.matches("expected two policies", complaint_of("compare('none')"))
  end)

  it("compare and whatif leave the training's bits alone", function()
    repl.feed("step(1)\ncompare('none', 'all')\nwhatif('1MiB')\nprofile()\nsaved()\nstep(1)")
    local with = repl.session.trainer:state_hash()
    repl.close()
    repl = support.new(data)
    repl.feed("step(2)")
    assert.equal(repl.session.trainer:state_hash(), with)
  end)

  it("timeline draws forward, backward and what is recomputed", function()
    local said = repl.feed("timeline()")
    assert.matches("F+ *B", said)
    assert.not_matches("R+B", said)
    repl.feed("segments(2)")
    said = repl.feed("timeline()")
    assert.matches("R", said:match("\n( +F[FRB ]+)\n"))
    for line in said:gmatch("[^\n]*█[^\n]*") do
      assert.is_true(#line:gsub("[\128-\191]", "") <= 80)
    end
  end)

  it("timeline and frontier are plain ASCII when asked", function()
    repl.close()
    repl = support.new(data, { plain = true })
    for _, line in ipairs({ "timeline()", "frontier()" }) do
      local said = repl.feed(line)
      assert.matches("#", said)
      assert.is_nil(said:find("[\128-\255]"))
    end
  end)

  it("peak names who is alive there; what a step measured by tag sums up to its peak", function()
    repl.feed("step(1)")
    assert.matches("residuals of block%.2 +[%d.]+ KiB", (repl.feed("peak()")))
    local answer, sum = value("peak()"), 0
    for _, amount in pairs(answer.tags) do sum = sum + amount end
    assert.equal(answer.measured_peak_bytes, sum)
  end)

  it("saved gives a reason for every tensor, and what the policy does not hold of it", function()
    assert.matches("keeps all of it", (repl.feed("saved()")))
    repl.feed("policy('by_name:block.1')")
    local said = repl.feed("saved()")
    assert.matches("the gradient of the weight is x^T", said, 1, true)
    assert.matches("does not hold what is in block%.1 %([%d.]+ KiB%)", said)
  end)

  it("chunk sets the items of one forward, and the step's bytes follow", function()
    local before = value("chunk()")
    assert.equal(2, before.chunk)
    local after = value("chunk(4)")
    assert.equal(4, after.chunk)
    assert.is_true(after.predicted_peak_bytes > before.predicted_peak_bytes)
    local answer = value("step(1)")
    assert.equal(answer.predicted_peak_bytes, answer.measured_peak_bytes)
    assert.matches("1 to 4, found 5", complaint_of("chunk(5)"))
    assert.matches("found 0", complaint_of("chunk(0)"))
    assert.equal(4, value("chunk()").chunk)
  end)

  it("chunk takes the largest that fits the device budget when it picks", function()
    local three = value("chunk(3)").predicted_peak_bytes
    repl.close()
    repl = support.new(data, { keys = { budget = three } })
    assert.equal(3, value("chunk('auto')").chunk)
    repl.close()
    repl = support.new(data, { keys = { budget = three - 1 } })
    assert.equal(2, value("chunk('auto')").chunk)
  end)

  it("who counts by tag, and names tensors made at the prompt", function()
    repl.feed("mine = neap.zeros({ 32, 64 })")
    local said = repl.feed("who()")
    assert.matches("parameters +[%d.]+ KiB", said)
    assert.matches("mine: tensor f32 %(32, 64%) +8%.0 KiB", said)
    local answer = value("step(1)")
    assert.equal(answer.predicted_peak_bytes, answer.measured_peak_bytes)
    assert.matches("and 8%.0 KiB of your own tensors", (repl.feed("policy()")))
    repl.feed("mine:free()")
    assert.not_matches("mine", (repl.feed("who()")))
  end)

  it("save writes what state.load reads back", function()
    repl.feed("step(2)")
    local hash, path = repl.session.trainer:state_hash(), directory .. "/tuned.safetensors"
    assert.matches("after step 2", (repl.feed(string.format("save(%q)", path))))
    repl.feed("step(1)")
    local t = repl.session.trainer
    local counts = require("neap.state").load(path, { model = t.model, optimizer = t.optimizer })
    assert.equal(2, counts.step)
    assert.equal(8, counts.position)
    assert.equal(hash, t:state_hash())
    assert.matches("save: the file's path", complaint_of("save()"))
    assert.matches("cannot", complaint_of("save('/nowhere/at/all')"))
  end)

  it("load takes keys or a path, and keeps the model where it fails", function()
    repl.close()
    repl = support.new(data, { keys = { budget = "64MiB" } })
    repl.feed("step(1)")
    local hash = repl.session.trainer:state_hash()
    complaint_of("load{ n_head = 3, width = 16 }")
    complaint_of("load('/nowhere.lua')")
    local device = require("neap.device").current()
    assert.matches("[Mm]emory", complaint_of("load{ data = config.data, budget = 1000 }"))
    assert.equal(device, require("neap.device").current())
    assert.equal(hash, repl.session.trainer:state_hash())
    local path = script.write(directory .. "/one.lua", string.format("return { n_layer = 1, "
      .. "n_head = 1, width = 8, context = 8, chunk = 2, data = %q }", data))
    assert.matches("GPT of %d+ parameters", (repl.feed(string.format("load(%q)", path))))
    assert.equal(3, #repl.session.trainer.model.stages)
    assert.equal(1, value("step(1)").step)
  end)

  it("quit ends the session", function()
    repl.feed("quit()")
    assert.is_true(repl.session.finished)
  end)
end)
