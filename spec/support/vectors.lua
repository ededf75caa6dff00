-- The rows of spec/vectors: JSON whose sizes are unsigned 64-bit integers, its floats bits.
local ffi = require("ffi")
local json = require("dkjson")

local M = {}

local here = debug.getinfo(1, "S").source:match("^@(.*)support/vectors%.lua$") or "spec/"
local MARK = "uint64:"

-- a double holds any integer of 15 digits; longer ones become strings that decode puts right
local function quote_integers(text)
  local parts, at = {}, 1
  while true do
    local start = text:find('["%d]', at)
    if not start then break end
    local stop
    if text:sub(start, start) == '"' then
      stop = start
      repeat
        stop = text:find('["\\]', stop + 1)
        local escape = text:sub(stop, stop) == "\\"
        if escape then stop = stop + 1 end
      until not escape
      parts[#parts + 1] = text:sub(at, stop)
    else
      stop = select(2, text:find("^[%d%.eE+-]+", start))
      local number = text:sub(start, stop)
      if number:find("^%d+$") and #number >= 16 then number = '"' .. MARK .. number .. '"' end
      parts[#parts + 1] = text:sub(at, start - 1) .. number
    end
    at = stop + 1
  end
  parts[#parts + 1] = text:sub(at)
  return table.concat(parts)
end

--- An unsigned 64-bit integer from its decimal digits.
function M.u64(digits)
  local value = ffi.new("uint64_t")
  for digit in digits:gmatch("%d") do value = value * 10ULL + tonumber(digit) end
  return value
end

local function restore(value)
  if type(value) == "string" and value:sub(1, #MARK) == MARK then
    return M.u64(value:sub(#MARK + 1))
  end
  if type(value) ~= "table" then return value end
  for key, item in pairs(value) do value[key] = restore(item) end
  return value
end

--- Decodes JSON text; integers of 16 or more digits become uint64_t.
function M.decode(text)
  local value, _, message = json.decode(quote_integers(text))
  if message then error(message) end
  return restore(value)
end

--- The document of spec/vectors/NAME.json.
function M.load(name)
  local file = assert(io.open(here .. "vectors/" .. name .. ".json", "rb"))
  local text = file:read("*a")
  file:close()
  return M.decode(text)
end

--- The bits of a float, as the rows write them: "0x3f800000".
function M.bits(value)
  local union = ffi.new("union { float f; uint32_t u; }")
  union.f = value
  return string.format("0x%08x", union.u)
end

--- The float nearest to a number, for values that the source system kept in 32 bits.
function M.f32(value)
  return tonumber(ffi.new("float[1]", value)[0])
end

--- Whether two whole numbers are the same, be they Lua numbers or uint64_t.
function M.same(a, b)
  return ffi.cast("uint64_t", a) == ffi.cast("uint64_t", b)
end

return M
