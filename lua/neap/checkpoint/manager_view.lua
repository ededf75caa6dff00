-- What a checkpoint manager knows, as plain Lua tables.
local N = require("neap.ffi")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

---@class neap.ManagerStats
---@field stored_bytes number  held; a uint64_t where a number would not be exact
---@field checkpointed_bytes number  dropped
---@field recomputed_bytes number
---@field current_bytes number  the same as stored_bytes
---@field n_stored number
---@field n_checkpointed number
---@field n_snapshots number
---@field n_log number
---@field savings_ratio number  f32(checkpointed) / f32(stored + checkpointed), 0 when both are 0

local COUNTS = {
  "stored_bytes", "checkpointed_bytes", "recomputed_bytes", "current_bytes", "n_stored",
  "n_checkpointed", "n_snapshots", "n_log",
}

local function c_stats(manager)
  local stats = ffi.new("neap_manager_stats")
  check(C.neap_manager_get_stats(manager, stats))
  return stats
end

---@return neap.ManagerStats
function M.stats(manager)
  local stats, out = c_stats(manager), {}
  for _, field in ipairs(COUNTS) do out[field] = whole.number(stats[field]) end
  out.savings_ratio = stats.savings_ratio
  return out
end

---@class neap.Snapshot
---@field name string
---@field index number
---@field is_checkpointed boolean
---@field is_stored boolean
---@field logical_bytes number
---@field stored_bytes number  0 when checkpointed
---@field n_elements number|nil  nil where a tensor was recorded
---@field n_data number  floats held by the manager itself
---@field cost number  of recomputing it; 0 when stored
---@field shape number[]  empty where a tensor was recorded

---@return neap.Snapshot[]
function M.snapshots(manager)
  local list, snapshot = {}, ffi.new("neap_snapshot")
  for i = 1, tonumber(c_stats(manager).n_snapshots) do
    check(C.neap_manager_snapshot(manager, i - 1, snapshot))
    local shape = {}
    for d = 1, snapshot.n_dims do shape[d] = whole.number(snapshot.dims[d - 1]) end
    list[i] = {
      name = ffi.string(snapshot.name),
      index = whole.number(snapshot.index),
      is_checkpointed = snapshot.is_checkpointed == 1,
      is_stored = snapshot.is_checkpointed == 0,
      logical_bytes = whole.number(snapshot.logical_bytes),
      stored_bytes = whole.number(snapshot.stored_bytes),
      n_elements = snapshot.n_elements ~= -1ULL and whole.number(snapshot.n_elements) or nil,
      n_data = whole.number(snapshot.n_data),
      cost = snapshot.cost,
      shape = shape,
    }
  end
  return list
end

---@return string[]
function M.log(manager)
  local names = {}
  for i = 1, tonumber(c_stats(manager).n_log) do
    names[i] = ffi.string(C.neap_manager_log(manager, i - 1))
  end
  return names
end

return M
