-- JSON out: keys in a stable order, integers as integers, NaN and infinities as null. In: dkjson.
local argument = require("neap.argument")
local M = {}

--- What encodes as null where a Lua table cannot hold nil.
M.null = setmetatable({}, { __tostring = function() return "null" end })

local Array = { __jsontype = "array" }

--- Marks a table as an array, so that an empty one is [] and not {}.
---@param list table
---@return table list
function M.array(list)
  return setmetatable(argument.table(list, "json.array: its argument"), Array)
end

--- Marks a table as an object whose keys come in this order; others follow, sorted.
---@param object table
---@param order string[]
---@return table object
function M.object(object, order)
  argument.table(object, "json.object: its argument")
  argument.table(order, "json.object: order")
  return setmetatable(object, { __jsontype = "object", __jsonorder = order })
end

local ESCAPES = {
  ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r",
  ["\t"] = "\\t",
}

local function escape(character)
  return ESCAPES[character] or string.format("\\u%04x", character:byte())
end

-- length of the UTF-8 sequence at i; nil where it is overlong, a surrogate, cut off, beyond 10FFFF
local function sequence(text, i)
  local a, b, c, d = text:byte(i, i + 3)
  local function tail(byte, low, high) return byte and byte >= low and byte <= high end
  if a < 0x80 then return 1 end
  if a >= 0xc2 and a <= 0xdf then return tail(b, 0x80, 0xbf) and 2 or nil end
  if a >= 0xe0 and a <= 0xef then
    local low, high = a == 0xe0 and 0xa0 or 0x80, a == 0xed and 0x9f or 0xbf
    return tail(b, low, high) and tail(c, 0x80, 0xbf) and 3 or nil
  end
  if a >= 0xf0 and a <= 0xf4 then
    local low, high = a == 0xf0 and 0x90 or 0x80, a == 0xf4 and 0x8f or 0xbf
    return tail(b, low, high) and tail(c, 0x80, 0xbf) and tail(d, 0x80, 0xbf) and 4 or nil
  end
  return nil
end

--- The text with every byte that is no UTF-8 replaced by U+FFFD.
---@param text string
---@return string
function M.utf8(text)
  if not argument.string(text, "json.utf8: its argument"):find("[\128-\255]") then return text end
  local parts, i = {}, 1
  while i <= #text do
    local n = sequence(text, i)
    parts[#parts + 1] = n and text:sub(i, i + n - 1) or "\239\191\189"
    i = i + (n or 1)
  end
  return table.concat(parts)
end

local function encode_string(text)
  return '"' .. M.utf8(text):gsub('[%c"\\\127]', escape) .. '"'
end

local function encode_number(number)
  if number ~= number or number == math.huge or number == -math.huge then return "null" end
  if number == math.floor(number) and math.abs(number) <= 2 ^ 53 then
    return string.format("%.0f", number)
  end
  for digits = 15, 17 do
    local text = string.format("%." .. digits .. "g", number)
    if tonumber(text) == number then return text end
  end
end

-- 64-bit integers keep all their digits
local function encode_cdata(value, path)
  local digits = tostring(value):match("^(%-?%d+)U?LL$")
  if not digits then
    error("json: " .. path .. " is " .. argument.shown(value) .. ", which JSON cannot hold", 0)
  end
  return digits
end

local function is_array(value, path)
  local meta = getmetatable(value)
  if meta and meta.__jsontype then return meta.__jsontype == "array" end
  local n, n_names, n_numbers = 0, 0, 0
  for key in pairs(value) do
    n = n + 1
    if type(key) == "string" then n_names = n_names + 1 end
    if type(key) == "number" then n_numbers = n_numbers + 1 end
  end
  if n_names == n then return false end
  if n_numbers == n and n == #value then return true end
  error("json: " .. path .. " has keys that are neither all names nor 1 to its length", 0)
end

local function sorted_keys(object)
  local keys, listed = {}, {}
  local meta = getmetatable(object)
  for _, key in ipairs(meta and meta.__jsonorder or {}) do
    if object[key] ~= nil and not listed[key] then keys[#keys + 1], listed[key] = key, true end
  end
  local rest = {}
  for key in pairs(object) do
    if not listed[key] then rest[#rest + 1] = key end
  end
  table.sort(rest)
  for _, key in ipairs(rest) do keys[#keys + 1] = key end
  return keys
end

local encode

local function encode_table(value, path, inside)
  if inside[value] then error("json: " .. path .. " contains itself", 0) end
  inside[value] = true
  local parts = {}
  local array = is_array(value, path)
  if array then
    for i = 1, #value do parts[i] = encode(value[i], path .. "[" .. i .. "]", inside) end
  else
    for i, key in ipairs(sorted_keys(value)) do
      parts[i] = encode_string(key) .. ":" .. encode(value[key], path .. "." .. key, inside)
    end
  end
  inside[value] = nil
  local body = table.concat(parts, ",")
  return array and "[" .. body .. "]" or "{" .. body .. "}"
end

function encode(value, path, inside)
  local kind = type(value)
  if value == nil or value == M.null then return "null" end
  if kind == "boolean" then return tostring(value) end
  if kind == "number" then return encode_number(value) end
  if kind == "string" then return encode_string(value) end
  if kind == "cdata" then return encode_cdata(value, path) end
  if kind == "table" then return encode_table(value, path, inside) end
  error("json: " .. path .. " is a " .. kind .. ", which JSON cannot hold", 0)
end

--- One line of JSON. Raises an error that names the place of what JSON cannot hold.
---@param value any
---@param order string[]|nil  the outermost object's first keys; all other keys are sorted
---@return string
function M.encode(value, order)
  if order ~= nil then argument.table(order, "json.encode: order", "a list of keys") end
  if order and type(value) == "table" then
    local copy = {}
    for key, item in pairs(value) do copy[key] = item end
    value = M.object(copy, order)
  end
  return encode(value, "value", {})
end

--- A value from JSON text; arrays and objects carry dkjson's metatables, null is nil.
---@param text string
---@param null any  what stands for null (nil: nothing)
---@return any value
---@return string|nil message  one sentence when the text is no JSON
function M.decode(text, null)
  if type(text) ~= "string" then
    return nil, "JSON is read from text, found " .. argument.shown(text)
  end
  -- a depth that no stack holds raises an error there
  local ok, value, position, message = pcall(require("dkjson").decode, text, 1, null)
  if not ok then return nil, "not JSON: nested too deeply" end
  if message then return nil, "not JSON: " .. message end
  local rest = text:find("%S", position)
  if rest then return nil, string.format("not JSON: more text after the value at byte %d", rest) end
  return value
end

return M
