-- Stopping and going on: the same bits as a run that never stopped, whatever stopped it.
local script = require("spec.support.script")

local SMALL = { "n_layer=2", "n_head=2", "width=32", "context=32", "chunk=4", "global_batch=8",
  "dropout=0.1", "warmup=0", "lr=1e-3", "min_lr=1e-3", "eval_every=10", "eval_batches=2",
  "final_eval_batches=2" }

describe("a training run", function()
  local directory, data, straight

  local function arguments(more)
    local list = { "--data", data, "--threads", "1" }
    for _, set in ipairs(SMALL) do list[#list + 1], list[#list + 2] = "--set", set end
    for _, word in ipairs(more) do list[#list + 1] = word end
    return list
  end

  local function train(out, steps, more)
    local words = { "--out", directory .. "/" .. out, "--steps", tostring(steps) }
    for _, word in ipairs(more or {}) do words[#words + 1] = word end
    return script.train(arguments(words), directory)
  end

  setup(function()
    directory = script.directory()
    data = script.write(directory .. "/text.txt", ("neap tides have the lowest high water, "
      .. "spring tides the highest; between them lies a week. "):rep(120))
    straight = train("straight", 60)
    assert.equal(0, straight.status, straight.err)
  end)
  teardown(function() script.remove(directory) end)

  local function assert_like_straight(run)
    assert.equal(0, run.status, run.err)
    assert.equal(60, run.report.steps)
    assert.equal(straight.report.loss_bits, run.report.loss_bits)
    assert.equal(straight.report.grad_norm_bits, run.report.grad_norm_bits)
    assert.equal(straight.report.state_hash, run.report.state_hash)
    assert.equal(straight.report.val_loss, run.report.val_loss)
  end

  it("resumed at step 30 in a new process ends with the bits of one that never stopped", function()
    assert.equal(0, train("half", 30).status)
    assert_like_straight(train("half", 60, { "--resume" }))
  end)

  it("resumed under another plan does so, too", function()
    assert.equal(0, train("plans", 25).status)
    assert_like_straight(train("plans", 60, { "--resume", "--checkpoint", "all" }))
    assert.equal(0, train("segments", 25, { "--checkpoint", "segments:2" }).status)
    assert_like_straight(train("segments", 60, { "--resume", "--checkpoint", "none" }))
  end)

  it("resumed again has whole logs: each step once", function()
    local seen = {}
    for line in io.lines(directory .. "/half/metrics.csv") do
      local step = tonumber(line:match("^(%d+),"))
      if step then
        assert.is_nil(seen[step])
        seen[step] = true
      end
    end
    assert.equal(60, #seen)
  end)

  it("keeps the last three states and the best one", function()
    local pipe = io.popen("ls " .. directory .. "/straight")
    local names = pipe:read("*a")
    pipe:close()
    local _, n = names:gsub("state%-%d+%.safetensors", "")
    assert.equal(3, n)
    assert.matches("best%.safetensors", names)
    assert.not_matches("tmp", names)
  end)

  it("says what keeps the bits from being the same", function()
    assert.equal(0, train("chunks", 10).status)
    local run = train("chunks", 12, { "--resume", "--chunk", "8" })
    assert.equal(0, run.status, run.err)
    assert.matches("resume: chunk was 4, is 8: the bits will not be those", run.err)
    assert.not_matches("threads was", run.err)
  end)

  it("does not start over in a directory that holds a state", function()
    local run = train("half", 5)
    assert.equal(2, run.status)
    assert.matches("holds the state of an earlier run; continue it with %-%-resume", run.err)
  end)

  it("refuses a state of another model, and changes nothing", function()
    local run = train("half", 70, { "--resume", "--set", "width=64" })
    assert.equal(1, run.status)
    assert.matches("belongs to another configuration", run.report.error)
  end)

  it("says so when there is nothing to resume", function()
    local run = script.run("examples/train.lua", arguments({ "--resume", "--out",
      directory .. "/none" }), directory)
    assert.equal(1, run.status)
    assert.matches("^[^\n]*'[^\n]*none[^\n]*'", run.err)
  end)

  -- what of the state a run could do without would not be state
  describe("whose state lacks or loses", function()
    local neap, safetensors, states

    setup(function()
      neap = require("neap")
      safetensors = require("neap.safetensors")
      neap.device("cpu")
      states = 0
      assert.equal(0, train("source", 30).status)
    end)

    -- a copy of the run with its state changed
    local function tampered(change)
      states = states + 1
      local out = "tampered" .. states
      os.execute(string.format("cp -r %s/source %s/%s", directory, directory, out))
      local path = string.format("%s/%s/state-00000030.safetensors", directory, out)
      local file = safetensors.open(path)
      local metadata, entries = file:metadata(), {}
      for i, name in ipairs(file:names()) do
        local tensor = neap.empty(file:dims(name), { dtype = file:dtype(name) })
        file:read_into(name, tensor)
        entries[i] = { name = name, tensor = tensor }
      end
      file:close()
      safetensors.save(path, change(entries, metadata) or entries, metadata)
      return train(out, 60, { "--resume" })
    end

    local function differs(run)
      return run.status ~= 0 or run.report.state_hash ~= straight.report.state_hash
    end

    it("nothing goes on as if nothing had happened", function()
      assert_like_straight(tampered(function() end))
    end)

    it("its optimizer is noticed", function()
      assert.is_true(differs(tampered(function(entries)
        for _, e in ipairs(entries) do
          if e.name:match("^optimizer%.") then e.tensor:fill(0) end
        end
      end)))
      local run = tampered(function(entries)
        local kept = {}
        for _, e in ipairs(entries) do
          if not e.name:match("^optimizer%.") then kept[#kept + 1] = e end
        end
        return kept
      end)
      assert.equal(1, run.status)
      assert.matches("tensor 'optimizer%.[^']*' is missing", run.report.error)
    end)

    for _, key in ipairs({ "step", "position", "optimizer_steps" }) do
      it("its " .. key .. " is noticed", function()
        local run = tampered(function(_, metadata) metadata[key] = nil end)
        assert.equal(1, run.status)
        assert.matches("'" .. key .. "' is nil", run.report.error)
        assert.is_true(differs(tampered(function(_, metadata) metadata[key] = "7" end)))
      end)
    end

    it("its seed is noticed", function()
      local run = tampered(function(_, metadata) metadata.seed = nil end)
      assert.equal(1, run.status)
      assert.matches("'seed' is nil", run.report.error)
      local other = tampered(function(_, metadata) metadata.seed = "7" end)
      assert.matches("seed was 7, is 1", other.err)
    end)
  end)
end)
