-- Profiles of chains as C reads them: an array of neap_stage from { stages = { {...}, ... } }.
local N = require("neap.ffi")
local fail = require("neap.fail")
local whole = require("neap.checkpoint.whole")

local C, ffi = N.C, N.ffi
local M = {}

---@class neap.StageProfile
---@field name string
---@field out_bytes number  of x_{i+1}; also of its gradient
---@field saved_bytes number  kept for backward beyond x_i and x_{i+1}
---@field forward_extra_bytes number
---@field backward_extra_bytes number
---@field forward_cost number  nanoseconds or FLOPs, whole
---@field backward_cost number
---@field stops_early boolean|nil  with recompute_cost and recompute_extra_bytes
---@field measured boolean|nil  with forward_peak_bytes = { nothing, input, everything, early },
--- backward_peak_bytes, grad_bytes, out = { { source =, bytes = }, ... }, saves_in, saves_out

---@class neap.Profile
---@field stages neap.StageProfile[]

local TABLE = {
  "out_bytes", "saved_bytes", "forward_extra_bytes", "backward_extra_bytes", "forward_cost",
  "backward_cost",
}
local EARLY = { "recompute_cost", "recompute_extra_bytes" }
local MEASURED = { "backward_peak_bytes", "grad_bytes" }
local MASKS = { "saves_in", "saves_out" }
local KNOWN = {
  "name", "stops_early", "measured", "forward_peak_bytes", "out", unpack(TABLE),
}
for _, list in ipairs({ EARLY, MEASURED, MASKS }) do
  for _, field in ipairs(list) do KNOWN[#KNOWN + 1] = field end
end
local IS_KNOWN = {}
for _, field in ipairs(KNOWN) do IS_KNOWN[field] = true end

local function shown(value)
  return type(value) == "string" and "'" .. value .. "'" or tostring(value)
end

-- 2^53 keeps sums of a few stages exact in Lua too; C checks the sums in 63 bits
local function number_of(place, field, value)
  if whole.is(value, 0) then return value end
  if type(value) == "cdata" then
    local ok, converted = pcall(whole.u64, value, field)
    if ok and converted < 0x8000000000000000ULL then return ffi.cast("int64_t", converted) end
  end
  if value == nil then fail.usage("%s: field '%s' is missing", place, field) end
  fail.usage("%s: %s is %s; expected a whole number of at least 0", place, field, shown(value))
end

local function check_keys(place, stage)
  for key in pairs(stage) do
    local near = not IS_KNOWN[key] and fail.nearest(tostring(key), KNOWN)
    if near and stage[near] == nil then
      fail.usage("%s: unknown field '%s', did you mean '%s'?", place, tostring(key), near)
    end
  end
end

local function read_fields(place, stage, fields, to)
  for _, field in ipairs(fields) do to[field] = number_of(place, field, stage[field]) end
end

local function read_measured(place, stage, to)
  to.measured = 1
  read_fields(place, stage, MEASURED, to)
  local peaks = stage.forward_peak_bytes
  if type(peaks) ~= "table" then
    fail.usage("%s: forward_peak_bytes is %s; expected four numbers", place, shown(peaks))
  end
  for k = 1, 4 do
    -- the last one is that of an early-stopped recomputation, which not every stage has
    local value = peaks[k] == nil and k == 4 and not stage.stops_early and 0 or peaks[k]
    to.forward_peak_bytes[k - 1] = number_of(place, "forward_peak_bytes[" .. k .. "]", value)
  end
  local out = stage.out
  if type(out) ~= "table" or #out < 1 or #out > C.NEAP_MAX_BOUNDARY then
    fail.usage("%s: out lists the tensors of its output, 1 to %d of { source =, bytes = }", place,
      C.NEAP_MAX_BOUNDARY)
  end
  to.n_out = #out
  for k, tensor in ipairs(out) do
    local source = type(tensor) == "table" and tensor.source
    if not whole.is(source, -1 - C.NEAP_MAX_BOUNDARY, C.NEAP_MAX_BOUNDARY - 1) then
      fail.usage("%s: source of output %d is %s; expected -1 for a new storage, an input's number, "
        .. "or -2 - k for output k", place, k - 1, shown(source))
    end
    to.out_source[k - 1] = source
    to.out_storage_bytes[k - 1] = number_of(place, "bytes of output " .. k - 1,
      source ~= -1 and tensor.bytes == nil and 0 or tensor.bytes)
  end
  for _, field in ipairs(MASKS) do
    if not whole.is(stage[field], 0, 255) then
      fail.usage("%s: %s is %s; expected a mask of tensors, 0 to 255", place, field,
        shown(stage[field]))
    end
    to[field] = stage[field]
  end
end

local function read_stage(i, stage, to, names)
  local place = string.format("profile, stage %d", i - 1)
  if type(stage) ~= "table" then fail.usage("%s is %s; expected a table", place, shown(stage)) end
  check_keys(place, stage)
  local name = stage.name
  if type(name) ~= "string" or name == "" then
    fail.usage("%s: name is %s; expected text", place, shown(name))
  end
  place = string.format("%s (%s)", place, name)
  if names[name] then fail.usage("%s: stage %d has the same name", place, names[name] - 1) end
  names[name] = i
  for _, flag in ipairs({ "stops_early", "measured" }) do
    if stage[flag] ~= nil and type(stage[flag]) ~= "boolean" then
      fail.usage("%s: %s is %s; expected true or false", place, flag, shown(stage[flag]))
    end
  end
  read_fields(place, stage, TABLE, to)
  if stage.stops_early then
    to.stops_early = 1
    read_fields(place, stage, EARLY, to)
  end
  if stage.measured then read_measured(place, stage, to) end
end

--- Reads a profile; what is wrong in it is a usage error that names the stage and the field.
---@param profile neap.Profile
---@return ffi.cdata* stages  neap_stage[n]
---@return number n
function M.read(profile)
  local list = type(profile) == "table" and profile.stages
  if type(list) ~= "table" or #list == 0 then
    fail.usage("a profile is a table { stages = { { name =, out_bytes =, ... }, ... } } with at "
      .. "least one stage; found %s", type(profile) == "table" and "no stages" or shown(profile))
  end
  local stages, names = ffi.new("neap_stage[?]", #list), {}
  for i, stage in ipairs(list) do read_stage(i, stage, stages[i - 1], names) end
  return stages, #list
end

return M
