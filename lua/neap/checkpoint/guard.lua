-- Runs a closure that may fail half-way, and puts back what it may have left behind.
local N = require("neap.ffi")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

--- pcall of a closure as a recomputation. When it fails, randomness, scopes and the selected tape
--- are as they were before it.
---@param closure function
---@return boolean ok
---@return any value  the closure's first result, or its error
function M.recompute(closure, ...)
  local rng = ffi.new("neap_rng_state")
  check(C.neap_rng_get(rng))
  local depth, tape = C.neap_scope_depth(), C.neap_tape_selected()
  local flag = C.neap_recomputing_set(1)
  local ok, value = pcall(closure, ...)
  C.neap_recomputing_set(flag)
  if ok then return true, value end
  if C.neap_scope_depth() > depth then C.neap_scope_end(depth + 1, 0, nil) end
  C.neap_tape_select(tape)
  C.neap_rng_set(rng)
  return false, value
end

return M
