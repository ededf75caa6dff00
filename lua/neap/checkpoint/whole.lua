-- Numbers at the border to C: whole ones exact in both directions, arrays of floats.
local ffi = require("ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")

local M = {}

local u64, i64 = ffi.typeof("uint64_t"), ffi.typeof("int64_t")
local LARGEST = 2 ^ 53

--- Whether it is a whole number from low to high (a Lua number).
---@param value any
---@param low number
---@param high number|nil  2^53 when not given
---@return boolean
function M.is(value, low, high)
  return type(value) == "number" and value == math.floor(value) and value >= low
    and value <= (high or LARGEST)
end

--- An unsigned 64-bit integer; anything else is a usage error that begins with what.
---@param value number|ffi.cdata*  a whole Lua number to 2^53, a uint64_t or an int64_t
---@param what string  "manager:record: idx"
---@return ffi.cdata*
function M.u64(value, what)
  if ffi.istype(u64, value) then return value end
  if ffi.istype(i64, value) and value >= 0 then return u64(value) end
  if M.is(value, 0) then return u64(value) end
  fail.usage("%s is %s; expected a whole number, 0 to 2^53 (or a uint64_t)", what,
    argument.shown(value))
end

--- A Lua number where that is exact, else the 64-bit integer as it is.
---@param value ffi.cdata*
---@return number|ffi.cdata*
function M.number(value)
  local number = tonumber(value)
  -- 2^53 + 1 becomes 2^53 as a number
  return (number < LARGEST or value == LARGEST) and number or value
end

--- Its decimal digits.
---@param value number|ffi.cdata*
---@return string
function M.text(value)
  if type(value) == "number" then return string.format("%.0f", value) end
  return (tostring(value):gsub("U?LL$", ""))
end

--- An array of numbers as floats; anything else in it is a usage error that begins with what.
---@param numbers number[]
---@param what string
---@return ffi.cdata* data  float[], never NULL
---@return number n
function M.floats(numbers, what)
  if type(numbers) ~= "table" then
    fail.usage("%s: data is %s; expected an array of numbers", what, argument.shown(numbers))
  end
  local n = #numbers
  local data = ffi.new("float[?]", math.max(n, 1))
  for i = 1, n do
    if type(numbers[i]) ~= "number" then
      fail.usage("%s: number %d is %s; expected a number", what, i,
        argument.shown(numbers[i]))
    end
    data[i - 1] = numbers[i]
  end
  return data, n
end

--- The floats as an array of Lua numbers.
---@param data ffi.cdata*
---@param n number
---@return number[]
function M.numbers(data, n)
  local numbers = {}
  for i = 1, n do numbers[i] = data[i - 1] end
  return numbers
end

return M
