-- Checks of what scripts pass: each gives the value back, or raises a usage error of one sentence
-- that says who wanted what and what was found. who: "Linear: the width".
local fail = require("neap.fail")

local M = {}

local LARGEST = 2 ^ 53

--- A value as an error shows it: short, on one line, without addresses.
---@return string
function M.shown(value)
  local kind = type(value)
  if kind == "string" then
    local text = #value > 40 and value:sub(1, 40) .. "..." or value
    return "'" .. text:gsub("%c", "?") .. "'"
  end
  if kind == "nil" or kind == "boolean" then return tostring(value) end
  if kind == "number" then
    local short = string.format("%.15g", value)
    return tonumber(short) == value and short or string.format("%.17g", value)
  end
  local text = kind == "cdata" and tostring(value) or ""
  if text:find("^tensor ") then return "a tensor" end
  return text:match("^%-?%d+U?LL$") or "a " .. kind
end

--- The same without quotes, for a word that is none of those allowed.
---@return string
function M.word(value)
  return type(value) == "string" and M.shown(value):sub(2, -2) or M.shown(value)
end

local function refuse(who, expected, value)
  fail.usage("%s must be %s, found %s", who, expected, M.shown(value))
end

--- A number, not NaN, not infinite; from low on when given.
---@param low number|nil
---@return number
function M.number(value, who, low)
  local is_finite = type(value) == "number" and value > -math.huge and value < math.huge
  if not is_finite or (low and value < low) then
    refuse(who, "a finite number" .. (low and " of at least " .. low or ""), value)
  end
  return value
end

--- A finite number above 0.
---@return number
function M.positive(value, who)
  local is_positive = type(value) == "number" and value > 0 and value < math.huge
  if not is_positive then
    refuse(who, "a finite number above 0", value)
  end
  return value
end

--- A whole number from low (0) to high (2^53).
---@param low number|nil
---@param high number|nil
---@return integer
function M.whole(value, who, low, high)
  low = low or 0
  if type(value) ~= "number" or not (value >= low and value <= (high or LARGEST))
    or value % 1 ~= 0 then
    refuse(who, string.format("a whole number, %.0f to %s", low,
      high and string.format("%.0f", high) or "2^53"), value)
  end
  return value
end

--- true, false, or nil for what stands when nothing is said.
---@param default boolean
---@return boolean
function M.flag(value, who, default)
  if value == nil then return default end
  if type(value) ~= "boolean" then refuse(who, "true or false", value) end
  return value
end

--- A function, or what can be called like one (a layer).
---@return function
function M.fn(value, who)
  local meta = type(value) == "table" and getmetatable(value)
  local is_callable = type(value) == "function" or (type(meta) == "table" and meta.__call)
  if not is_callable then refuse(who, "a function", value) end
  return value
end

--- Text that is not empty and holds no zero byte (where C would end it).
---@return string
function M.text(value, who)
  if type(value) ~= "string" or value == "" or value:find("%z") then
    refuse(who, "text without zero bytes", value)
  end
  return value
end

--- Text without zero bytes that may be empty: a path, the contents of one.
---@return string
function M.path(value, who)
  if type(value) ~= "string" or value:find("%z") then
    refuse(who, "text without zero bytes", value)
  end
  return value
end

--- Any text.
---@return string
function M.string(value, who)
  if type(value) ~= "string" then refuse(who, "text", value) end
  return value
end

---@param expected string|nil  what the table is of
---@return table
function M.table(value, who, expected)
  if type(value) ~= "table" then refuse(who, expected or "a table", value) end
  return value
end

local nothing = {}

--- A table of options, or nil for none; an unknown name is an error that tells the nearest.
---@param names string[]
---@param what string|nil  "option"
---@return table
function M.options(value, who, names, what)
  if value == nil then return nothing end
  if type(value) ~= "table" then
    fail.usage("%s: options must be a table, found %s", who, M.shown(value))
  end
  for key in pairs(value) do
    local known = false
    for i = 1, #names do known = known or names[i] == key end
    if not known then
      fail.usage("%s: %s", who, fail.unknown(what or "option", M.word(key), names))
    end
  end
  return value
end

--- The object that a method was called on; m.get("x") instead of m:get("x") is an error here.
---@param class table  its metatable
---@return table
function M.self(value, class, who)
  if getmetatable(value) ~= class then
    fail.usage("%s: call it with a colon on what it belongs to, found %s", who, M.shown(value))
  end
  return value
end

return M
