-- How many items a whole training step may take: every trial is a real forward and backward of
-- exactly n items under the plan in force, with optimizer state present and not advanced, and
-- afterwards everything is as before, bit for bit and byte for byte.
local ffi_neap = require("neap.ffi")
local bytes = require("neap.bytes")
local chunk_memory = require("neap.chunk_memory")
local fail = require("neap.fail")
local search = require("neap.chunk_search")
local unchanged = require("neap.unchanged")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

---@class neap.ChunkStepOutcome : neap.ChunkSearch
---@field limit_bytes number   live bytes of all tags that a step may take
---@field needed_bytes number|nil  where nothing fits: what a step of the floor takes at least
---@field free_bytes number    of these before the first trial
---@field margin number        share of the device's memory that stays free
---@field line string          all of this in one line

--- Live bytes that a step may take on a device: its budget, else its own size; nil where nobody
--- tells (the machine's memory is not the device's).
---@param device neap.Device
---@return number|nil
function M.limit(device)
  local stats = device:memory()
  local limit = stats.budget_bytes
  if device.name ~= "cpu" and stats.size_bytes then
    limit = math.min(limit or math.huge, stats.size_bytes)
  end
  return limit
end

local function settle(device)
  collectgarbage()
  collectgarbage()
  check(C.neap_memory_trim(device.id))
end

local function check_signal()
  if C.neap_signal_pending() ~= 0 then
    fail.raise("interrupted", "auto_chunk: interrupted; everything is as before")
  end
end

-- one trial: the step's peak of live bytes, or nil and why it does not fit
local function try(o, n)
  check_signal()
  local result = unchanged.run(function(ok, err)
    local peak = C.neap_memory_peak(o.device.id, C.NEAP_METER_STEP)
    if ok then return { peak } end
    if fail.is(err, "out of memory") or fail.is(err, "does not fit") then
      return { nil, fail.message(err) }
    end
    error(err, 0)
  end, function()
    local plan, message = nil, nil
    if o.before then plan, message = o.before(n) end
    if message then fail.raise("does not fit", message) end
    check(C.neap_memory_restart(o.device.id, C.NEAP_METER_STEP))
    local ran = o.run(n, plan)
    if type(ran) == "number" and ran <= 0 then
      fail.raise("wrong state", string.format("auto_chunk: the trial of %d items ran nothing", n))
    end
    check_signal()
  end)
  settle(o.device)
  return result[1], result[2]
end

local function line_of(out, o)
  local margin = out.margin > 0 and string.format(" (margin %.0f%%)", 100 * out.margin) or ""
  local bound = string.format("limit %s%s, cap %d, floor %d, %d trials",
    bytes.format(out.limit_bytes), margin, o.cap, o.floor, #out.trials)
  if not out.n then
    return string.format("auto_chunk: nothing fits: %s%s; %s", out.failed, out.needed_bytes
      and string.format("; a step needs at least %s, %s are free", bytes.format(out.needed_bytes),
        bytes.format(out.free_bytes)) or "", bound)
  end
  return string.format("auto_chunk: %d items, a step takes %s; %s; stopped: %s", out.n,
    bytes.format(out.bytes), bound, out.reason)
end

-- of the smallest size: what a step would have had to find free
local function needed(out, live)
  local last = out.trials[#out.trials]
  if last.bytes then return last.bytes - live end
  return chunk_memory.needed(last.message, out.limit_bytes - live)
end

--- What one trial found, in one line.
---@param trial neap.ChunkTrial
---@return string
function M.trial_line(trial)
  return string.format("auto_chunk: tried %d items: %s", trial.n, trial.fits
    and "fits with " .. bytes.format(trial.bytes) or trial.message)
end

--- Finds the largest n of floor..cap whose step fits.
---@param o { device: neap.Device, cap: integer, floor: integer|nil, limit: number,
---  margin: number|nil, guess: integer|nil, before: (fun(n: integer): any, string|nil)|nil,
---  run: (fun(n: integer, plan: any): number|nil), log: fun(trial: neap.ChunkTrial)|nil }
---  run: forward and backward of exactly n items; may return how many ran. before: called before
---  memory is measured, gives what run gets, or nil and why n does not fit. margin: of the limit,
---  0. guess: tried first
---@return neap.ChunkStepOutcome
function M.find(o)
  local margin, floor = o.margin or 0, o.floor or 1
  settle(o.device)
  local live = o.device:memory().live_bytes
  local out = search.find({ cap = o.cap, floor = floor, limit = math.floor(o.limit * (1 - margin)),
    guess = o.guess, log = o.log, trial = function(n) return try(o, n) end })
  out.limit_bytes, out.margin, out.free_bytes = o.limit, margin, o.limit - live
  if not out.n then out.needed_bytes = needed(out, live) end
  out.line = line_of(out, { cap = o.cap, floor = floor })
  return out
end

return M
