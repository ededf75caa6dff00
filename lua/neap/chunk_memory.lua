-- Where the chunk prober learns what memory is free: from the allocator's own counts, so that a
-- pool does not hide what was freed.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

---@class neap.ChunkMemory
---@field query fun(): (ffi.cdata*|nil, ffi.cdata*|nil)  free and total bytes; nil: not told
---@field settle fun()  frees what is only waiting to be freed

local function counts(device)
  local stats = ffi.new("neap_memory_stats")
  check(C.neap_memory_get(device.id, stats))
  return stats
end

-- what a limit on live bytes leaves
local function below(limit, stats) return math.max(limit - stats.live_bytes, 0), limit end

-- what the machine or card had at the first query, less what was allocated since. The pool's unused
-- reserve counts as free.
local function physical(device)
  local base, live
  return function(stats)
    if not base then
      local available = C.neap_memory_available(device.id)
      if available < 0 then return nil end
      base, live = available + stats.cached_bytes, stats.live_bytes
    end
    return math.max(base + live - stats.live_bytes, 0), stats.size_bytes
  end
end

-- the device's budget; without one its size, where it is its own (not the machine's, unless asked)
local function of_device(device, is_machine)
  local rest = physical(device)
  return function()
    local stats = counts(device)
    local free, total
    if device.name == "null" then
      if stats.size_bytes >= 0 then free, total = below(stats.size_bytes, stats) end
    elseif device.name ~= "cpu" or is_machine then
      free, total = rest(stats)
    end
    if stats.budget_bytes >= 0 then
      local left, limit = below(stats.budget_bytes, stats)
      if not free or left < free then free, total = left, limit end
    end
    return free, total
  end
end

local function bytes_of(value, who)
  if type(value) == "cdata" then return whole.u64(value, who) end
  if type(value) ~= "number" or not (value >= 0 and value <= 2 ^ 53) then
    fail.usage("%s must be bytes, 0 to 2^53 (or a uint64_t), found %s", who, argument.shown(value))
  end
  return ffi.new("uint64_t", math.floor(value))
end

local function checked(query)
  return function()
    local free, total = query()
    if free == nil then return nil end
    free = bytes_of(free, "auto_chunk: the free memory")
    return free, total == nil and free or bytes_of(total, "auto_chunk: the total memory")
  end
end

--- The source that auto_chunk asks.
---@param device neap.Device
---@param memory "machine"|function|nil
---@param settle function|nil
---@return neap.ChunkMemory
function M.source(device, memory, settle)
  if settle ~= nil then argument.fn(settle, "auto_chunk: settle") end
  if memory ~= nil and memory ~= "machine" and type(memory) ~= "function" then
    fail.usage("auto_chunk: memory must be a function that returns free and total bytes, or "
      .. "'machine', found %s", argument.shown(memory))
  end
  local query = checked(type(memory) == "function" and memory or of_device(device, memory ~= nil))
  return {
    query = function()
      if settle then settle() end
      return query()
    end,
    settle = function()
      collectgarbage()
      collectgarbage()
      check(C.neap_memory_trim(device.id))
    end,
  }
end

--- What a forward that failed needed at least, from the sentence of the failed allocation.
---@param sentence string
---@param free ffi.cdata*  bytes before it
---@return number|nil
function M.needed(sentence, free)
  local asked, live, limit = sentence:match("asked (%d+) bytes, live (%d+).- budget (%d+)")
  if not asked then
    asked, live, limit = sentence:match("asked (%d+) bytes, live (%d+).- size (%d+)")
  end
  if not asked then return nil end
  -- of the limit, `free` was left; what the forward held itself is live - (limit - free)
  return tonumber(live) + tonumber(asked) - (tonumber(limit) - tonumber(free))
end

return M
