-- Command lines: what is read, one-sentence errors, exit statuses, the JSON object.
local cli = require("neap.cli")
local fail = require("neap.fail")
local json = require("neap.json")

local function usage_of(...)
  local ok, err = pcall(cli.train, { ... })
  assert.is_false(ok)
  assert.is_true(fail.is(err, "usage"), tostring(err))
  assert.is_nil(err.message:find("\n"))
  return err.message
end

describe("cli.train", function()
  it("without arguments leaves all to the config", function()
    assert.same({ sets = {}, options = {}, dry_run = false, json = false,
      resume = false }, cli.train({}))
  end)

  it("reads every option, before and after the config", function()
    assert.same({
      config = "x.lua",
      sets = { "width=64", "betas=0.9,0.95" },
      options = {
        data = "a b.txt", device = "cpu", threads = "2", checkpoint = "segments:2",
        budget = "64MiB", chunk = "4", global_batch = "8", steps = "10", seed = "3", out = "runs/x",
      },
      dry_run = true, json = true, resume = false,
    }, cli.train({
      "--set", "width=64", "--data", "a b.txt", "--device=cpu", "--threads", "2", "--checkpoint",
      "segments:2", "x.lua", "--budget", "64MiB", "--chunk", "4", "--global-batch=8", "--steps",
      "10", "--seed", "3", "--out", "runs/x", "--set=betas=0.9,0.95", "--dry-run", "--json",
    }))
  end)

  it("lets the last of two equal options win", function()
    assert.equal("2", cli.train({ "--steps", "1", "--steps", "2" }).options.steps)
  end)

  it("passes negative numbers on, for the config to judge", function()
    assert.equal("-1", cli.train({ "--steps", "-1" }).options.steps)
    assert.same({ "-x" }, cli.train({ "--set", "-x" }).sets)
  end)

  it("takes what follows -- as the config", function()
    assert.equal("--odd.lua", cli.train({ "--", "--odd.lua" }).config)
  end)

  it("names the nearest of an unknown option", function()
    assert.equal("unknown option '--stpes', did you mean '--steps'?; --help lists the options",
      usage_of("--stpes", "3"))
    assert.matches("did you mean '%-%-checkpoint'", usage_of("--checkpont=none"))
    assert.equal("unknown option '--nonsense'; --help lists the options", usage_of("--nonsense"))
  end)

  it("refuses options without their value", function()
    assert.matches("option '%-%-steps' requires an argument", usage_of("--steps"))
    assert.matches("option '%-%-steps' requires an argument", usage_of("--steps", "--json"))
  end)

  it("refuses flags with a value and a second config", function()
    assert.matches("'%-%-json' does not take arguments", usage_of("--json=3"))
    assert.matches("too many arguments", usage_of("a.lua", "b.lua"))
    assert.matches("unknown option '%-x'", usage_of("-x"))
  end)
end)

describe("cli.status", function()
  for kind, status in pairs({
    usage = 2, ["out of memory"] = 3, ["does not fit"] = 3, diverged = 4, failure = 1,
    ["input/output"] = 1, environment = 1, ["anything else"] = 1,
  }) do
    it("of '" .. kind .. "' is " .. status, function()
      local _, err = pcall(fail.raise, kind, "x")
      assert.equal(status, cli.status(err))
    end)
  end

  it("of errors without a kind is 1", function()
    assert.equal(1, cli.status("x"))
    assert.equal(1, cli.status({}))
    assert.equal(1, cli.status(nil))
  end)

  it("of what LuaJIT itself raises for memory and Ctrl-C is 3 and 130", function()
    assert.equal(3, cli.status("not enough memory"))
    assert.equal(130, cli.status("x.lua:3: interrupted!"))
  end)
end)

