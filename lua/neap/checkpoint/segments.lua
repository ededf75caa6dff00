-- The segment checkpointer: balanced segments of a chain, and a slot for the output of each.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

--- A BOUNDARY is what is kept: the first stage of each segment and the last one of the chain. Slot
--- k holds the output of segment k, so the boundary before segment k is slot k - 1.
---@class neap.SegmentCheckpointer
---@field n_segments number
---@field n_stages number
local Segments = {}
Segments.__index = Segments
Segments.__tostring = function(self)
  return string.format("%d segments of %d stages, starting at %s", self.n_segments, self.n_stages,
    table.concat(self:starts(), ", "))
end

local pointer = ffi.typeof("neap_segments *[1]")

local function count_of(value)
  if whole.is(value, 0) then return value end
  if type(value) == "cdata" then
    local ok, exact = pcall(whole.u64, value, "")
    if ok then return exact end
  end
  return nil
end

--- Balanced segments: segment k starts at floor(k * n_stages / n_segments).
---@param n_segments number  1 to n_stages, else an error of kind "invalid segment count"
---@param n_stages number
---@return neap.SegmentCheckpointer
function M.new(n_segments, n_stages)
  local segments, stages = count_of(n_segments), count_of(n_stages)
  if not stages then
    fail.raise("invalid segment count", string.format("n_stages is %s; expected a whole number of "
      .. "at least 1", argument.shown(n_stages)))
  end
  if not segments then
    fail.raise("invalid segment count", string.format("%s segments of %s stages: allowed are whole "
      .. "numbers, 1..%s", argument.shown(n_segments), argument.shown(stages),
      argument.shown(stages)))
  end
  local out = pointer()
  check(C.neap_segments_new(segments, stages, out))
  return setmetatable({
    c = ffi.gc(out[0], C.neap_segments_free),
    n_segments = tonumber(segments),
    n_stages = tonumber(stages),
  }, Segments)
end

--- First stage of segment k, from 0; k = n_segments gives n_stages.
---@param k number
---@return number
function Segments:start(k)
  argument.self(self, Segments, "segments:start")
  return tonumber(C.neap_segments_start(self.c, whole.u64(k, "segments:start: k")))
end

---@return number[]  the first stage of each segment
function Segments:starts()
  argument.self(self, Segments, "segments:starts")
  local starts = {}
  for k = 0, self.n_segments - 1 do starts[k + 1] = self:start(k) end
  return starts
end

--- True for the first stage of a segment and the last of the chain, false outside the chain.
---@param stage number|ffi.cdata*
---@return boolean
function Segments:is_boundary(stage)
  argument.self(self, Segments, "segments:is_boundary")
  local index = whole.u64(stage, "segments:is_boundary: stage")
  return check(C.neap_segments_is_boundary(self.c, index)) == 1
end

---@return number[]  the boundary stages, rising
function Segments:boundaries()
  argument.self(self, Segments, "segments:boundaries")
  local boundaries = self:starts()
  if boundaries[#boundaries] ~= self.n_stages - 1 then
    boundaries[#boundaries + 1] = self.n_stages - 1
  end
  return boundaries
end

--- Outputs kept over outputs made: segments / stages, an f32. Lower keeps less.
---@return number
function Segments:kept_fraction()
  argument.self(self, Segments, "segments:kept_fraction")
  return C.neap_segments_kept_fraction(self.c)
end

--- Keeps the output of segment k, in place of an earlier one.
---@param k number|ffi.cdata*  0 to n_segments - 1, else "invalid segment index: k"
---@param numbers number[]
function Segments:record(k, numbers)
  argument.self(self, Segments, "segments:record")
  local index = whole.u64(k, "segments:record: k")
  local data, n = whole.floats(numbers, "segments:record")
  check(C.neap_segments_record(self.c, index, data, n))
end

---@return number bytes  of the outputs held
function Segments:bytes()
  argument.self(self, Segments, "segments:bytes")
  return tonumber(C.neap_segments_bytes(self.c))
end

--- Gives all outputs up.
function Segments:clear()
  argument.self(self, Segments, "segments:clear")
  check(C.neap_segments_clear(self.c))
end

--- The output kept for segment k; nil when nothing was recorded or there is no such segment.
---@param k number|ffi.cdata*
---@return number[]|nil
function Segments:get(k)
  argument.self(self, Segments, "segments:get")
  local data, n = ffi.new("const float *[1]"), ffi.new("uint64_t[1]")
  check(C.neap_segments_get(self.c, whole.u64(k, "segments:get: k"), data, n))
  if data[0] == nil then return nil end
  return whole.numbers(data[0], tonumber(n[0]))
end

return M
