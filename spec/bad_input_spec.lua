-- What a person may get wrong on the command line: one sentence, the right status, nothing left
-- behind.
local script = require("spec.support.script")

describe("train.lua given", function()
  local directory, data

  setup(function()
    directory = script.directory()
    data = script.write(directory .. "/text.txt", ("the tide is low and the sand wet. "):rep(200))
  end)
  teardown(function() script.remove(directory) end)

  -- name, arguments, status, what the sentence must say
  local cases = {
    { "a data file that does not exist", { "--data", "/no/such/file.txt" }, 1,
      "/no/such/file%.txt" },
    { "a config file that does not exist", { "/no/such/config.lua" }, 1, "/no/such/config%.lua" },
    { "a directory as data", { "--data", "/tmp" }, 1, "/tmp" },
    { "an unknown option (E11)", { "--stepz", "3" }, 2, "%-%-steps" },
    { "an unknown policy (E11)", { "--checkpoint", "segmets:2" }, 2, "segments" },
    { "an unknown key", { "--set", "widht=64" }, 2, "width" },
    { "a number that is none", { "--steps", "many" }, 2, "steps" },
    { "steps that are NaN", { "--steps", "nan" }, 2, "steps" },
    { "negative steps", { "--steps", "-1" }, 2, "steps" },
    { "a chunk of 0", { "--chunk", "0" }, 2, "chunk" },
    { "no threads", { "--threads", "0" }, 2, "threads" },
    { "a budget that is no size", { "--budget", "12 bananas" }, 2, "12 bananas" },
    { "every_n:0", { "--checkpoint", "every_n:0" }, 2, "none" },
    { "every_n:-1", { "--checkpoint", "every_n:-1" }, 2, "every_n:%-1" },
    { "more segments than stages", { "--checkpoint", "segments:99" }, 2, "1%.%.6" },
    { "segments:0", { "--checkpoint", "segments:0" }, 2, "segments:0" },
    { "segments:-1", { "--checkpoint", "segments:-1" }, 2, "segments:%-1" },
    { "segments:2.5", { "--checkpoint", "segments:2.5" }, 2, "segments:2%.5" },
    { "segments:nan", { "--checkpoint", "segments:nan" }, 2, "segments:nan" },
    { "a name that matches no stage", { "--checkpoint", "by_name:blok.1" }, 2, "block%.1" },
    { "a device that is not there", { "--device", "cuda" }, 1, "cuda" },
    { "a misspelt device", { "--device", "cpuu" }, 2, "cpu" },
    { "a width that heads do not divide", { "--set", "width=130" }, 2, "n_head" },
    { "a budget that nothing fits into", { "--budget", "1MiB" }, 3, "budget" },
    { "two configs", { "a.lua", "b.lua" }, 2, "" },
  }

  for _, case in ipairs(cases) do
    local name, arguments, status, says = unpack(case)
    it(string.format("%s says so in one sentence and exits %d", name, status), function()
      local words = { unpack(arguments) }
      if arguments[1] ~= "--data" then
        words[#words + 1], words[#words + 2] = "--data", data
      end
      local run = script.run("examples/train.lua", words, directory)
      assert.equal(status, run.status, run.err)
      -- the line about the device may stand before it
      local sentence = run.err:gsub("^device [^\n]*\n", "")
      assert.matches("^train%.lua: [^\n]+\n$", sentence)
      assert.matches(says, sentence)
      assert.not_matches("traceback", run.err)
      assert.not_matches("%.lua:%d+:", run.err)
      assert.is_nil(io.open(directory .. "/runs"))
    end)
  end

  it("a directory that cannot be made says so and exits 1", function()
    local file = script.write(directory .. "/file", "in the way")
    local run = script.run("examples/train.lua", { "--data", data, "--steps", "1", "--out",
      file .. "/run" }, directory)
    assert.equal(1, run.status)
    local sentence = run.err:gsub("^device [^\n]*\n", "")
    assert.matches("^train%.lua: cannot make the directory '[^\n]*/file[^\n]*\n$", sentence)
  end)

  it("a disk that fills up while it saves says so, exits 1 and leaves no torn state", function()
    local mount = directory .. "/small"
    os.execute("mkdir -p " .. mount)
    if os.execute("mount -t tmpfs -o size=2M none " .. mount .. " 2>/dev/null") ~= 0 then
      pending("a small file system can only be mounted by root")
      return
    end
    local run = script.run("examples/train.lua", { "--data", data, "--steps", "2", "--out",
      mount .. "/run", "--set", "context=32" }, directory)
    local pipe = io.popen("ls -A " .. mount .. "/run")
    local names = pipe:read("*a")
    pipe:close()
    os.execute("umount " .. mount)
    assert.equal(1, run.status)
    assert.matches("No space left on device", run.err)
    assert.not_matches("safetensors", names)
    assert.not_matches("tmp", names)
  end)

  it("a state that was cut off is refused on --resume", function()
    local words = { "--data", data, "--steps", "1", "--out", "cut", "--set", "context=32", "--set",
      "width=32", "--set", "n_layer=2" }
    assert.equal(0, script.run("examples/train.lua", words, directory).status)
    local path = directory .. "/cut/state-00000001.safetensors"
    for _, bytes in ipairs({ 0, 7, 100, 5000 }) do
      os.execute(string.format("truncate -s %d %s", bytes, path))
      words[#words + 1] = "--resume"
      local run = script.run("examples/train.lua", words, directory)
      assert.equal(1, run.status)
      assert.matches("state%-00000001%.safetensors", run.err)
      assert.not_matches("traceback", run.err)
    end
  end)

  it("nothing wrong, works from another directory and through a link", function()
    os.execute(string.format("ln -s '%s/examples/train.lua' '%s/link.lua'", script.root(),
      directory))
    local pipe = io.popen(string.format("cd '%s' && luajit link.lua --data text.txt --dry-run "
      .. "--set context=64 2>/dev/null; echo status $?", directory))
    local out = pipe:read("*a")
    pipe:close()
    assert.matches("status 0", out)
  end)

  it("--help prints options, defaults, examples and exits 0", function()
    local run = script.run("examples/train.lua", { "--help" }, directory)
    assert.equal(0, run.status)
    for _, word in ipairs({ "--checkpoint", "--budget", "segments:K", "Examples",
      "Exit status" }) do
      assert.truthy(run.out:find(word, 1, true), word)
    end
  end)
end)
