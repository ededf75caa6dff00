-- examples/repl.lua behind a pipe: answers, errors, exit statuses; and train.lua -i.
local json = require("neap.json")
local script = require("spec.support.script")
local support = require("spec.support.repl")

describe("examples/repl.lua", function()
  local directory, config
  setup(function()
    directory = script.directory()
    local keys = {}
    for key, value in pairs(support.TINY) do keys[#keys + 1] = key .. " = " .. value end
    config = script.write(directory .. "/tiny.lua", string.format("return { %s, data = %q }",
      table.concat(keys, ", "), support.text(directory)))
  end)
  teardown(function() script.remove(directory) end)

  local function run(input, arguments, o)
    o = o or {}
    return script.run(o.script or "examples/repl.lua", arguments or { config }, directory, nil,
      { input = input, set = o.set })
  end

  it("answers a pipe without prompts, and leaves with 0 at its end", function()
    local result = run("stages()\n1 + 1\n")
    assert.equal(0, result.status, result.err)
    assert.matches("block%.1 +Block", result.out)
    assert.matches("\n2\n$", result.out)
    assert.not_matches("neap>", result.out)
    assert.matches("^device cpu %(auto: ", result.err)
  end)

  it("goes on after errors, one sentence each on stderr, without --batch", function()
    local result = run("stagse()\npolicy('segmnts:2')\nerror('mine')\n'still here'\nx = {")
    assert.equal(0, result.status)
    assert.equal('"still here"\n', result.out)
    local lines = {}
    for line in result.err:gmatch("(error: [^\n]*)\n") do lines[#lines + 1] = line end
    assert.equal(4, #lines)
    assert.matches("did you mean 'stages'", lines[1])
    assert.matches("did you mean 'segments'", lines[2])
    assert.matches("not whole", lines[4])
  end)

  it("stops at the first error with 1 under --batch", function()
    local result = run("'before'\nwhatif(1)\n'after'\n", { config, "--batch" })
    assert.equal(1, result.status)
    assert.equal('"before"\n', result.out)
    assert.matches("least feasible peak", result.err)
    assert.equal(1, run("f(", { config, "--batch" }).status)
    assert.equal(0, run("'fine'", { config, "--batch" }).status)
    assert.equal(0, run("quit()\nerror('never')", { config, "--batch" }).status)
  end)

  it("takes lines that only together are whole", function()
    assert.equal("3\n", run("for i = 1, 2 do\n  n = (n or 1) + 1\nend\nn\n").out)
  end)

  it("draws plain ASCII with --ascii, as wide as COLUMNS says", function()
    local result = run("timeline()\nfrontier()\n", { config, "--ascii", "--device", "null" },
      { set = "COLUMNS=60" })
    assert.is_nil(result.out:find("[\128-\255]"))
    local drawn = 0
    for line in result.out:gmatch("[^\n]*|[^\n]*") do
      assert.is_true(#line <= 60)
      drawn = drawn + 1
    end
    assert.equal(18, drawn)
    local dumb = run("timeline()\n", { config, "--device", "null" }, { set = "TERM=dumb" })
    assert.matches("#", dumb.out)
    assert.is_nil(dumb.out:find("[\128-\255]"))
  end)

  it("counts the same bytes on null as on the cpu", function()
    local lines = "a = step(1)\na.measured_peak_bytes\nwhatif('1MiB').measured_peak_bytes\n"
    local cpu, null = run(lines), run(lines, { config, "--device", "null" })
    assert.equal(0, null.status, null.err)
    assert.equal(cpu.out:match("\n(%d+\n%d+)\n$"), null.out:match("\n(%d+\n%d+)\n$"))
  end)

  for _, case in ipairs({
    { { "--stpes", "3" }, 2, "unknown option '%-%-stpes'" },
    { { "nowhere.lua" }, 1, "cannot read 'nowhere.lua'" },
    { { "--set", "widht=3" }, 2, "did you mean 'width'" },
    { { "--device", "gpu" }, 2, "device" },
    { { "--data", "nowhere.txt" }, 1, "nowhere.txt" },
  }) do
    it(string.format("leaves with %d for %s", case[2], table.concat(case[1], " ")), function()
      local result = run("", case[1])
      assert.equal(case[2], result.status)
      assert.matches("^[^\n]*" .. case[3], result.err:match("repl%.lua: [^\n]*"))
    end)
  end

  it("explains itself with --help", function()
    local result = run("", { "--help" })
    assert.equal(0, result.status)
    for _, word in ipairs({ "--set", "--data", "--device", "--threads", "--batch", "--ascii",
      "Examples:", "Exit status: 0" }) do
      assert.is_truthy(result.out:find(word, 1, true), word)
    end
  end)

  it("saves what train.lua's model can go on from, and ends by SIGTERM with 143", function()
    local path = directory .. "/sh.sh"
    script.write(path, string.format("(printf 'step(1)\\nsave(\"mine.safetensors\")\\n'; n=0; "
      .. "while [ ! -f mine.safetensors ] && [ $n -lt 100 ]; do sleep 0.05; n=$((n + 1)); done; "
      .. "printf 'while true do end\\n'; sleep 2) | env -u LUA_PATH luajit '%s/examples/repl.lua' "
      .. "'%s' >/dev/null 2>&1 & n=0; while [ ! -f mine.safetensors ] && [ $n -lt 100 ]; do sleep "
      .. "0.05; n=$((n + 1)); done; sleep 0.3; kill -TERM $!; wait $!; echo status $?",
      script.root(), config))
    local pipe = io.popen(string.format("cd '%s' && timeout 20 sh sh.sh", directory))
    assert.matches("status 143", pipe:read("*a"))
    pipe:close()
    assert.equal(1, require("neap.state").peek(directory .. "/mine.safetensors").step)
  end)

  it("is where train.lua -i goes on with the trained model", function()
    local result = run("trainer.step\nstep(1)\ntrainer.step\nquit()\n", { config, "--steps", "2",
      "--set", "final_eval_batches=0", "-i" }, { script = "examples/train.lua" })
    assert.equal(0, result.status, result.err)
    assert.matches("\n2\nstep 3/2 loss.*\n3\n$", result.out)
    local both = run("", { config, "-i", "--json" },
      { script = "examples/train.lua" })
    assert.equal(2, both.status)
    assert.matches("do not go together", json.decode(both.out).error)
  end)
end)
