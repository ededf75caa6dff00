-- Runs a config as data: text only, no globals, no string methods, bounded instructions and memory.
-- A training script is trusted code; a config is not.
local fail = require("neap.fail")
local M = {}

local MOST_BYTES = 64 * 1024
local MOST_INSTRUCTIONS = 200000
-- one instruction joins at most some 250 strings, so this also bounds what the next can take
local MOST_KIB = 1024

M.MOST_BYTES = MOST_BYTES

-- no string methods in here: they are out of reach while the chunk runs
local function environment()
  return setmetatable({}, {
    __index = function(_, name)
      fail.raise("usage", "it reads '" .. tostring(name) .. "', and a config has no variables but "
        .. "its own locals; write names in quotes")
    end,
    __newindex = function(_, name)
      fail.raise("usage", "it sets '" .. tostring(name) .. "', expected one table: "
        .. "return { width = 128, ... }")
    end,
  })
end

-- the count hook does not fire in compiled code, hence jit.off
local function run_bounded(chunk)
  jit.off(chunk, true)
  local n, most_kib = 0, collectgarbage("count") + MOST_KIB
  local hook, mask, count = debug.gethook()
  -- without its own end the hook would fire again in what catches its error
  local function stop(message)
    debug.sethook()
    fail.raise("usage", message)
  end
  debug.sethook(function()
    n = n + 1
    if n > MOST_INSTRUCTIONS then
      stop("it runs for more than " .. MOST_INSTRUCTIONS .. " instructions")
    end
    if collectgarbage("count") > most_kib then
      stop("it takes more than " .. MOST_KIB .. " KiB of memory")
    end
  end, "", 1)
  local ok, result = pcall(chunk)
  debug.sethook(hook, mask, count)
  return ok, result
end

--- The table that a config's text returns. Raises "usage" with one sentence otherwise.
---@param text string
---@param place string  what the sentence begins with, e.g. "config 'small.lua'"
---@return table
function M.evaluate(text, place)
  if text:sub(1, 1) == "\27" then
    fail.usage("%s: it is compiled code, expected a config as text", place)
  end
  local chunk, message = load(text, "=config", "t", environment())
  if not chunk then
    local line, reason = message:match("^config:(%d+): (.*)$")
    fail.raise("usage", string.format("%s: line %s: %s", place, line or "1", reason or message))
  end
  collectgarbage()
  local strings = debug.getmetatable("")
  debug.setmetatable("", nil)
  local ok, result = run_bounded(chunk)
  debug.setmetatable("", strings)
  if not ok then
    message = fail.message(result)
    local line, reason = message:match("^config:(%d+): (.*)$")
    message = line and string.format("line %s: %s", line, reason) or message
    fail.raise("usage", place .. ": " .. (message:match("^[^\n]*")))
  end
  if type(result) ~= "table" then
    fail.usage("%s: it returns %s, expected one table: return { width = 128, ... }", place,
      result == nil and "nothing" or "a " .. type(result))
  end
  return result
end

return M
