-- The REPL in a real terminal (tmux): typed keys, what stands on the screen. NEAP_LONG=1 only.
local script = require("spec.support.script")
local support = require("spec.support.repl")

local LONG = os.getenv("NEAP_LONG") == "1"

describe("the REPL in a terminal", function()
  local directory, config, socket
  local WAIT_TENTHS = 100

  local function shell(format, ...)
    local pipe = io.popen(string.format(format, ...) .. " 2>&1; echo \"status $?\"")
    local text = pipe:read("*a")
    pipe:close()
    local out, status = text:match("^(.-)\n?status (%d+)\n$")
    return out, tonumber(status)
  end

  local function has_tmux() return select(2, shell("command -v tmux")) == 0 end

  local function tmux(format, ...)
    return shell("tmux -L %s -f /dev/null " .. format, socket, ...)
  end

  -- wrapped lines joined, without the empty ones at its end
  local function screen()
    return ((tmux("capture-pane -p -J -S -500") .. "\n"):gsub(" +\n", "\n"):gsub("\n+$", ""))
  end

  -- keys as tmux names them; text is typed as it is
  local function press(...)
    for _, key in ipairs({ ... }) do tmux("send-keys %s", key) end
  end
  local function enter(text)
    tmux("send-keys -l -- '%s'", (text:gsub("'", "'\\''")))
    press("Enter")
  end

  -- what the screen shows after the last line that holds `after`, once it matches
  local function await(pattern, after)
    local text
    for _ = 1, WAIT_TENTHS do
      text = screen()
      local from = 1
      while after do
        local _, stop = text:find(after, from, true)
        if not stop then break end
        from = stop + 1
      end
      if text:find(pattern, from) then return text:sub(from) end
      os.execute("sleep 0.1")
    end
    error("the screen never showed " .. pattern .. ":\n" .. text, 2)
  end

  local n_started = 0

  -- a server of its own each time: the one before takes a while to end
  local function start(more)
    if n_started > 0 then tmux("kill-server") end
    n_started = n_started + 1
    socket = "neap" .. n_started .. directory:gsub("%W", "")
    tmux("new-session -d -x 110 -y 50 \"cd '%s'; env -u LUA_PATH -u XDG_STATE_HOME HOME='%s' "
      .. "TERM=screen %s luajit '%s/examples/repl.lua' '%s'; echo left with \\$?; sleep 60\"",
      directory, directory, more or "", script.root(), config)
    await("neap>$")
  end

  setup(function()
    directory = script.directory()
    local keys = {}
    for key, value in pairs(support.TINY) do keys[#keys + 1] = key .. " = " .. value end
    config = script.write(directory .. "/tiny.lua", string.format("return { %s, data = %q }",
      table.concat(keys, ", "), support.text(directory)))
  end)
  teardown(function()
    if n_started > 0 then tmux("kill-server") end
    script.remove(directory)
  end)

  local function it_shows(name, fn)
    it(name, function()
      if not LONG then
        pending("NEAP_LONG=1 runs a session in tmux")
      elseif not has_tmux() then
        pending("no tmux here to type into; apt install tmux")
      else
        fn()
      end
    end)
  end

  it_shows("takes a whole session: words, mistakes, Ctrl-C, save, exit", function()
    start()
    enter('load("tiny.lua")')
    await("GPT of %d+ parameters.*predicted peak.*neap>$", "load(")
    press("'sta'", "Tab")
    await("neap> stages$")
    enter("()")
    await("block%.1 +Block +everything.*neap>$", "stages()")
    enter("segments(4)")
    await("segments:4: predicted peak.*cost %+.*neap>$", "segments(4)")
    enter("step(2)")
    await("step 1/50 loss.*step 2/50 loss.*predicted peak ([%d.]+ KiB), measured %1.*neap>$",
      "step(2)")
    enter("frontier()")
    await("█.*KiB +[%d.]+ KiB.*K.*knee.*neap>$", "frontier()")
    enter('whatif("64MiB")')
    await("within 64%.0 MiB.*optimal:67108864: predicted peak.*measured.*neap>$", "whatif(")
    enter('compare("none", "segments:4")')
    await("none +[%d.]+ KiB.*segments:4 +[%d.]+ KiB.*neap>$", "compare(")
    enter('policy("segmnts:4")')
    await("error: unknown policy 'segmnts', did you mean 'segments'.*neap>$", "segmnts:4\")")
    enter("local t = {} ; t.x.y = 1")
    await("error: attempt to index field 'x'.*neap>$", "t.x.y")
    enter("trainer:state_hash()")
    local hash = await('"%x+"\nneap>$', "state_hash()"):match('"(%x+)"')
    enter("step(100000)")
    await("step 5002/50 loss", "step(100000)")
    press("C-c")
    await("stopped by Ctrl%-C in step %d+ of 100000.*neap>$", "step(100000)")
    enter("trainer:state_hash(), trainer.step")
    assert.equal(hash, await('"%x+"%s+2\nneap>$', "trainer.step"):match('"(%x+)"'))
    enter('save("tuned.safetensors")')
    await("saved to 'tuned.safetensors' after step 2.*neap>$", "save(")
    press("C-d")
    await("left with 0")
    assert.equal(2, require("neap.state").peek(directory .. "/tuned.safetensors").step)
    local first = io.open(directory .. "/.neap_history"):read("*l")
    assert.equal('load("tiny.lua")', first)
  end)

  it_shows("edits lines: arrows, history across sessions, Tab lists, several lines", function()
    script.write(directory .. "/.neap_history", "'from before'\n")
    start()
    press("Up", "Enter")
    await('\n"from before"\nneap>$')
    press("'13'", "Left", "'2'", "Home", "'1+'", "End", "'*1'", "Enter")
    await("neap> 1%+123%*1\n124\nneap>$")
    press("'policy(\"seg'", "Tab", "Tab")
    await('segments: +segments:auto\nneap> policy%("segments:$')
    enter('2")')
    await("segments:2: predicted peak.*neap>$", 'policy("segments:2")')
    enter("for i = 1, 2 do")
    await("  %.%.%.$")
    enter("print(\"line\", i) end")
    await("\nline\t?%s*1\nline\t?%s*2\nneap>$")
    enter('"größer"')
    await('\n"größer"\nneap>$')
  end)

  it_shows("cancels the line being typed on Ctrl-C, also one of several", function()
    start()
    press("'error(1)'", "C-c")
    await("error%(1%)^C\nneap>$")
    enter("x = {")
    await("  %.%.%.$")
    press("C-c")
    await("%^C\nneap>$")
    enter("x")
    await("\nnil\nneap>$", "neap> x")
    enter("while true do end")
    os.execute("sleep 0.5")
    press("C-c")
    await("error: stopped by Ctrl%-C\nneap>$")
  end)

  it_shows("gives the terminal back when SIGTERM ends it, and nobody else is ended", function()
    start("sh -c 'echo \\$\\$ >pid; exec \\\"\\$@\\\"' sh")
    press("'half a l'")
    await("neap> half a l$")
    local pid = io.open(directory .. "/pid"):read("*l")
    shell("kill -TERM %s", pid)
    await("left with 143")
    start("sh -c 'echo \\$\\$ >pid; exec \\\"\\$@\\\"' sh")
    pid = io.open(directory .. "/pid"):read("*l")
    shell("kill -INT %s", pid)
    await("neap>\nneap>$")
    enter("7")
    await("\n7\nneap>$")
    tmux("kill-server") -- the terminal is gone: so is the process
    for _ = 1, WAIT_TENTHS do
      if select(2, shell("kill -0 %s", pid)) ~= 0 then return end
      os.execute("sleep 0.1")
    end
    error("it lives on without its terminal")
  end)

  it_shows("says loudly that libedit is missing, and reads on without it", function()
    script.write(directory .. "/no_libedit.lua", "local ffi, load = require('ffi'), "
      .. "require('ffi').load\nffi.load = function(name, ...)\n  if name:find('libedit') then "
      .. "error('no such library') end\n  return load(name, ...)\nend\n")
    start("LUA_INIT=@" .. directory .. "/no_libedit.lua")
    await("no line editing, history and Tab: cannot load libedit.*install the package libedit2")
    enter("1 + 1")
    await("\n2\nneap>$")
    press("C-d")
    await("left with 0")
  end)
end)
