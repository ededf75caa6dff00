-- What to do when memory runs out: free caches, collect once, and let the caller try again.
local ffi_neap = require("neap.ffi")
local C, ffi = ffi_neap.C, ffi_neap.ffi

local M = {}

local stats = ffi.new("neap_memory_stats")

--- Frees what the collector can free and the caches of every open device.
--- Returns false when code is not out of memory.
---@param code number
---@return boolean
function M.make_room(code)
  if code ~= C.NEAP_ERR_MEMORY then return false end
  collectgarbage()
  collectgarbage()
  return true
end

--- Counted memory of a device, in bytes.
---@param device integer
---@return table stats live_bytes, reserved_bytes, cached_bytes, budget_bytes (nil: none), peak
---   by meter ("run", "step", "action", "work"), tags and tags_at_peak by tag name
function M.stats(device)
  ffi_neap.check(C.neap_memory_get(device, stats))
  local out = {
    live_bytes = stats.live_bytes,
    reserved_bytes = stats.reserved_bytes,
    cached_bytes = stats.cached_bytes,
    budget_bytes = stats.budget_bytes >= 0 and stats.budget_bytes or nil,
    size_bytes = stats.size_bytes >= 0 and stats.size_bytes or nil,
    n_allocations = stats.n_allocations,
    n_device_allocations = stats.n_device_allocations,
    n_tensors = stats.n_tensors,
    peak = {
      run = stats.peak_bytes[C.NEAP_METER_RUN],
      step = stats.peak_bytes[C.NEAP_METER_STEP],
      action = stats.peak_bytes[C.NEAP_METER_ACTION],
      work = stats.peak_bytes[C.NEAP_METER_WORK],
    },
    tags = {},
    tags_at_peak = {},
  }
  for tag = 0, C.NEAP_N_TAGS - 1 do
    local name = ffi.string(C.neap_tag_name(tag))
    out.tags[name] = stats.tag_live_bytes[tag]
    out.tags_at_peak[name] = stats.tag_at_peak_bytes[tag]
  end
  return out
end

return M
