-- Training over time, as a person runs it.
local json = require("neap.json")
local script = require("spec.support.script")

describe("examples/sequence.lua", function()
  local directory
  setup(function()
    directory = script.directory()
    local words = {}
    for i = 1, 900 do words[i] = i % 7 == 0 and "and the tide\n" or "low water " end
    script.write(directory .. "/text", table.concat(words))
  end)
  teardown(function() script.remove(directory) end)

  local function run(...)
    local result = script.run("examples/sequence.lua", { "--threads", "1", ... }, directory)
    result.report = result.out:sub(1, 1) == "{" and json.decode(result.out) or nil
    return result
  end

  local function small(...)
    return run("--json", "--data", "text", "--hidden", "12", "--steps-in-time", "100", "--chunk",
      "3", "--global-batch", "5", "--steps", "3", ...)
  end

  for _, cell in ipairs({ "lstm", "gru" }) do
    it("has the same bits under every policy and takes the predicted bytes: " .. cell, function()
      local base
      for _, policy in ipairs({ "none", "every_n:3", "segments:10",
        "segments:auto", "revolve:6" }) do
        local result = small("--cell", cell, "--checkpoint", policy)
        local report = result.report
        assert.same({ 0, 3, policy, 100 },
          { result.status, report.steps, report.plan, report.steps_in_time })
        assert.equal(report.predicted_peak_bytes, report.measured_peak_bytes)
        base = base or report
        for _, key in ipairs({ "loss_bits", "grad_norm_bits", "state_hash", "val_loss" }) do
          assert.equal(base[key], report[key])
        end
        if policy:find("segments") then
          assert.is_true(report.activation_peak_bytes < base.activation_peak_bytes / 4)
        end
      end
    end)
  end

  it("prints a line a step, and what each policy would have cost", function()
    local result = run("--data", "text", "--hidden", "8", "--steps-in-time", "50", "--steps", "2")
    assert.equal(0, result.status)
    local predicted, measured = result.out:match(
      "\nstep 2/2 loss [%d.]+ gnorm [%d.]+ lr %S+ %d+ ms %d+ tok/s peak ([%d.]+)/([%d.]+) MiB "
      .. "%(predicted/measured%)")
    assert.equal(predicted, measured)
    assert(result.out:find("\n> segments:auto ", 1, true), result.out)
    assert(result.out:find("\n  none ", 1, true))
    assert(result.out:find("val_loss", 1, true))
  end)

  it("learns a short copy task better than by guessing", function()
    local result = run("--task", "copy", "--cell", "gru", "--steps-in-time", "8", "--hidden", "32",
      "--chunk", "32", "--steps", "500", "--lr", "1e-2")
    local guess = tonumber(result.out:match("guessing costs ([%d.]+)"))
    local found = tonumber(result.out:match("val_loss ([%d.]+)"))
    assert.is_true(math.abs(guess - 3 * math.log(8) / 8) < 1e-4)
    assert.is_true(found < guess / 2, result.out)
  end)

  it("plans 5,000 steps on null without running them", function()
    local result = run("--device", "null", "--data", "text", "--steps-in-time", "5000", "--hidden",
      "256", "--dry-run", "--budget", "1GiB")
    assert.equal(0, result.status)
    assert(result.out:find("verdict: fits", 1, true), result.out)
    assert.is_nil(result.out:find("step 1/", 1, true))
  end)

  for arguments, expected in pairs({
    ["--cell=gur"] = { 2, "--cell: unknown name 'gur', did you mean 'gru'" },
    ["--task=x"] = { 2, "--task: unknown name 'x'" },
    ["--hidden=0"] = { 2, "--hidden: width is 0" },
    ["--steps-in-time=1.5"] = { 2, "--steps-in-time: context is 1.5" },
    ["--steps-in-time=70000 --task=copy"] = { 2, "Recurrent: time must be" },
    ["--steps-in-time=2 --task=copy"] = { 2, "copy task: context must be" },
    ["--stps=3"] = { 2, "did you mean '--steps'" },
    ["config.lua"] = { 2, "too many arguments" },
    ["--checkpoint=segments:2000"] = { 2, "segments:2000: this model has 1000 stages" },
    ["--data=nowhere"] = { 1, "'nowhere': No such file" },
    ["--budget=256KiB --data=text"] = { 3, "the budget is 262144 bytes" },
    ["--lr=1e30 --clip=0"] = { 2, "--clip" },
  }) do
    it("ends with " .. expected[1] .. " and one sentence for " .. arguments, function()
      local words = {}
      for word in arguments:gmatch("%S+") do words[#words + 1] = word end
      local result = run("--json", "--steps", "1", unpack(words))
      assert.equal(expected[1], result.status)
      assert(result.report.error:find(expected[2], 1, true), result.report.error)
      assert.equal(expected[1], result.report.exit)
      assert(result.err:find("sequence.lua: " .. result.report.error, 1, true))
    end)
  end

  it("says what it takes with --help", function()
    local result = run("--help")
    assert.equal(0, result.status)
    assert(result.out:find("--steps-in-time N", 1, true))
    assert(result.out:find("Exit status", 1, true))
  end)
end)
