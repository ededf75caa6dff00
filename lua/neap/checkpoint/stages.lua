-- Profiles of chains as C reads them: an array of neap_stage from { stages = { {...}, ... } }.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local whole = require("neap.checkpoint.whole")

local C, ffi = N.C, N.ffi
local M = {}

local shown = argument.shown

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
---@field modes neap.ModeProfile[]|nil  further ways to keep its residuals

--- A forward keeping everything in a mode saves less (or elsewhere), and its backward makes the
--- rest again inside itself. Of a measured stage also the fields that are optional here.
---@class neap.ModeProfile
---@field name string
---@field saved_bytes number
---@field forward_extra_bytes number
---@field backward_extra_bytes number
---@field forward_cost number
---@field backward_cost number
---@field forward_peak_bytes number|nil
---@field backward_peak_bytes number|nil
---@field saves_in number|nil
---@field saves_out number|nil

---@class neap.Profile
---@field stages neap.StageProfile[]

local TABLE = {
  "out_bytes", "saved_bytes", "forward_extra_bytes", "backward_extra_bytes", "forward_cost",
  "backward_cost",
}
local EARLY = { "recompute_cost", "recompute_extra_bytes" }
local MEASURED = { "backward_peak_bytes", "grad_bytes" }
local MASKS = { "saves_in", "saves_out" }
local MODE = {
  "saved_bytes", "forward_extra_bytes", "backward_extra_bytes", "forward_cost", "backward_cost",
}
local MODE_MEASURED = { "forward_peak_bytes", "backward_peak_bytes" }

local function known(names, ...)
  for _, list in ipairs({ ... }) do
    for _, field in ipairs(list) do names[#names + 1] = field end
  end
  for k = 1, #names do names[names[k]] = true end
  return names
end

local KNOWN = known({ "name", "stops_early", "measured", "forward_peak_bytes", "out", "modes" },
  TABLE, EARLY, MEASURED, MASKS)
local KNOWN_OF_MODE = known({ "name" }, MODE, MODE_MEASURED, MASKS)

-- neap_stage points to its modes: they live as long as the array of stages
local anchors = setmetatable({}, { __mode = "k" })

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

local function check_keys(place, stage, names)
  for key in pairs(stage) do
    local near = not names[key] and fail.nearest(tostring(key), names)
    if near and stage[near] == nil then
      fail.usage("%s: unknown field '%s', did you mean '%s'?", place, tostring(key), near)
    end
  end
end

local function read_fields(place, stage, fields, to)
  for _, field in ipairs(fields) do to[field] = number_of(place, field, stage[field]) end
end

local function read_masks(place, stage, to)
  for _, field in ipairs(MASKS) do
    if not whole.is(stage[field], 0, 255) then
      fail.usage("%s: %s is %s; expected a mask of tensors, 0 to 255", place, field,
        shown(stage[field]))
    end
    to[field] = stage[field]
  end
end

local function read_mode(place, mode, measured, to)
  if type(mode) ~= "table" or type(mode.name) ~= "string" or mode.name == "" then
    fail.usage("%s is %s; expected a table with a name", place, type(mode) == "table"
      and "without a name" or shown(mode))
  end
  check_keys(place, mode, KNOWN_OF_MODE)
  read_fields(place, mode, MODE, to)
  if measured then
    read_fields(place, mode, MODE_MEASURED, to)
    read_masks(place, mode, to)
  end
end

local function read_modes(place, stage, to)
  local list = stage.modes
  if type(list) ~= "table" or #list > C.NEAP_MAX_MODES then
    fail.usage("%s: modes lists up to %d of { name =, saved_bytes =, ... }; found %s", place,
      C.NEAP_MAX_MODES, type(list) == "table" and #list or shown(list))
  end
  if #list == 0 then return nil end
  local modes, names = ffi.new("neap_mode[?]", #list), {}
  for m, mode in ipairs(list) do
    read_mode(string.format("%s, mode %d", place, m), mode, stage.measured, modes[m - 1])
    if names[mode.name] then
      fail.usage("%s: modes %d and %d have the same name '%s'", place, names[mode.name], m,
        mode.name)
    end
    names[mode.name] = m
  end
  to.n_modes, to.modes = #list, modes
  return modes
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
  read_masks(place, stage, to)
end

local function read_stage(i, stage, to, names)
  local place = string.format("profile, stage %d", i - 1)
  if type(stage) ~= "table" then fail.usage("%s is %s; expected a table", place, shown(stage)) end
  check_keys(place, stage, KNOWN)
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
  return stage.modes ~= nil and read_modes(place, stage, to) or nil
end

--- Reads a profile; what is wrong in it is a usage error that names the stage and the field.
---@param profile neap.Profile
---@return ffi.cdata* stages  neap_stage[n]; keeps the modes alive
---@return number n
function M.read(profile)
  local list = type(profile) == "table" and profile.stages
  if type(list) ~= "table" or #list == 0 then
    fail.usage("a profile is a table { stages = { { name =, out_bytes =, ... }, ... } } with at "
      .. "least one stage; found %s", type(profile) == "table" and "no stages" or shown(profile))
  end
  local stages, names = ffi.new("neap_stage[?]", #list), {}
  local modes = {}
  for i, stage in ipairs(list) do
    modes[#modes + 1] = read_stage(i, stage, stages[i - 1], names)
  end
  anchors[stages] = modes
  return stages, #list
end

--- The number of a stage's mode as C counts: nil is 0 (store all); nil for a name it has not.
---@param stage neap.StageProfile
---@param name string|nil
---@return number|nil
function M.mode_number(stage, name)
  if name == nil then return 0 end
  for m, mode in ipairs(stage.modes or {}) do
    if mode.name == name then return m end
  end
  return nil
end

--- The name of a stage's mode; nil for 0 (store all) and for a number it has not.
---@param stage neap.StageProfile
---@param m number
---@return string|nil
function M.mode_name(stage, m)
  local mode = stage.modes and stage.modes[m]
  return mode and mode.name
end

return M
