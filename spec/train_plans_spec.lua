-- The main job under plans: budgets, tables in configs, dry runs of models that fit nowhere.
local script = require("spec.support.script")

local SMALL = { "n_layer=3", "n_head=2", "width=32", "context=32", "chunk=6", "warmup=2",
  "final_eval_batches=1", "eval_every=0", "dropout=0.1" }

describe("training under plans", function()
  local directory, data

  setup(function()
    directory = script.directory()
    data = script.write(directory .. "/text.txt", string.rep("the tide that is lowest of all. ",
      200))
    script.write(directory .. "/empty.lua", "return {}")
  end)
  teardown(function() script.remove(directory) end)

  local function arguments_of(config, more)
    local list = { directory .. "/" .. config, "--data", data, "--threads", "1" }
    for _, set in ipairs(SMALL) do
      list[#list + 1] = "--set"
      list[#list + 1] = set
    end
    for _, word in ipairs(more) do list[#list + 1] = word end
    return list
  end

  local function train(checkpoint, more)
    return script.train(arguments_of("empty.lua", { "--steps", "3", "--checkpoint", checkpoint,
      unpack(more or {}) }), directory)
  end

  local function dry_run(config, more)
    return script.run("examples/train.lua",
      arguments_of(config, { "--dry-run", "--device", "null", unpack(more) }), directory)
  end

  local none
  setup(function() none = train("none").report end)

  local function is_same_training(run)
    assert.equal(0, run.status, run.err)
    assert.equal(none.loss_bits, run.report.loss_bits)
    assert.equal(none.grad_norm_bits, run.report.grad_norm_bits)
    assert.equal(none.state_hash, run.report.state_hash)
    assert.equal(run.report.predicted_peak_bytes, run.report.measured_peak_bytes)
  end

  for _, spec in ipairs({ "segments:auto", "revolve:1", "optimal:auto" }) do
    it("gives the bits of keep-all and the predicted peak under " .. spec, function()
      local run = train(spec)
      is_same_training(run)
      assert.equal(spec, run.report.plan)
      assert.is_true(run.report.measured_peak_bytes < none.measured_peak_bytes)
      assert.is_true(run.report.recomputed_forwards > 0)
    end)
  end

  it("plans optimal:auto under what a device budget leaves, to the byte", function()
    local tight = train("optimal:auto", { "--budget",
      string.format("%.0f", none.measured_peak_bytes - 1) })
    is_same_training(tight)
    assert.is_true(tight.report.measured_peak_bytes < none.measured_peak_bytes)
    local wide = train("optimal:auto", { "--budget",
      string.format("%.0f", none.measured_peak_bytes) })
    is_same_training(wide)
    assert.equal(none.measured_peak_bytes, wide.report.measured_peak_bytes)
    assert.equal(0, wide.report.recomputed_forwards)
  end)

  it("keeps a plan budget in activations, also with a shorter last chunk", function()
    local budget = math.floor(none.activation_peak_bytes * 0.6)
    local more = { "--global-batch", "10", "--chunk", "4" }
    local run = train(string.format("optimal:%d", budget), more)
    assert.equal(0, run.status, run.err)
    assert.equal(run.report.predicted_peak_bytes, run.report.measured_peak_bytes)
    assert.is_true(run.report.activation_peak_bytes <= budget)
    local kept = train("none", more).report
    assert.equal(kept.loss_bits, run.report.loss_bits)
    assert.equal(kept.state_hash, run.report.state_hash)
  end)

  it("ends with 3 and both numbers where no plan keeps the plan budget", function()
    local run = train("optimal:1KiB")
    assert.equal(3, run.status)
    assert.matches("optimal:1024: the least feasible peak of these 5 stages is %d+ bytes %(.-%), "
      .. "the plan budget is 1024 bytes", run.report.error)
    assert.equal("optimal:1024", run.report.plan)
    local least = run.report.error:match("stages is (%d+) bytes")
    is_same_training(train("optimal:" .. least))
    assert.equal(3, train("optimal:" .. tonumber(least) - 1).status)
  end)

  it("ends with 3 and the least that fits where no plan keeps the device budget", function()
    local run = train("optimal:auto", { "--budget", "64KiB" })
    assert.equal(3, run.status)
    local least = run.report.error:match("the least of all plans takes (%d+) bytes")
    is_same_training(train("optimal:auto", { "--budget", least }))
    run = train("optimal:auto", { "--budget", string.format("%d", tonumber(least) - 1) })
    assert.equal(3, run.status)
  end)

  it("takes rules and segments by hand from a config, keeps them with the run, and goes on with "
    .. "them", function()
    for name, policy in pairs({
      rules = '{ rules = { { "block", "recompute" }, { "head", "store" } } }',
      starts = '{ policy = "segments", starts = { "block.1" } }',
    }) do
      script.write(directory .. "/table.lua", "return { checkpoint = " .. policy .. " }")
      local out = directory .. "/" .. name
      local run = script.train(arguments_of("table.lua", { "--steps", "2", "--out", out }),
        directory)
      assert.equal(0, run.status, run.err)
      local again = script.train({ "--resume", "--out", out, "--steps", "3" }, directory)
      is_same_training(again)
      assert.equal(run.report.plan, again.report.plan)
    end
  end)

  it("keeps a percentage with the run as the bytes that it was", function()
    local out = directory .. "/percent"
    assert.equal(0, train("greedy:50%", { "--out", out }).status)
    assert.matches('checkpoint = "greedy:%d+",', io.open(out .. "/config.lua"):read("*a"))
    local run = train("optimal:50%", { "--device", "null" })
    assert.equal(2, run.status)
    assert.matches("a share of a size that is not known", run.report.error)
  end)

  it("ends with 2 where a policy is none, and says why a function cannot be one", function()
    for policy, expected in pairs({
      ["optimal:12 bananas"] = "unknown unit 'bananas'", ["optimal:-1"] = "not a size",
      ["optimum:auto"] = "did you mean 'optimal'", ["selective:linaer"] = "did you mean 'linear'",
      ["revolve:0"] = "expected a whole number",
    }) do
      local run = train(policy)
      assert.equal(2, run.status, policy)
      assert.matches(expected, run.report.error, 1, true)
    end
    script.write(directory .. "/function.lua", 'return { checkpoint = { policy = "selective", '
      .. "keep = function(op) return op end } }")
    local run = dry_run("function.lua", {})
    assert.equal(2, run.status)
    assert.matches("a function cannot be kept", run.err)
  end)

  it("shows on a dry run where the bytes go, and what every policy would take", function()
    local run = dry_run("empty.lua", { "--checkpoint", "optimal:auto" })
    assert.equal(0, run.status, run.err)
    for _, line in ipairs({ "parameters +[%d.]+ %a+B", "gradients +[%d.]+ %a+B",
      "optimizer +[%d.]+ %a+B", "batch +[%d.]+ %a+B", "activations +[%d.]+ %a+B  alive",
      "made inside +[%d.]+ %a+B", "peak +[%d.]+ %a+B  in %a+ %d", "block%.2 ", "> optimal:auto ",
      "segments:auto ", "least feasible budget", "verdict: no budget was set" }) do
      assert.matches(line, run.out)
    end
  end)

  it("judges a model of GPT-2 XL's size in less than 200 MiB of this machine's memory", function()
    local tokens = {}
    for i = 1, 3000 do
      local token = i == 7 and 50256 or i
      tokens[i] = string.char(token % 256, math.floor(token / 256))
    end
    local file = script.write(directory .. "/tokens.bin", table.concat(tokens))
    local words = { "--data", file, "--device", "null", "--dry-run", "--checkpoint",
      "optimal:auto", "--budget", "80GiB" }
    for _, set in ipairs({ "width=1600", "n_layer=48", "n_head=25", "context=1024", "chunk=64",
      "global_batch=64" }) do
      words[#words + 1] = "--set"
      words[#words + 1] = set
    end
    local run = script.run("examples/train.lua", words, directory, 200 * 1024)
    assert.equal(0, run.status, run.err)
    -- V w + T w + L (12 w^2 + 13 w) + 2 w, the head shares the embedding
    assert.matches(string.format("GPT of %d parameters", 50257 * 1600 + 1024 * 1600
      + 48 * (12 * 1600 ^ 2 + 13 * 1600) + 2 * 1600), run.out, 1, true)
    assert.matches("verdict: fits", run.out)
    words[9] = "24GiB"
    run = script.run("examples/train.lua", words, directory, 200 * 1024)
    assert.equal(3, run.status)
    assert.matches("the least of all plans takes %d+ bytes %([%d.]+ GiB%)", run.err)
  end)
end)
