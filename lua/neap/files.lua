-- Files and directories. Reading says nil, message where the world is not as hoped; writing raises,
-- so that nobody loses data by not looking.
local argument = require("neap.argument")
local fail = require("neap.fail")
local lfs = require("lfs")
local M = {}

local function library()
  return require("neap.ffi")
end

--- The whole contents of a file or pipe.
---@param path string
---@param most_bytes number|nil  refuse what is longer, without reading all of it
---@return string|nil contents
---@return string|nil message  one sentence that names the path
function M.read(path, most_bytes)
  argument.path(path, "files.read: the path")
  if most_bytes ~= nil then argument.whole(most_bytes, "files.read: most_bytes") end
  local mode = lfs.attributes(path, "mode")
  if mode and mode ~= "file" and mode ~= "named pipe" then
    return nil, string.format("cannot read '%s': it is a %s, expected a file", path, mode)
  end
  local file, message = io.open(path, "rb")
  if not file then
    -- io.open says "path: reason"
    return nil, string.format("cannot read '%s': %s", path, message:sub(#path + 3))
  end
  local contents, reason = file:read(most_bytes and most_bytes + 1 or "*a")
  file:close()
  if reason then return nil, string.format("cannot read '%s': %s", path, reason) end
  contents = contents or ""
  if most_bytes and #contents > most_bytes then
    return nil, string.format("'%s' is longer than %d bytes", path, most_bytes)
  end
  return contents
end

--- Makes the file hold exactly this text, whole or not at all. Raises "input/output".
---@param path string
---@param text string
function M.write(path, text)
  local neap = library()
  argument.path(path, "files.write: the path")
  argument.string(text, "files.write: the contents")
  neap.check(neap.C.neap_file_write(path, text, #text))
end

--- Appends whole lines (the text ends in a newline) by one write. Raises "input/output".
---@param path string
---@param lines string
function M.append(path, lines)
  local neap = library()
  argument.path(path, "files.append: the path")
  argument.string(lines, "files.append: the lines")
  neap.check(neap.C.neap_file_append(path, lines, #lines))
end

---@param path string
---@return boolean
function M.is_directory(path)
  return lfs.attributes(argument.path(path, "files.is_directory: the path"), "mode") == "directory"
end

--- Makes a directory and those above it. Raises "input/output".
---@param path string
function M.make_directory(path)
  argument.path(path, "files.make_directory: the path")
  local made = path:sub(1, 1) == "/" and "/" or ""
  for part in path:gmatch("[^/]+") do
    made = made .. part
    local ok, reason = lfs.mkdir(made)
    -- another process may have made it meanwhile
    if not ok and not M.is_directory(made) then
      fail.raise("input/output", string.format("cannot make the directory '%s': %s", made, reason))
    end
    made = made .. "/"
  end
end

--- The least n >= 1 for which parent/name-n does not exist.
---@param parent string
---@param name string
---@return integer
function M.least_free_number(parent, name)
  argument.path(parent, "files.least_free_number: the parent")
  argument.text(name, "files.least_free_number: the name")
  local n = 1
  while lfs.symlinkattributes(string.format("%s/%s-%d", parent, name, n), "mode") do n = n + 1 end
  return n
end

--- Makes parent/name-n with the least free n, ours alone even when several processes ask at once.
---@param parent string
---@param name string
---@return string path
function M.make_numbered_directory(parent, name)
  argument.path(parent, "files.make_numbered_directory: the parent")
  argument.text(name, "files.make_numbered_directory: the name")
  M.make_directory(parent)
  while true do
    local path = string.format("%s/%s-%d", parent, name, M.least_free_number(parent, name))
    local ok, reason = lfs.mkdir(path)
    if ok then return path end
    if not lfs.symlinkattributes(path, "mode") then
      fail.raise("input/output", string.format("cannot make the directory '%s': %s", path, reason))
    end
  end
end

--- The absolute path without links, "." and ".."; parts that do not exist are kept as they are.
---@param path string
---@return string|nil
---@return string|nil message
function M.realpath(path)
  argument.path(path, "files.realpath: the path")
  if path:sub(1, 1) ~= "/" then path = lfs.currentdir() .. "/" .. path end
  local done, rest, n_links = {}, {}, 0
  local function push(text)
    local parts = {}
    for part in text:gmatch("[^/]+") do parts[#parts + 1] = part end
    for i = #parts, 1, -1 do rest[#rest + 1] = parts[i] end
  end
  push(path)
  while #rest > 0 do
    local part = table.remove(rest)
    if part == ".." then
      table.remove(done)
    elseif part ~= "." then
      local here = "/" .. table.concat(done, "/") .. (#done > 0 and "/" or "") .. part
      local target = lfs.symlinkattributes(here, "target")
      if target then
        n_links = n_links + 1
        if n_links > 40 then
          return nil, string.format("'%s' leads through more than 40 links", path)
        end
        if target:sub(1, 1) == "/" then done = {} end
        push(target)
      else
        done[#done + 1] = part
      end
    end
  end
  return "/" .. table.concat(done, "/")
end

--- The last part of a path, without the extension when asked.
---@param path string
---@param extension string|nil  e.g. ".lua"
---@return string
function M.basename(path, extension)
  argument.string(path, "files.basename: the path")
  if extension ~= nil then argument.string(extension, "files.basename: the extension") end
  local name = path:match("([^/]+)/*$") or path
  if extension and #name > #extension and name:sub(-#extension) == extension then
    name = name:sub(1, -#extension - 1)
  end
  return name
end

return M
