-- Stages by name, as configs say them: a whole name, or its part before a separator.
local fail = require("neap.fail")

local M = {}

local SEPARATORS = "[%./_:%-]"

--- Whether the name is the prefix, or goes on after it with a separator: block.1 takes block.1 and
--- block.1.attn, not block.10.
---@param prefix string
---@param name string
---@return boolean
function M.matches(prefix, name)
  if name:sub(1, #prefix) ~= prefix then return false end
  return #name == #prefix or name:find(SEPARATORS, #prefix + 1) == #prefix + 1
    or prefix:find(SEPARATORS .. "$") ~= nil
end

-- "; close: block.1, block.10", or the first few of all
local function close_names(prefix, stages)
  local rest, near, heads = {}, {}, {}
  local function add(head, name)
    if heads[head] then return end
    heads[head] = true
    local list = head == name and head:sub(1, #prefix) == prefix and near or rest
    list[#list + 1] = head
  end
  for _, stage in ipairs(stages) do
    for stop in stage.name:gmatch("()" .. SEPARATORS) do add(stage.name:sub(1, stop - 1)) end
    add(stage.name, stage.name)
  end
  for _ = #near + 1, 3 do
    local name = fail.nearest(prefix, rest)
    for i = #rest, 1, -1 do
      if rest[i] == name then table.remove(rest, i) end
    end
    near[#near + 1] = name
  end
  if #near > 0 then return "close: " .. table.concat(near, ", ", 1, math.min(#near, 6)) end
  local names = {}
  for i = 1, math.min(#stages, 12) do names[i] = stages[i].name end
  return "stages: " .. table.concat(names, ", ") .. (#stages > 12 and ", ..." or "")
end

--- Which stages the prefixes take; one that takes none is a usage error that lists close names.
---@param prefixes string[]
---@param stages { name: string }[]
---@return boolean[]
function M.drops(prefixes, stages)
  local drops = {}
  for i = 1, #stages do drops[i] = false end
  for _, prefix in ipairs(prefixes) do
    local found = false
    for i, stage in ipairs(stages) do
      if M.matches(prefix, stage.name) then drops[i], found = true, true end
    end
    if not found then
      fail.usage("by_name:%s matches no stage; %s", prefix, close_names(prefix, stages))
    end
  end
  return drops
end

return M
