-- The trials of a sweep: every combination of the axes' values over one config.
local ffi_neap = require("neap.ffi")
local config = require("neap.config")
local fail = require("neap.fail")
local policy = require("neap.checkpoint.policy")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

local MOST_TRIALS = 10000

---@class neap.sweep.Trial
---@field index integer  from 1, in the grid's order
---@field id string      hash of the resolved config
---@field config neap.Config  without `out`
---@field point table<string, string>  the grid's values by key, as text
---@field text string    "checkpoint=none seed=1"

local hex = ffi.new("char[33]")

---@param text string
---@return string  16 hexadecimal digits
function M.hash(text)
  check(C.neap_hash_bytes(text, #text, hex))
  return ffi.string(hex, 16)
end

local function count(axes)
  local n = 1
  for _, axis in ipairs(axes) do n = n * #axis.values end
  if n > MOST_TRIALS then
    fail.usage("--grid: %.0f trials are too many; the most is %d", n, MOST_TRIALS)
  end
  return n
end

-- the values of combination number `index`, counted from 0, the last axis fastest
local function point_of(axes, index)
  local options, point, words = {}, {}, {}
  for a = #axes, 1, -1 do
    local axis = axes[a]
    local value = axis.values[index % #axis.values + 1]
    index = math.floor(index / #axis.values)
    options[axis.key], point[axis.key] = value.value, value.text
    table.insert(words, 1, axis.key .. "=" .. value.text)
  end
  return options, point, table.concat(words, " ")
end

local function one(path, sets, axes, index)
  local options, point, text = point_of(axes, index - 1)
  local ok, result = pcall(function()
    -- grid values stand where options do: another chunk is not another global batch
    local loaded = config.load(path, sets, options)
    policy.parse(loaded.checkpoint, 2 ^ 53)
    return loaded
  end)
  if not ok then
    -- a mistake in the file or the sets is in every trial
    local about_all = not fail.is(result, "usage")
    error(about_all and result or fail.with_place("trial " .. text, result), 0)
  end
  result.out = nil
  return { index = index, id = M.hash(config.dump(result)), config = result, point = point,
    text = text }
end

-- a value that is both set and swept would be a setting without any effect
local function check_sets(sets, axes)
  for _, set in ipairs(sets) do
    local key = set:match("^%s*([^=%s]+)%s*=")
    if key == "out" then
      fail.usage("--set %s: a sweep places its trials itself; name --out", set)
    end
    for _, axis in ipairs(axes) do
      if axis.key == key then fail.usage("--set %s: --grid has the key %s too", set, key) end
    end
  end
end

--- All trials, each with its whole config. Raises "usage" for what is wrong in any of them.
---@param path string  of the config
---@param sets string[]
---@param axes neap.sweep.Axis[]
---@return neap.sweep.Trial[]
function M.of(path, sets, axes)
  check_sets(sets, axes)
  config.load(path, sets, {}) -- what is wrong without any grid is said without any trial
  local list, by_id = {}, {}
  for index = 1, count(axes) do
    local trial = one(path, sets, axes, index)
    local twin = by_id[trial.id]
    if twin then
      fail.usage("trials '%s' and '%s' are the same run; expected values that make a difference",
        twin.text, trial.text)
    end
    by_id[trial.id] = trial
    list[index] = trial
  end
  return list
end

return M