describe("cli.run", function()
  local luajit = arg[-1] or "luajit"

  -- runs main in a process of its own; gives stdout, stderr, status
  local function run(main, arguments, environment)
    local script, errors = os.tmpname(), os.tmpname()
    local file = io.open(script, "w")
    file:write(string.format("package.path = %q\nlocal cli, fail = require('neap.cli'), "
      .. "require('neap.fail')\ncli.run('x.lua', arg, function(report)\n%s\nend)\n",
      package.path, main))
    file:close()
    local pipe = io.popen(string.format("%s LUA_PATH= '%s' %s %s 2>%s; echo \"status $?\"",
      environment or "", luajit:find("luajit") and luajit or "luajit", script, arguments or "",
      errors))
    local output = pipe:read("*a")
    pipe:close()
    local stream = io.open(errors)
    local complaint = stream:read("*a")
    stream:close()
    os.remove(script)
    os.remove(errors)
    local out, status = output:match("^(.*)status (%d+)\n$")
    return out, complaint, tonumber(status)
  end

  it("ends with 0 and prints what main prints", function()
    local out, complaint, status = run("io.write('done\\n')")
    assert.same({ "done\n", "", 0 }, { out, complaint, status })
  end)

  it("ends with the status that main returns", function()
    local _, _, status = run("return 130")
    assert.equal(130, status)
  end)

  it("makes one sentence on stderr of a failure", function()
    local out, complaint, status = run("fail.raise('does not fit', 'plan: 3 MiB do not fit')")
    assert.same({ "", "x.lua: plan: 3 MiB do not fit\n", 3 }, { out, complaint, status })
  end)

  it("never shows a traceback unasked, and says how to ask", function()
    local _, complaint, status = run("local x = nil; return x.y")
    assert.equal("x.lua: /", complaint:sub(1, 8))
    assert.matches("attempt to index.*%(NEAP_TRACEBACK=1 shows where%)\n$", complaint)
    assert.is_nil(complaint:find("stack traceback"))
    assert.equal(1, status)
  end)

  it("shows a traceback when asked", function()
    local _, complaint = run("local x = nil; return x.y", "", "NEAP_TRACEBACK=1")
    assert.matches("stack traceback", complaint)
  end)

  it("prints one JSON object and everything else on stderr with --json", function()
    local out, complaint, status = run("report.steps = 3; report.train_loss = 0/0; "
      .. "report.zebra = 1; print('p', 1); io.write('w\\n')", "--json")
    assert.equal('{"steps":3,"train_loss":null,"exit":0,"error":null,"zebra":1}\n', out)
    assert.equal("p\t1\nw\n", complaint)
    assert.equal(0, status)
  end)

  it("prints the JSON object on a failure too, with what is known so far", function()
    local out, complaint, status = run("report.steps = 3; fail.raise('diverged', 'loss is nan')",
      "--json")
    assert.same({ steps = 3, exit = 4, error = "loss is nan", error_kind = "diverged" },
      (json.decode(out)))
    assert.equal("x.lua: loss is nan\n", complaint)
    assert.equal(4, status)
  end)

  it("prints the JSON object where the command line itself is wrong", function()
    local out, _, status = run("cli.train(arg)", "--json --stpes 3")
    assert.equal(2, json.decode(out).exit)
    assert.matches("did you mean '%-%-steps'", json.decode(out).error)
    assert.equal(2, status)
  end)

  it("writes the error on one line, whatever it holds", function()
    local _, complaint = run("fail.raise('failure', 'one\\n  two')")
    assert.equal("x.lua: one two\n", complaint)
  end)

  it("prints lines as they come, also into a pipe", function()
    local out = run("io.write('first\\n'); require('ffi').cdef('void _exit(int)'); "
      .. "require('ffi').C._exit(0)")
    assert.equal("first\n", out)
  end)

  it("runs finalizers at the end", function()
    local out = run("local p = newproxy(true); getmetatable(p).__gc = function() "
      .. "io.write('closed\\n') end; keep = p")
    assert.equal("closed\n", out)
  end)

  describe("--help", function()
    local out, _, status = run("cli.train(arg)", "--help")

    it("ends with 0", function() assert.equal(0, status) end)

    it("shows every option", function()
      for _, option in ipairs(cli.TRAIN_OPTIONS) do
        assert.is_truthy(out:find(option.name, 1, true), option.name)
      end
    end)

    it("shows examples, defaults, units and exit statuses", function()
      for _, text in ipairs({ "Examples:", "Default: 2000", "512MiB", "Exit status: 0 done" }) do
        assert.is_truthy(out:find(text, 1, true), text)
      end
    end)

    it("fits into 100 columns", function()
      for line in out:gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
    end)
  end)
end)
