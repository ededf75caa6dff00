-- A small tree of its own with the project's Makefile and set-up, to try them on.
local lfs = require("lfs")

local M = {}
local root = lfs.currentdir()

function M.read(path)
  local file = assert(io.open(path, "rb"))
  local contents = file:read("*a")
  file:close()
  return contents
end

function M.write(path, contents)
  local file = assert(io.open(path, "wb"))
  file:write(contents)
  file:close()
end

--- Makes the tree; M.path is where.
function M.make()
  local tree = os.tmpname()
  M.path = tree
  os.remove(tree)
  for _, part in ipairs({ "", "/src", "/src/core", "/lua", "/lua/neap", "/examples", "/.ci" }) do
    lfs.mkdir(tree .. part)
  end
  M.write(tree .. "/Makefile", M.read(root .. "/Makefile"))
  M.write(tree .. "/.ci/setup", M.read(root .. "/.ci/setup"))
  M.write(tree .. "/src/neap.h", M.read(root .. "/src/neap.h"))
  M.write(tree .. "/src/core/one.c",
    '#include "neap.h"\nint neap_abi(void) { return NEAP_ABI; }\n')
  M.write(tree .. "/src/core/two.c",
    '#include "neap.h"\nint neap_version(void) { return 1; }\n')
  M.write(tree .. "/lua/neap/x.lua", "return 1\n")
  M.write(tree .. "/examples/train.lua", "return 1\n")
  return tree
end

function M.remove() os.execute("rm -rf '" .. M.path .. "'") end

--- What a command in the tree prints, and its status. What an outer make or a sanitizer set for the
--- specs is not meant for the inner one.
---@return string output
---@return integer status
function M.run(command)
  local pipe = io.popen(string.format("cd '%s' && unset MAKEFLAGS MFLAGS MAKELEVEL LD_PRELOAD "
    .. "NEAP_LIBRARY CFLAGS LDFLAGS CPPFLAGS; { %s; } 2>&1; echo \"status $?\"", M.path, command))
  local output = pipe:read("*a")
  pipe:close()
  local text, status = output:match("^(.*)status (%d+)\n$")
  return text, tonumber(status)
end

return M
