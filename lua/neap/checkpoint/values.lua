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

-- keys in order, then those that have none
local function keys_of(t)
  local keys, others = {}, {}
  for key in pairs(t) do
    local list = RANK[type(key)] and keys or others
    list[#list + 1] = key
  end
  table.sort(keys, before)
  local n_ordered = #keys
  for _, key in ipairs(others) do keys[#keys + 1] = key end
  return keys, n_ordered
end

local function check_depth(level)
  if level > MOST_NESTED then
    fail.usage("checkpoint: tables are nested more than %d deep, or contain themselves",
      MOST_NESTED)
  end
end

local function visit(value, fn, level, is_ordered)
  if is_tensor(value) then
    if not is_ordered then
      fail.usage("checkpoint: a tensor is under a key that is no number, text or boolean; such "
        .. "keys have no order")
    end
    fn(value)
  elseif is_plain(value) then
    check_depth(level)
    local keys, n_ordered = keys_of(value)
    for k, key in ipairs(keys) do
      visit(value[key], fn, level + 1, is_ordered and k <= n_ordered)
    end
  end
end

--- Calls fn(tensor) for every tensor among the values, in order; one that occurs twice, twice.
---@param values table
---@param n integer
function M.each(values, n, fn)
  for i = 1, n do visit(values[i], fn, 1, true) end
end

-- tables that occur twice are copied once
local function replace(value, fn, level, copies)
  if is_tensor(value) then return fn(value) end
  if not is_plain(value) then return value end
  if copies[value] then return copies[value] end
  check_depth(level)
  local copy = {}
  copies[value] = copy
  for key, inner in pairs(value) do copy[key] = replace(inner, fn, level + 1, copies) end
  return copy
end

--- A copy of the values with every tensor replaced by fn(tensor). Plain tables are copied, anything
--- else is passed on as it is.
---@param values table
---@param n integer
---@return table
function M.map(values, n, fn)
  local out, copies = {}, {}
  for i = 1, n do out[i] = replace(values[i], fn, 1, copies) end
  return out
end

local function fill(value, marks, fn, copies)
  if value == nil then return nil end
  if marks[value] then return fn(marks[value]) end
  if not is_plain(value) then return value end
  if copies[value] then return copies[value] end
  local copy = {}
  copies[value] = copy
  for key, inner in pairs(value) do copy[key] = fill(inner, marks, fn, copies) end
  return copy
end

--- The other way: a copy of what map made, with every mark replaced by fn(its number).
---@param marks table<any, integer>
function M.fill(values, n, marks, fn)
  local out, copies = {}, {}
  for i = 1, n do out[i] = fill(values[i], marks, fn, copies) end
  return out
end

return M
