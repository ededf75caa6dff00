-- Calls functions with wrong values in every place and collects the errors that nobody can act on:
-- what LuaJIT itself says, addresses, positions in our own files.
local ffi = require("ffi")
local fail = require("neap.fail")

local M = { calls = 0, functions = 0 }

local NIL = {} -- stands for nil in a list

local UNCLEAR = { "attempt to ", "bad argument", "cannot convert", "0x%x%x%x", "cdata<",
  "no member named", "metamethod", "%.lua:%d+:", "stack overflow", "table index is",
  "invalid order function", "invalid value %(", "wrong number of arguments", "nil value" }

local function objection(message)
  for _, pattern in ipairs(UNCLEAR) do
    if message:find(pattern) then return true end
  end
  return message == ""
end

--- The values; tensor gives one that is alive, stale is a freed one.
function M.values(tensor, stale)
  return { { "nil", NIL }, { "true", true }, { "-1", -1 }, { "0.5", 0.5 }, { "NaN", 0 / 0 },
    { "inf", math.huge }, { "2^60", 2 ^ 60 }, { "an empty text", "" }, { "text", "x" },
    { "a zero byte", "a\0b" }, { "a table", function() return {} end },
    { "a list of text", function() return { "x" } end },
    { "a list of tables", function() return { {} } end }, { "a function", M.nothing },
    { "a foreign cdata", ffi.new("int[4]") }, { "an int64", 5LL },
    { "a tensor", tensor }, { "a stale tensor", stale } }
end

function M.nothing() end

-- what stands in the other places
local FILLERS = { NIL, 1, "x", function() return {} end, M.nothing }

local function given(value)
  if value == NIL then return nil end
  if type(value) == "function" and value ~= M.nothing then return value() end
  return value
end

local function call(fn, list, n, describe, wrong)
  M.calls = M.calls + 1
  local ok, result, message = pcall(fn, unpack(list, 1, n))
  local text = ok and result == nil and type(message) == "string" and message
    or not ok and tostring(result)
  if text and (objection(text) or (not ok and not fail.is(result) and text:find("\n"))) then
    local key = describe[1] .. ": " .. text:gsub("0x%x+", "0x.."):sub(1, 200)
    wrong[key] = wrong[key] or string.format("%s as argument %d", describe[2], describe[3])
  end
end

--- Calls fn with every value in every place, the other places filled alike.
---@param wrong table<string, string>  gets one example of each unclear message
---@param make_self (fun(): any)|nil  makes a right first argument; all are spoilt without
function M.each(name, fn, values, wrong, make_self)
  M.functions = M.functions + 1
  local info = debug.getinfo(fn, "u")
  local n = math.max(info.nparams + (info.isvararg and 2 or 0), 1)
  local self = make_self and make_self()
  for place = make_self and 2 or 1, n do
    for _, filler in ipairs(FILLERS) do
      for _, item in ipairs(values) do
        local list = { self }
        for i = make_self and 2 or 1, n do list[i] = given(filler) end
        list[place] = given(item[2])
        call(fn, list, n, { name, item[1], place }, wrong)
      end
    end
  end
end

return M
