-- Other programs: words as they are, the environment, how they end, and that they end with us.
local fail = require("neap.fail")
local process = require("neap.process")
local script = require("spec.support.script")
local trials = require("spec.support.trials")

describe("a process", function()
  local directory, out, err

  setup(function()
    directory = script.directory()
    out, err = directory .. "/out", directory .. "/err"
  end)
  teardown(function() script.remove(directory) end)

  local function run(...)
    local started = process.start({ ... }, out, err)
    while not started:has_ended() do process.sleep(0.005) end
    return started.status, trials.contents(out), trials.contents(err)
  end

  it("gets its words as they are, whatever a shell would make of them", function()
    local status, text = run("/usr/bin/printf", "%s|", "a b", "$HOME", "'\"", "", "*; exit 3")
    assert.same({ 0, "a b|$HOME|'\"||*; exit 3|" }, { status, text })
  end)

  it("has its errors and its output apart, and an empty stdin", function()
    local status, text, complaint = run("/bin/sh", "-c", "cat; echo o; echo e >&2; exit 7")
    assert.same({ 7, "o\n", "e\n" }, { status, text, complaint })
  end)

  it("has our environment", function()
    local _, text = run("/bin/sh", "-c", "printf %s \"$PATH\"")
    assert.equal(os.getenv("PATH"), text)
  end)

  it("that a signal ends says which", function()
    local started = process.start({ "/bin/sleep", "100" }, out, err)
    assert.is_false(started:has_ended())
    started:signal("terminate")
    while not started:has_ended() do process.sleep(0.005) end
    assert.equal(-15, started.status)
    started:signal("kill") -- nothing is left to get it
    assert.is_true(started:has_ended())
  end)

  it("is in a group of its own: the terminal's Ctrl-C is ours to pass on", function()
    local started = process.start({ "/bin/sleep", "100" }, out, err)
    local group = trials.contents("/proc/" .. started.pid .. "/stat"):match("%) %a %d+ (%d+)")
    started:signal("kill")
    assert.equal(started.pid, tonumber(group))
    while not started:has_ended() do process.sleep(0.005) end
  end)

  it("that cannot be started is an error, and leaves nothing running", function()
    for _, case in ipairs({ { "/nowhere/program", out, "No such file" },
      { directory, out, "Permission denied" }, { "/bin/true", "/nowhere/out", "No such file" } }) do
      local ok, message = pcall(process.start, { case[1] }, case[2], err)
      assert.is_false(ok)
      assert.is_true(fail.is(message, "input/output"))
      assert.matches("cannot start '.*" .. case[3], message.message)
    end
  end)

  it("is gone when the one that started it is killed", function()
    script.write(directory .. "/parent.lua", string.format("package.path = %q\n"
      .. "local process = require('neap.process')\n"
      .. "local child = process.start({ '/bin/sleep', '100' }, '/dev/null', '/dev/null')\n"
      .. "print(child.pid)\nio.stdout:flush()\n"
      .. "require('ffi').cdef('int raise(int)')\nrequire('ffi').C.raise(9)", package.path))
    local pipe = io.popen("luajit " .. directory .. "/parent.lua 2>/dev/null")
    local pid = tonumber(pipe:read("*l"))
    pipe:close()
    local gone
    for _ = 1, 400 do
      local state = trials.contents("/proc/" .. pid .. "/stat")
      gone = not state or state:find("%) Z ")
      if gone then break end
      process.sleep(0.01)
    end
    assert.is_truthy(gone)
  end)

  it("is not started from wrong words", function()
    for _, words in ipairs({ 3, {}, { 1 }, { "" }, { "/bin/true", 2 } }) do
      local ok, message = pcall(process.start, words, out, err)
      assert.is_false(ok)
      assert.is_true(fail.is(message, "usage"))
    end
    local _, message = pcall(process.start({ "/bin/true" }, out, err).signal, "kill")
    assert.matches("call it with a colon", tostring(message))
  end)

  it("of another parent or of no number is refused", function()
    local C, ffi = require("neap.ffi").C, require("ffi")
    local ended, status = ffi.new("int[1]"), ffi.new("int[1]")
    for _, pid in ipairs({ 0, -1, 0.5, 0 / 0, 2 ^ 40 }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_process_status(pid, ended, status))
      assert.equal(C.NEAP_ERR_INVALID, C.neap_process_signal(pid, 15))
    end
    assert.equal(C.NEAP_ERR_STATE, C.neap_process_status(1, ended, status))
  end)
end)
