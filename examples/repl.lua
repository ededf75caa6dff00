-- Tuning segments live: loads a config's model and takes lines of Lua and words that choose, look
-- and measure. luajit examples/repl.lua --help
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

local function main()
  local options = cli.repl(arg)
  local repl = require("neap.repl").new({ say = print, tell = tell, complain = tell,
    plain = options.ascii, options = options.options, sets = options.sets })
  repl.session:load(options.config or here .. "/configs/small.lua")
  local status = repl:interact({ batch = options.batch })
  repl.session:close()
  return status
end

cli.run("repl.lua", arg, main)
