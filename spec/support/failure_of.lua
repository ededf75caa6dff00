-- Calls what must fail and gives its sentence: failure_of("usage", fn, ...).
local assert = require("luassert")
local fail = require("neap.fail")

---@param kind string  of the Failure that fn has to raise
---@return string message
return function(kind, fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_true(fail.is(err, kind), string.format("expected %s: %s", kind, tostring(err)))
  return err.message
end
