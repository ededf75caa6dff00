-- Grids as text or as a file: each axis is a key of the config and the values it takes.
-- key=a,b,c   key=64MiB:512MiB:*2   key=1:9:+2   'key=[by_name:a,b, none]'   FILE.lua
local bytes = require("neap.bytes")
local config = require("neap.config")
local fail = require("neap.fail")
local files = require("neap.files")
local policy = require("neap.checkpoint.policy")
local sandbox = require("neap.config.sandbox")
local schema = require("neap.config.schema")

local M = {}

local MOST_VALUES = 10000

---@class neap.sweep.Value
---@field text string  as it is shown and stored
---@field value any    for config.load's options: text, or plain data of a grid file

---@class neap.sweep.Axis
---@field key string
---@field values neap.sweep.Value[]

-- ranges of numbers keep their unit where both ends have the same one
local function read_end(text, who)
  local number, unit = text:match("^([%d.]+)(%a*)$")
  if not unit then number, unit = text:match("^%-?[%d.]+[eE]?[-+]?%d*$"), "" end
  local value = number and tonumber(number)
  if not value or unit ~= "" and not bytes.parse(text) then
    fail.usage("%s: '%s' is no end of a range; expected a number or bytes, like 1:9:+2 or "
      .. "64MiB:512MiB:*2", who, text)
  end
  return value, unit
end

-- as a person would write it: 0.1 + 2 * 0.1 is 0.3
local function number_text(value)
  return string.format(value % 1 == 0 and math.abs(value) < 2 ^ 53 and "%.0f" or "%.12g", value)
end

