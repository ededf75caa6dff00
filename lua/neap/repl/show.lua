-- Values as the prompt prints them: text quoted, tables with their fields, long ones cut.
local inspect = require("inspect")
local M = {}

local MOST_ITEMS, MOST_DEPTH, MOST_TEXT = 40, 3, 2000

local function quoted(text)
  if #text > MOST_TEXT then
    return M.value(text:sub(1, MOST_TEXT)) .. string.format(" ... (%d bytes)", #text)
  end
  return '"' .. text:gsub('[%c"\\]', function(c)
    local known = ({ ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r", ['"'] = '\\"',
      ["\\"] = "\\\\" })[c]
    return known or string.format("\\%03d", c:byte())
  end) .. '"'
end

local function number(x)
  local short = string.format("%.14g", x)
  return tonumber(short) == x and short or string.format("%.17g", x)
end

-- names first, then list items; what is past the limit becomes one line
local function trimmed(list)
  local copy, n = {}, 0
  for key, value in pairs(list) do
    n = n + 1
    if n <= MOST_ITEMS then copy[key] = value end
  end
  if n > MOST_ITEMS then copy["..."] = string.format("%d more", n - MOST_ITEMS) end
  return copy
end

local function has_tostring(value)
  local meta = debug.getmetatable(value)
  return type(meta) == "table" and rawget(meta, "__tostring") ~= nil
end

-- inspect would list methods and metatables: a table with a text of its own shows that
local function process(item, path)
  local at = path[#path]
  if at == inspect.METATABLE then return nil end
  local is_key = at == inspect.KEY
  if is_key and type(item) == "table" then return tostring(item) end
  if type(item) == "table" and #path > 0 and has_tostring(item) then
    return (M.value(item):match("^[^\n]*"))
  end
  if type(item) == "table" then return trimmed(item) end
  if type(item) == "cdata" or type(item) == "function" or type(item) == "userdata"
    or type(item) == "thread" then
    local ok, text = pcall(tostring, item)
    return "<" .. (ok and type(item) == "cdata" and text or type(item)) .. ">"
  end
  return item
end

--- One value.
---@return string
function M.value(value)
  local kind = type(value)
  if kind == "string" then return quoted(value) end
  if kind == "number" then return number(value) end
  if kind == "nil" or kind == "boolean" then return tostring(value) end
  if kind == "table" and not has_tostring(value) then
    return inspect(value, { depth = MOST_DEPTH, process = process })
  end
  local ok, text = pcall(tostring, value)
  return ok and text or string.format("<%s whose __tostring fails>", kind)
end

--- All values of an expression, n of them.
---@param values table
---@param n integer
---@return string
function M.values(values, n)
  local parts, is_long = {}, false
  for i = 1, n do
    parts[i] = M.value(values[i])
    is_long = is_long or parts[i]:find("\n", 1, true) ~= nil
  end
  return table.concat(parts, is_long and "\n" or "\t")
end

return M
