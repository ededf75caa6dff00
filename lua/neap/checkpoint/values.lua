-- Arguments and results of checkpointed regions: tensors found inside plain tables, at any depth,
-- in an order that does not depend on the table.
local fail = require("neap.fail")
local tensor = require("neap.tensor")

local M = {}

local is_tensor = tensor.is
local MOST_NESTED = 32
local RANK = { number = 1, string = 2, boolean = 3 }

local function is_plain(value) return type(value) == "table" and getmetatable(value) == nil end
M.is_plain = is_plain

local function before(a, b)
  local x, y = RANK[type(a)] or 4, RANK[type(b)] or 4
  if x ~= y then return x < y end
  if x == 3 then return not a and b end
  if x == 4 then return false end
  return a < b
end

local function keys_of(t)
  local keys = {}
  for key in pairs(t) do
    if RANK[type(key)] then keys[#keys + 1] = key end
  end
  table.sort(keys, before)
  return keys
end

local function check_depth(level)
  if level > MOST_NESTED then
    fail.usage("checkpoint: tables are nested more than %d deep, or contain themselves",
      MOST_NESTED)
  end
end

local function visit(value, fn, level)
  if is_tensor(value) then
    fn(value)
  elseif is_plain(value) then
    check_depth(level)
    for _, key in ipairs(keys_of(value)) do visit(value[key], fn, level + 1) end
  end
end

--- Calls fn(tensor) for every tensor among the values, in order; one that occurs twice, twice.
---@param values table
---@param n integer
function M.each(values, n, fn)
  for i = 1, n do visit(values[i], fn, 1) end
end

local function replace(value, fn, level)
  if is_tensor(value) then return fn(value) end
  if not is_plain(value) then return value end
  check_depth(level)
  local copy = {}
  for key, inner in pairs(value) do copy[key] = replace(inner, fn, level + 1) end
  return copy
end

--- A copy of the values with every tensor replaced by fn(tensor). Plain tables are copied, anything
--- else is passed on as it is.
---@param values table
---@param n integer
---@return table
function M.map(values, n, fn)
  local out = {}
  for i = 1, n do out[i] = replace(values[i], fn, 1) end
  return out
end

local function fill(value, marks, fn, level)
  if marks[value] then return fn(marks[value]) end
  if not is_plain(value) then return value end
  local copy = {}
  for key, inner in pairs(value) do copy[key] = fill(inner, marks, fn, level + 1) end
  return copy
end

--- The other way: a copy of what map made, with every mark replaced by fn(its number).
---@param marks table<any, integer>
function M.fill(values, n, marks, fn)
  local out = {}
  for i = 1, n do out[i] = fill(values[i], marks, fn, 1) end
  return out
end

return M
