-- Long runs: nothing grows. Deep chains: nothing recurses.
local C = require("neap.ffi").C
local models = require("spec.support.models")
local neap = require("neap")
local script = require("spec.support.script")

local LONG = os.getenv("NEAP_LONG") == "1"
local op = neap.op

describe("a long run", function()
  local device, chain, batch, plan, optimizer, executor

  setup(function()
    device = neap.device("cpu", { budget = "1GiB" })
    chain, batch = models.chain(3, 8, 0.1), models.batch(4, 8)
    plan = neap.plan("segments:2", neap.profile(chain, batch, { cost = "flops" }))
    optimizer = neap.optim.AdamW(chain:parameters())
    executor = neap.executor(chain)
  end)

  local function step()
    chain:zero_grad()
    executor:run(batch, plan)
    optimizer:step(1e-4)
  end

  it("holds as many device bytes after 1,000 steps as after 2", function()
    for _ = 1, 2 do step() end
    local live, reserved = device:memory().live_bytes, device:memory().reserved_bytes
    for _ = 1, 998 do step() end
    assert.equal(live, device:memory().live_bytes)
    assert.equal(reserved, device:memory().reserved_bytes)
  end)

  it("of forwards without backward holds constant bytes, without waiting for the collector",
    function()
      local x = neap.full({ 4, 8 }, 0.5)
      local layer = chain.stages[1].module
      neap.scope(function() layer(x) end)
      local live = device:memory().live_bytes
      collectgarbage("stop")
      for _ = 1, 1000 do
        neap.scope(function() op.mean(layer(layer(x))) end)
        assert.equal(live, device:memory().live_bytes)
      end
      collectgarbage("restart")
      assert.equal(0, C.neap_tape_n_nodes(C.neap_tape_selected()))
    end)

  it("of 100,000 steps leaves the process no larger", function()
    local place = script.directory()
    local run = script.run("spec/support/soak_steps.lua", { LONG and 1000000 or 100000 }, place)
    script.remove(place)
    assert.equal(0, run.status, run.err)
    -- 4 KiB pages; the Lua heap's own breathing is a few of them
    local pages = tonumber(run.out)
    assert.is_true(pages <= 64, tostring(pages) .. " pages more")
  end)
end)

describe("a chain of 10,000 stages", function()
  it("builds, trains and recomputes, with the same bits", function()
    local device = neap.device("cpu", { budget = "1GiB" })
    local n = 10000
    local Add = neap.nn.class("Add")
    function Add:init() self.bias = neap.nn.parameter({ 4 }, { normal = 0.01 }) end
    function Add:forward(x) return op.gelu(x + self.bias) end
    local list = {}
    for i = 1, n - 1 do list[i] = { "add." .. i, Add() } end
    list[n] = { "loss", models.Loss() }
    local chain, batch = neap.nn.Sequential(list), models.batch(2, 4)
    local profile = neap.profile(chain, batch, { cost = "flops" })
    local kept
    for _, policy in ipairs({ "none", "all", "segments:100" }) do
      local plan = neap.plan(policy, profile)
      local live = device:memory().live_bytes
      device:restart_peak("action")
      local run = models.run(chain, batch, plan)
      assert.equal(neap.simulate(plan, profile).peak_bytes, device:memory().peak.action - live)
      assert.equal(live, device:memory().live_bytes)
      kept = kept or run
      assert.equal(kept.loss, run.loss)
      assert.same(kept.gradients, run.gradients)
    end
    chain:free()
  end)
end)

describe("fresh processes", function()
  for _, threads in ipairs({ 1, 2 }) do
    it(string.format("give 20 equal results with %d thread%s", threads, threads == 1 and "" or "s"),
      function()
        local directory = script.directory()
        local data = script.write(directory .. "/text.txt", ("low water, high water. "):rep(300))
        local first
        for _ = 1, 20 do
          local run = script.train({ "--data", data, "--steps", "3", "--threads", tostring(threads),
            "--set", "n_layer=2", "--set", "width=64", "--set", "final_eval_batches=1", "--set",
            "dropout=0.1" }, directory)
          assert.equal(0, run.status, run.err)
          assert.equal(threads, run.report.threads)
          first = first or run.report
          assert.equal(first.loss_bits, run.report.loss_bits)
          assert.equal(first.state_hash, run.report.state_hash)
          assert.equal(first.val_loss, run.report.val_loss)
        end
        script.remove(directory)
      end)
  end
end)
