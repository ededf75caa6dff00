-- Configs from text, and the sentence of what is wrong in them.
local assert = require("luassert")
local config = require("neap.config")
local failure_of = require("spec.support.failure_of")

local M = {}

--- config.load of a file with this text.
function M.load_text(text, sets, options)
  local path = os.tmpname()
  local file = io.open(path, "wb")
  file:write(text)
  file:close()
  local ok, result = pcall(config.load, path, sets, options)
  os.remove(path)
  if not ok then error(result, 0) end
  return result
end

--- The one line of the usage error that fn raises.
---@return string message
function M.usage_of(fn, ...)
  local message = failure_of("usage", fn, ...)
  assert.is_nil(message:find("\n"))
  return message
end

return M
