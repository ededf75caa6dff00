-- The auto-chunk prober: how many items one forward may take. The arithmetic and the ladder are C
-- (src/chunk); here forwards are run, and memory is asked for.
local N = require("neap.ffi")
local argument = require("neap.argument")
local chunk_memory = require("neap.chunk_memory")
local chunk_script = require("neap.chunk_script")
local device_module = require("neap.device")
local fail = require("neap.fail")
local unchanged = require("neap.unchanged")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

local TARGET, FLOOR = 0.6, 16
local text = whole.text

local function smaller(a, b) return a < b and a or b end

local function checked_target(target, who)
  if target == nil then return TARGET end
  if type(target) ~= "number" then
    fail.usage("%s must be a number, found %s", who, argument.shown(target))
  end
  return target -- NaN is for C to refuse
end

--- The largest rung of floor, 2 floor, 4 floor, .., cap whose items fit half of the target share of
--- the free memory (backward has the other half); the floor when none does.
---@param free number|ffi.cdata*  bytes
---@param item_bytes number|ffi.cdata*  0 counts as 1
---@param cap number|ffi.cdata*
---@param floor number|ffi.cdata*|nil  min(16, cap); above the cap it is the cap
---@param target number|nil  0.6; within 0.05..0.95, NaN is an error
---@return number|ffi.cdata* n
---@return boolean fits  false: the floor does not
function M.from_measurements(free, item_bytes, cap, floor, target)
  local who = "chunk_from_measurements: "
  local free_bytes = whole.u64(free, who .. "free")
  local bytes = whole.u64(item_bytes, who .. "item_bytes")
  local most = whole.u64(cap, who .. "cap")
  local least = floor == nil and smaller(ffi.new("uint64_t", FLOOR), most)
    or whole.u64(floor, who .. "floor")
  local n = ffi.new("uint64_t[1]")
  local code = check(C.neap_chunk_from_measurements(free_bytes, bytes, most, least,
    checked_target(target, who .. "target"), n))
  return whole.number(n[0]), code == 1
end

local KINDS = {
  [C.NEAP_CHUNK_UNSUPPORTED] = "unsupported",
  [C.NEAP_CHUNK_NOTHING_FITS] = "nothing_fits",
  [C.NEAP_CHUNK_CHOSEN] = "chosen",
}
local WITHIN = { [0] = false, [1] = true } -- -1: nil
local COUNTS = { "used_bytes", "item_bytes", "free_bytes", "total_bytes", "budget_bytes", "cap",
  "floor" }

---@class neap.ChunkOutcome
---@field kind "chosen"|"nothing_fits"|"unsupported"  unsupported: keep your default; nothing_fits:
---  one of no size will do, no default either
---@field n number|nil  items; nil when none was chosen
---@field within_budget boolean|nil  nil: unmeasured
---@field unmeasured boolean  chosen, but the memory did not fall or was not told
---@field stop string  why the ladder ended
---@field reason string|nil  of nothing_fits: the sentence of the allocation that failed
---@field needed_bytes number|nil  of nothing_fits: at least so many, where the sentence tells
---@field used_bytes number  by a forward of n items
---@field item_bytes number
---@field free_bytes number  before the first forward
---@field total_bytes number
---@field budget_bytes number  of a forward: free * target / 2
---@field cap number
---@field floor number
---@field target number  as it counted
---@field line string  all of this in one line

local function chosen_text(o)
  local verdict = o.unmeasured and "unmeasured" or string.format("%s bytes an item, %s of a budget "
    .. "of %s%s", text(o.item_bytes), text(o.used_bytes), text(o.budget_bytes),
    o.within_budget and "" or " (over budget)")
  return string.format("%s items: %s", text(o.n), verdict)
end

local function line_of(o)
  local bounds = string.format("cap %s, floor %s, target %.1f%%", text(o.cap), text(o.floor),
    100 * o.target)
  if o.kind == "unsupported" then
    return string.format("auto_chunk: the free memory is not told here, keep the default (%s)",
      bounds)
  end
  return string.format("auto_chunk: %s; %s bytes free of %s; %s; stopped: %s%s",
    o.kind == "chosen" and chosen_text(o) or "nothing fits", text(o.free_bytes),
    text(o.total_bytes), bounds, o.stop, o.reason and ": " .. o.reason or "")
end

