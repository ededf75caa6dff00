-- Runs the project's scripts as a person does, in a process of their own.
local json = require("neap.json")

local M = {}

local function quote(word) return "'" .. tostring(word):gsub("'", "'\\''") .. "'" end

local function contents(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

--- A new empty directory; the caller removes it with M.remove.
function M.directory()
  local pipe = io.popen("mktemp -d")
  local path = pipe:read("*l")
  pipe:close()
  return path
end

function M.remove(path) os.execute("rm -rf " .. quote(path)) end

function M.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

--- The checkout's root, absolute.
function M.root()
  local pipe = io.popen("pwd")
  local path = pipe:read("*l")
  pipe:close()
  return path
end

-- what sanitizers map beside the process would count too
local function limit(most_kib)
  if not most_kib or (os.getenv("LD_PRELOAD") or ""):find("asan", 1, true) then return "" end
  return "ulimit -d " .. most_kib .. " &&"
end

---@param script string  below the root, e.g. "examples/train.lua"
---@param arguments string[]
---@param directory string  where it runs
---@param most_kib integer|nil  of its own memory, as the system counts (ulimit -d)
---@param fed { input: string, set: string|nil }|nil  what stdin holds; "NAME=value", set beside
---@return { status: integer, out: string, err: string }
function M.run(script, arguments, directory, most_kib, fed)
  local words, input = {}, directory .. "/.in"
  if fed then M.write(input, fed.input) end
  for i, word in ipairs(arguments) do words[i] = quote(word) end
  local out, err = directory .. "/.out", directory .. "/.err"
  -- no LUA_PATH: a script finds its modules by itself
  local status = os.execute(string.format("cd %s && %s env -u LUA_PATH %s timeout 300 "
    .. "luajit %s %s >%s 2>%s %s", quote(directory), limit(most_kib), fed and fed.set or "",
    quote(M.root() .. "/" .. script), table.concat(words, " "), out, err,
    fed and "<" .. input or ""))
  local result = { status = status > 255 and math.floor(status / 256) or status,
    out = contents(out), err = contents(err) }
  os.remove(out)
  os.remove(err)
  os.remove(input)
  return result
end

--- train.lua with --json: the object beside status and stderr.
function M.train(arguments, directory)
  local words = { "--json", unpack(arguments) }
  local result = M.run("examples/train.lua", words, directory)
  result.report = json.decode(result.out)
  return result
end

return M
