-- The main job, run as a person runs it: bits, bytes and exit statuses of whole training runs.
local script = require("spec.support.script")

-- enough English for a vocabulary and for steps that differ
local function text()
  local words, parts = { "tide", "moon", "low", "water", "stone", "gulls", "and", "the", "sand",
    "salt" }, {}
  local state = 7
  for i = 1, 6000 do
    state = state * 16807 % 2147483647
    parts[i] = words[state % #words + 1] .. (i % 11 == 0 and ".\n" or " ")
  end
  return table.concat(parts)
end

describe("training a GPT from the command line", function()
  local directory, data, root
  local config = "examples/configs/shakespeare_char_cpu.lua"

  setup(function()
    root = script.root()
    directory = script.directory()
    data = script.write(directory .. "/text.txt", text())
  end)
  teardown(function() script.remove(directory) end)

  local function train(checkpoint, more)
    local arguments = { root .. "/" .. config, "--data", data, "--checkpoint", checkpoint,
      "--threads",
      "1", "--set", "final_eval_batches=2" }
    for _, word in ipairs(more or {}) do arguments[#arguments + 1] = word end
    return script.train(arguments, directory)
  end

  describe("for 50 steps of the Shakespeare model", function()
    local runs = {}
    local policies = { "none", "all", "every_n:2", "by_name:block.1", "greedy:2MiB", "segments:2" }
    -- forwards beyond the first of the six stages: embed, four blocks, head
    local recomputed = { none = 0, all = 6, ["every_n:2"] = 3, ["by_name:block.1"] = 1,
      ["segments:2"] = 3 }

    setup(function()
      for _, policy in ipairs(policies) do runs[policy] = train(policy, { "--steps", "50" }) end
    end)

    for _, policy in ipairs(policies) do
      it("gives the same bits under " .. policy .. " as without recomputation", function()
        local run, none = runs[policy].report, runs.none.report
        assert.equal(0, runs[policy].status, runs[policy].err)
        assert.equal(50, run.steps)
        assert.equal(none.loss_bits, run.loss_bits)
        assert.equal(none.grad_norm_bits, run.grad_norm_bits)
        assert.equal(none.state_hash, run.state_hash)
        assert.equal(none.val_loss, run.val_loss)
        assert.is_true(run.train_loss < 3)
      end)

      it("peaks under " .. policy .. " exactly where it was predicted", function()
        local run = runs[policy].report
        assert.equal(run.predicted_peak_bytes, run.measured_peak_bytes)
        assert.is_true(run.eval_peak_bytes <= run.measured_peak_bytes)
      end)
    end

    for policy, n in pairs(recomputed) do
      it(string.format("recomputes %d forwards under %s", n, policy), function()
        assert.equal(n, runs[policy].report.recomputed_forwards)
      end)
    end

    it("takes less memory under all and segments:2 than under none", function()
      for _, policy in ipairs({ "all", "segments:2", "every_n:2", "greedy:2MiB" }) do
        assert.is_true(runs[policy].report.measured_peak_bytes
          < runs.none.report.measured_peak_bytes)
        assert.is_true(runs[policy].report.activation_peak_bytes
          < runs.none.report.activation_peak_bytes)
      end
    end)

    for _, policy in ipairs({ "none", "all", "segments:2" }) do
      it("runs under " .. policy .. " in a device budget of exactly the predicted peak", function()
        local peak = runs[policy].report.predicted_peak_bytes
        local run = train(policy, { "--steps", "2", "--budget", string.format("%.0f", peak) })
        assert.equal(0, run.status, run.err)
        assert.equal(peak, run.report.measured_peak_bytes)
      end)

      it("refuses a budget one byte below it under " .. policy .. ", with the numbers", function()
        local peak = runs[policy].report.predicted_peak_bytes
        local run = train(policy, { "--steps", "2", "--budget", string.format("%.0f", peak - 1) })
        assert.equal(3, run.status)
        assert.equal(3, run.report.exit)
        assert.matches(string.format("needs %.0f bytes", peak), run.report.error)
        assert.matches(string.format("budget is %.0f bytes", peak - 1), run.report.error)
      end)
    end
  end)

  it("gives equal bits in two processes, and with dropout under every plan", function()
    local first
    for _, policy in ipairs({ "none", "none", "all", "segments:3" }) do
      local run = train(policy, { "--steps", "6", "--set", "dropout=0.2" }).report
      first = first or run
      assert.equal(first.loss_bits, run.loss_bits)
      assert.equal(first.grad_norm_bits, run.grad_norm_bits)
      assert.equal(first.state_hash, run.state_hash)
    end
  end)

  it("trains as one batch does when the global batch is cut into chunks", function()
    local whole = train("none", { "--steps", "5", "--global-batch", "10", "--chunk", "10" }).report
    local cut = train("all", { "--steps", "5", "--global-batch", "10", "--chunk", "4" }).report
    assert.equal(4, cut.chunk)
    assert.is_true(math.abs(whole.train_loss - cut.train_loss) < 1e-4)
    assert.is_true(math.abs(whole.grad_norm - cut.grad_norm) < 1e-3)
    assert.is_true(cut.measured_peak_bytes < whole.measured_peak_bytes)
    assert.equal(cut.predicted_peak_bytes, cut.measured_peak_bytes)
  end)

  it("counts the same bytes on null as on the cpu", function()
    local cpu = train("segments:2", { "--steps", "2" }).report
    local null = train("segments:2", { "--steps", "2", "--device", "null" }).report
    assert.equal("null", null.device)
    assert.equal(cpu.measured_peak_bytes, null.measured_peak_bytes)
    assert.equal(cpu.activation_peak_bytes, null.activation_peak_bytes)
    assert.equal(cpu.eval_peak_bytes, null.eval_peak_bytes)
  end)

  it("shows plan and verdict on a dry run, trains nothing, leaves nothing behind", function()
    local empty = script.directory()
    local run = script.run("examples/train.lua", { "--data", data, "--dry-run", "--checkpoint",
      "all",
      "--budget", "64MiB", "--device", "null" }, empty)
    assert.equal(0, run.status, run.err)
    assert.matches("block%.3", run.out)
    assert.matches("verdict: fits", run.out)
    assert.not_matches("step 1/", run.out)
    local pipe = io.popen("ls -A " .. empty)
    assert.equal("", pipe:read("*a"))
    pipe:close()
    script.remove(empty)
  end)

  it("says on stderr which device was taken and why", function()
    local run = train("none", { "--steps", "1", "--set", "final_eval_batches=0" })
    assert.matches("device cpu %(auto: ", run.err)
  end)

  it("writes config, manifest and a line a step into the run's directory", function()
    local out = directory .. "/mine"
    assert.equal(0, train("none", { "--steps", "3", "--out", out }).status)
    local lines = 0
    for line in io.lines(out .. "/metrics.jsonl") do
      lines = lines + (line:find('"grad_norm"', 1, true) and 1 or 0)
    end
    assert.equal(3, lines)
    assert.truthy(loadfile(out .. "/config.lua"))
    assert.matches('"data_hash"', io.open(out .. "/manifest.json"):read("*a"))
  end)

  it("reaches the loss that nanoGPT publishes for these settings on Shakespeare", function()
    local shakespeare = os.getenv("NEAP_SHAKESPEARE")
    if not shakespeare then
      pending("NEAP_SHAKESPEARE names no text; set it to tinyshakespeare.txt (1,115,394 bytes)")
      return
    end
    local run = script.train({ root .. "/" .. config, "--data", shakespeare }, directory)
    assert.equal(0, run.status, run.err)
    assert.is_true(run.report.val_loss <= 1.92, "val_loss " .. tostring(run.report.val_loss))
  end)
end)
