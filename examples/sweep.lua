-- Memory against time: trains a config with every combination of some values and tabulates them.
-- luajit examples/sweep.lua --help
local here = arg[0]:match("^(.*)/[^/]*$") or "."
local link = io.popen("readlink -f '" .. arg[0]:gsub("'", "'\\''") .. "' 2>/dev/null")
if link then
  here = (link:read("*l") or arg[0]):match("^(.*)/[^/]*$") or here
  link:close()
end
local root = here .. "/.."
-- a checkout, or an installed tree: share/neap/examples beside share/lua/5.1
package.path = table.concat({ root .. "/lua/?.lua", root .. "/lua/?/init.lua",
  root .. "/build/?.lua", root .. "/../lua/5.1/?.lua", root .. "/../lua/5.1/?/init.lua",
  package.path }, ";")

local cli = require("neap.cli")

local function tell(line) io.stderr:write(line, "\n") end

-- the command line that was given, to go on with
local function resume_command(sweep)
  local words, resumes = { "luajit", arg[0] }, false
  for _, word in ipairs(arg) do
    words[#words + 1] = word
    resumes = resumes or word == "--resume" or word == "--retry"
  end
  if not resumes then words[#words + 1] = "--resume" end
  return sweep.command(words)
end

local function main()
  local options = require("neap.sweep.options").read(arg)
  require("neap.run").watch_signals()
  local sweep, files = require("neap.sweep"), require("neap.files")
  return sweep.run(options, {
    config_path = options.config or here .. "/configs/small.lua",
    sweep_script = files.realpath(arg[0]), train_script = here .. "/train.lua",
    interpreter = files.realpath("/proc/self/exe"), resume_command = resume_command(sweep),
    say = print, tell = tell,
  })
end

cli.run("sweep.lua", arg, main)
