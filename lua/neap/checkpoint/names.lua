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

--- Raises that a name matches no stage, with close ones.
---@param who string  "by_name:blok"
---@param prefix string
---@param stages { name: string }[]
function M.refuse(who, prefix, stages)
  fail.usage("%s matches no stage; %s", who, close_names(prefix, stages))
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
    if not found then M.refuse("by_name:" .. prefix, prefix, stages) end
  end
  return drops
end

--- Where segments start that begin at these stages, from 0: a whole name, else the first stage that
--- goes on after it. The chain's first stage starts one in any case.
---@param list string[]
---@param stages { name: string }[]
---@return integer[] starts  rising, the first one is 0
function M.starts(list, stages)
  local starts, by = { 0 }, {}
  for _, name in ipairs(list) do
    local at
    for i, stage in ipairs(stages) do
      if stage.name == name then at = i - 1 end
    end
    for i = #stages, at and #stages + 1 or 1, -1 do
      if M.matches(name, stages[i].name) then at = i - 1 end
    end
    if not at then M.refuse("segments: start '" .. name .. "'", name, stages) end
    if by[at] then
      fail.usage("segments: '%s' and '%s' both start at stage %d (%s)", by[at], name, at,
        stages[at + 1].name)
    end
    by[at] = name
    if at > 0 then starts[#starts + 1] = at end
  end
  table.sort(starts)
  return starts
end

return M
