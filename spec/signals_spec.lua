-- Ctrl-C and SIGTERM at any moment: the step is finished, the state saved, the command to go on
-- printed.
local json = require("neap.json")
local script = require("spec.support.script")

local LONG = os.getenv("NEAP_LONG") == "1"

describe("a signal", function()
  local directory, data, straight
  local SETS = "--set n_layer=2 --set n_head=2 --set width=32 --set context=64 --set warmup=0 "
    .. "--set min_lr=1e-3 --set eval_every=0 --set final_eval_batches=0 --set dropout=0.1 --chunk 8"

  -- a run of 60 steps; before: what is put in front of luajit, e.g. "timeout -s INT 0.3"
  local function run(before, out, more)
    local command = string.format("cd %s && %s env -u LUA_PATH luajit %s/examples/train.lua --data "
      .. "%s --threads 1 --json --steps 60 --out %s %s %s 2>%s/err", directory, before,
      script.root(), data, out, SETS, more or "", directory)
    local pipe = io.popen(command .. "; echo \"status $?\"")
    local text = pipe:read("*a")
    pipe:close()
    local err = io.open(directory .. "/err"):read("*a")
    return { status = tonumber(text:match("status (%d+)")), err = err,
      report = json.decode(text:match("^(.-)\n?status")) }
  end

  setup(function()
    directory = script.directory()
    data = script.write(directory .. "/text.txt", ("the moon pulls, the water comes, "):rep(300))
    straight = run("", "straight")
    assert.equal(0, straight.status, straight.err)
  end)
  teardown(function() script.remove(directory) end)

  it("at random moments stops cleanly, and resuming ends with the same bits", function()
    local n, stopped = LONG and 200 or 20, 0
    local state = 12345
    local started = require("neap.ffi").C.neap_now()
    run("", "timing")
    local whole = require("neap.ffi").C.neap_now() - started
    for i = 1, n do
      state = state * 16807 % 2147483647
      local seconds = whole * (0.05 + 0.9 * state / 2147483647)
      local out, signal = "random" .. i, i % 2 == 0 and "INT" or "TERM"
      -- --preserve-status: the run's own exit status
      local first = run(string.format("timeout --preserve-status -s %s %.3f", signal, seconds), out)
      local early = first.status == (signal == "INT" and 130 or 143)
      assert.is_true(early or first.status == 0, first.err)
      local last = first
      if early and first.report and first.report.steps and first.report.steps > 0 then
        stopped = stopped + 1
        assert.matches("go on with: luajit .*train%.lua %-%-resume %-%-out " .. out, first.err)
        last = run("", out, "--resume")
      elseif early then -- before there was anything to save
        script.remove(directory .. "/" .. out)
        last = run("", out)
      end
      assert.equal(0, last.status, last.err)
      assert.equal(straight.report.loss_bits, last.report.loss_bits)
      assert.equal(straight.report.state_hash, last.report.state_hash)
    end
    assert.is_true(stopped >= n / 4, stopped .. " of " .. n .. " were stopped in the middle")
  end)

  -- a shell script of ours: $TRAIN is the command, `await FILE` waits ten seconds at most
  local function shell(text)
    local path = script.write(directory .. "/shell.sh", ([[
cd '%s'
TRAIN="env -u LUA_PATH luajit '%s/examples/train.lua' --data '%s' --threads 1"
await() { n=0; while [ ! -f "$1" ] && [ $n -lt 200 ]; do sleep 0.05; n=$((n + 1)); done; }
]]):format(directory, script.root(), data) .. text)
    local pipe = io.popen("timeout 60 sh " .. path .. " 2>&1")
    local out = pipe:read("*a")
    pipe:close()
    return out
  end

  it("given twice ends the run at once with nothing half-written", function()
    -- a step of this model takes long: the second signal finds the first step running
    local out = shell([[
eval exec "$TRAIN" --steps 5 --out twice --budget 4GiB --checkpoint none --chunk 64 \
  --set width=256 --set n_layer=12 --set context=128 >/dev/null 2>&1 &
await twice/metrics.csv
sleep 0.5; kill -INT $!; sleep 0.2; kill -INT $!
wait $!; echo status $?
ls -A twice
]])
    assert.matches("status 130", out)
    assert.matches("config%.lua", out)
    assert.not_matches("safetensors", out)
    assert.not_matches("tmp", out)
  end)

  it("nobody sent: a directory in use by another process is refused", function()
    local out = shell(([[
eval exec "$TRAIN" --steps 100000 --out busy %s >/dev/null 2>&1 &
await busy/metrics.csv
eval "$TRAIN" --resume --out busy 2>&1 >/dev/null; echo second $?
kill -TERM $!
wait $!; echo first $?
]]):format(SETS))
    assert.matches("run directory 'busy' is in use by another process", out)
    assert.matches("second 1", out)
    assert.matches("first 143", out)
  end)
end)