local function outcome_of(prober, failure, free)
  local c, out = ffi.new("neap_chunk_outcome"), {}
  check(C.neap_prober_outcome(prober, c))
  out.kind, out.stop, out.target = KINDS[c.kind], ffi.string(c.stop), c.target
  for _, field in ipairs(COUNTS) do out[field] = whole.number(c[field]) end
  if out.kind == "chosen" then
    out.n, out.within_budget = whole.number(c.n), WITHIN[c.within_budget]
    out.unmeasured = c.within_budget < 0
  else
    out.unmeasured = false
  end
  if out.kind == "nothing_fits" then
    out.reason = fail.message(failure)
    out.needed_bytes = chunk_memory.needed(out.reason, free)
  end
  out.line = line_of(out)
  return out
end

-- one rung: "ran" with the free bytes while the result lived (nil: not told), or "failed"
local function rung(n, forward_at, memory)
  return unchanged.run(function(ok, result)
    if ok then return { "ran", (memory.query()) } end
    if fail.is(result, "out of memory") then return { "failed", result } end
    error(result, 0)
  end, forward_at, n)
end

local function report(prober, what, value)
  if what == "failed" then return C.neap_prober_failed(prober) end
  if value == nil then return C.neap_prober_ran_unseen(prober) end
  return C.neap_prober_ran(prober, value)
end

local function climb(prober, forward_at, memory)
  local free, total = memory.query()
  local n, failure = ffi.new("uint64_t[1]"), nil
  if free == nil then
    check(C.neap_prober_start_unseen(prober))
  else
    check(C.neap_prober_start(prober, free, total))
  end
  while check(C.neap_prober_next(prober, n)) == 1 do
    local result = rung(whole.number(n[0]), forward_at, memory)
    failure = result[1] == "failed" and result[2] or nil
    check(report(prober, result[1], result[2]))
    -- what the rung left to the collector and to the pool is free before the next one
    memory.settle()
  end
  return outcome_of(prober, failure, free)
end

local option_names = { "mode", "cap", "floor", "target", "forward_at", "memory", "settle",
  "device", "log" }
local MODES = { "forward", "step" }

--- Finds how many items fit.
---
--- mode = "forward" (the default) asks how many a forward may take: real forwards run on the
--- ladder floor, 2 floor, .., cap, each measured while its result lives; then everything is as
--- before: memory, randomness, buffers, gradients. Only running out of memory is an answer; another
--- error is raised at once.
---
--- mode = "step" asks how many a whole step may take, exactly. Its options: model, batch (makes n
--- items, { inputs =, targets = }), plan (a policy, a plan, or function(n) that gives one, or nil
--- and why not; none when not given; policies that look at bytes need the function), cap, floor
--- (1), margin (share of the memory that stays free: 0, on cuda 0.05), device, memory, settle, log
--- (a line a trial too). A trial is a forward and backward of exactly n items beside all that is
--- there: make the optimizer first. The size that is returned has run.
---@param options { cap: number, forward_at: fun(n: number): any, floor?: number, target?: number,
--- memory?: "machine"|fun(): (number|nil, number|nil), settle?: fun(), device?: neap.Device,
--- log?: false|fun(line: string) }
--- forward_at: runs the real forward on exactly n items and returns its loss. floor: min(16, cap).
--- target: share of the free memory that forward and backward may take, 0.6. memory: free and total
--- bytes, or nil (not told); "machine": what the machine has; else what the device's budget or size
--- leaves. settle: called before each query. log: gets the one line, stderr when not given.
---@return number|nil n  nil: see the outcome
---@return neap.ChunkOutcome outcome
function M.auto(options)
  local mode = argument.table(options, "auto_chunk: its argument").mode
  if mode == "step" then return chunk_script.auto(options) end
  if mode ~= nil and mode ~= "forward" then
    fail.usage("auto_chunk: %s", fail.unknown("mode", argument.word(mode), MODES))
  end
  argument.options(options, "auto_chunk", option_names)
  argument.fn(options.forward_at, "auto_chunk: forward_at")
  local cap = whole.u64(options.cap, "auto_chunk: cap")
  local floor = options.floor == nil and smaller(ffi.new("uint64_t", FLOOR), cap)
    or whole.u64(options.floor, "auto_chunk: floor")
  local target = checked_target(options.target, "auto_chunk: target")
  local log = options.log
  if log == nil then log = function(line) io.stderr:write(line, "\n") end end
  if log then argument.fn(log, "auto_chunk: log") end
  local device = options.device and device_module.checked(options.device, "auto_chunk: device")
    or device_module.current()
  local memory = chunk_memory.source(device, options.memory, options.settle)
  local out = ffi.new("neap_prober *[1]")
  check(C.neap_prober_new(cap, floor, target, out))
  local prober = ffi.gc(out[0], C.neap_prober_free)
  local outcome = climb(prober, options.forward_at, memory)
  C.neap_prober_free(ffi.gc(prober, nil))
  if log then log(outcome.line) end
  return outcome.n, outcome
end

return M
