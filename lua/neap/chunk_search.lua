-- The largest size that fits: a line through what two runs took says where to try next, bisection
-- bounds the number of tries. Every size that is returned has run; a size that failed is not tried
-- again. Memory that grows in steps, or not at all, costs a few more tries and no correctness.
local argument = require("neap.argument")
local fail = require("neap.fail")

local M = {}

---@class neap.ChunkTrial
---@field n integer
---@field bytes number|nil   what it took, when it ran
---@field fits boolean
---@field message string|nil why not

---@class neap.ChunkSearch
---@field n integer|nil      nil: nothing fits
---@field bytes number|nil   what n took
---@field trials neap.ChunkTrial[]  in the order they ran
---@field reason string      why it ended there
---@field failed string|nil  message of the smallest size that does not fit

-- the next size strictly between lo and hi: where the line through the last two runs meets the
-- limit, or the middle, each other time
local function between(lo, hi, a, b, limit, bisects)
  local guess = math.floor((lo + hi) / 2)
  if not bisects and a and b and b.n > a.n then
    local slope = (b.bytes - a.bytes) / (b.n - a.n)
    guess = slope > 0 and math.floor(b.n + (limit - b.bytes) / slope) or hi - 1
  end
  return math.max(lo + 1, math.min(hi - 1, guess))
end

--- At most 2 log2(cap) + 2 trials.
---@param cap integer
---@return integer
function M.most_trials(cap)
  return math.floor(2 * math.log(cap) / math.log(2)) + 2
end

--- Finds the largest n in floor..cap whose trial fits under limit bytes. trial(n) runs exactly n
--- items and returns the bytes it took, or nil and a sentence when memory ran out; any other error
--- is its own and goes through.
--- A guess (of a forecast) is tried first, and then the size above it.
---@param o { cap: integer, floor?: integer, limit: number, trial: fun(n: integer): number|nil,
---  string|nil, guess?: integer, log?: fun(trial: neap.ChunkTrial) }
---@return neap.ChunkSearch
function M.find(o)
  argument.options(argument.table(o, "chunk search"), "chunk search",
    { "cap", "floor", "limit", "trial", "guess", "log" })
  local cap = argument.whole(o.cap, "chunk search: cap", 1)
  local floor = argument.whole(o.floor == nil and 1 or o.floor, "chunk search: floor", 1, cap)
  local is_limit = type(o.limit) == "number" and o.limit >= 0 -- NaN is none
  if not is_limit then
    fail.usage("chunk search: limit must be a number of bytes, found %s", argument.shown(o.limit))
  end
  argument.fn(o.trial, "chunk search: trial")
  local result = { trials = {} }
  local lo, hi, before, last = floor - 1, cap + 1, nil, nil

  local function try(n)
    local bytes, message = o.trial(n)
    local t = { n = n, bytes = bytes, message = message }
    if bytes ~= nil and type(bytes) ~= "number" then
      fail.raise("invalid argument", "chunk search: trial must return bytes, found "
        .. argument.shown(bytes))
    end
    t.fits = bytes ~= nil and bytes <= o.limit
    if bytes and not t.fits then
      t.message = string.format("%d items took %.0f bytes, the limit is %.0f", n, bytes, o.limit)
    end
    result.trials[#result.trials + 1] = t
    if t.fits then
      lo, before, last = n, last, t
      result.n, result.bytes = n, bytes
    else
      hi, result.failed = n, t.message
    end
    if o.log then o.log(t) end
    return t.fits
  end

  local guess = o.guess
  if guess ~= nil then
    argument.whole(guess, "chunk search: guess", floor, cap)
    if try(guess) and guess < cap then try(guess + 1) end
  end
  if lo < floor and (hi == floor or not try(floor)) then
    result.reason = "the smallest size does not fit"
    return result
  end
  if guess == nil and floor < cap then try(math.min(2 * floor, cap)) end
  local width, bisects, spare = hi - lo, false, 1
  while hi - lo > 1 do
    try(between(lo, hi, before, last, o.limit, bisects))
    -- a step of the line that did not halve what is left is followed by one that does, but for the
    -- first time: then the line was right as a rule, and the next step shows that one more fails
    bisects = not bisects and 2 * (hi - lo) > width
    if bisects and spare > 0 then bisects, spare = false, 0 end
    width = hi - lo
  end
  result.reason = lo == cap and "the cap fits"
    or string.format("%d does not fit", hi)
  return result
end

return M