local function read_range(first, last, operator, by, who)
  local from, from_unit = read_end(first, who)
  local to, to_unit = read_end(last, who)
  local step, step_unit = read_end(by, who)
  if from_unit ~= to_unit or operator == "+" and step_unit ~= from_unit
    or operator == "*" and step_unit ~= "" then
    fail.usage("%s: expected both ends%s in one unit, like 64MiB:512MiB:%s", who,
      operator == "+" and " and the step" or "", operator == "+" and "+64MiB" or "*2")
  end
  local grows = operator == "+" and step > 0 or operator == "*" and step > 1 and from > 0
  if not grows or to < from then
    fail.usage("%s: this range does not rise from its start to its end", who)
  end
  local out, i = {}, 0
  repeat
    -- not by adding up, which would carry every rounding on
    local value = operator == "+" and from + i * step or from * step ^ i
    local beyond = value > to * (1 + 1e-12) + (to == 0 and 1e-300 or 0)
    if not beyond then out[#out + 1] = number_text(value) .. from_unit end
    i = i + 1
    if i > MOST_VALUES then fail.usage("%s: more than %d values", who, MOST_VALUES) end
  until beyond
  return out
end

local RANGED = { integer = true, number = true, chunk = true, size = true }

-- "segments:1:9:+2" is a range behind a policy's name
local function expand(spec, item, who)
  local prefix, range = "", item
  if spec.type == "checkpoint" then prefix, range = item:match("^(%a[%w_]*:)(.*)$") end
  local first, last, operator, by = (range or ""):match("^([^:]+):([^:]+):([*+])([^:]+)$")
  if not first or not (RANGED[spec.type] or prefix ~= "") then return { item } end
  local out = read_range(first, last, operator, by, who)
  for i, text in ipairs(out) do out[i] = prefix .. text end
  return out
end

-- in brackets a comma and a space separate, so that values may hold commas
local function items_of(text, who)
  local inner, out = text:match("^%s*%[(.*)%]%s*$"), {}
  if not inner and text:find("^%s*%[") then fail.usage("%s: the ']' is missing", who) end
  local rest = (inner or text) .. (inner and ", " or ",")
  for item in rest:gmatch(inner and "(.-),%s+" or "([^,]*),") do
    item = item:match("^%s*(.-)%s*$")
    if item == "" then fail.usage("%s: a value is empty; expected key=a,b,c", who) end
    out[#out + 1] = item
  end
  return out, inner ~= nil
end

local function spec_of(key, who)
  local spec = schema.BY_NAME[key]
  if not spec then fail.usage("%s: %s", who, fail.unknown("key", key, schema.NAMES)) end
  if key == "out" then fail.usage("%s: a sweep places its trials itself; name --out", who) end
  return spec
end

local function check_policy(value, who)
  local ok, err = pcall(policy.parse, value, 2 ^ 53)
  if not ok then error(fail.with_place(who, err), 0) end
end

local function add(axis, text, value, who)
  for _, other in ipairs(axis.values) do
    if other.text == text then fail.usage("%s: the value %s is there twice", who, text) end
  end
  if axis.key == "checkpoint" then check_policy(value, who) end
  axis.values[#axis.values + 1] = { text = text, value = value }
end

local HINTS = {
  betas = "; as a grid: 'betas=[0.9,0.95, 0.9,0.99]'",
  bracketed = "; in brackets a comma and a space separate values",
}

local function axis_of_text(key, text, who)
  local spec, axis = spec_of(key, who), { key = key, values = {} }
  local items, bracketed = items_of(text, who)
  for _, item in ipairs(items) do
    for _, one in ipairs(expand(spec, item, who)) do
      local ok, err = pcall(config.value, key, one, who)
      if not ok then
        local hint = bracketed and one:find(",") and HINTS.bracketed or HINTS[key] or ""
        if fail.is(err, "usage") then fail.raise("usage", err.message .. hint) end
        error(err, 0)
      end
      add(axis, one, one, who)
    end
  end
  return axis
end

local function axis_of_list(key, list, who)
  local spec, axis = spec_of(key, who), { key = key, values = {} }
  if type(list) == "string" then return axis_of_text(key, list, who .. ", " .. key) end
  if type(list) ~= "table" or #list == 0 then
    fail.usage("%s: %s is %s; expected a list of values or text like '1:9:+2'", who, key,
      schema.shown(list))
  end
  for i, value in ipairs(list) do
    local objection = schema.objection(spec, value)
    if objection then fail.raise("usage", string.format("%s, value %d: %s", who, i, objection)) end
    add(axis, config.source(value), value, who)
  end
  return axis
end

-- keys of a Lua table have no order: the config's own one
local function axes_of_file(path)
  local who = string.format("grid '%s'", path)
  local text, message = files.read(path, sandbox.MOST_BYTES)
  if not text then fail.raise("failure", "grid: " .. message) end
  local lists, axes = sandbox.evaluate(text, who), {}
  for key in pairs(lists) do
    if type(key) ~= "string" then
      fail.usage("%s: it holds a value without a name, expected key = { a, b, c }", who)
    end
    spec_of(key, who)
  end
  for _, name in ipairs(schema.NAMES) do
    if lists[name] ~= nil then axes[#axes + 1] = axis_of_list(name, lists[name], who) end
  end
  return axes
end

--- The axes of all grids, in their order; the first varies slowest. Raises "usage".
---@param grids string[]  "key=values", or the path of a Lua file
---@return neap.sweep.Axis[]
function M.read(grids)
  local axes, seen = {}, {}
  for _, grid in ipairs(grids) do
    local key, text = grid:match("^%s*([%w_%-]+)%s*=(.*)$")
    local list
    if key then
      list = { axis_of_text(key, text, "--grid " .. grid) }
    elseif grid:find("%.lua$") then
      list = axes_of_file(grid)
    else
      fail.usage("--grid: '%s' names no values; expected key=a,b,c or a file.lua", grid)
    end
    for _, axis in ipairs(list) do
      if seen[axis.key] then fail.usage("--grid: the key %s is there twice", axis.key) end
      seen[axis.key] = true
      axes[#axes + 1] = axis
    end
  end
  if #axes == 0 then fail.usage("--grid is missing; expected --grid key=a,b,c") end
  return axes
end

return M
