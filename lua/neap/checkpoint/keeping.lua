-- Selective keeping: the ops whose outputs a stage keeps, while it recomputes all others. Such a
-- choice is a MODE of the stages, measured under its name by neap.profile.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local mode_module = require("neap.checkpoint.mode")

local C, ffi = N.C, N.ffi
local M = {}

-- names of ops and of groups of ops, sorted
local function known_words()
  local known, list, i = {}, {}, 0
  for group in pairs(mode_module.groups) do known[group] = true end
  while C.neap_op_name(i) ~= nil do
    known[ffi.string(C.neap_op_name(i))] = true
    i = i + 1
  end
  known.checkpoint = nil -- a region of ops, not one of them
  for word in pairs(known) do list[#list + 1] = word end
  table.sort(list)
  return list, known
end

local function of_list(shown, list)
  if #list == 0 then
    fail.usage("%s: expected names of ops or groups, e.g. selective:matmul", shown)
  end
  local words, known = known_words()
  local seen, names = {}, {}
  for _, word in ipairs(list) do
    if type(word) ~= "string" or not known[word] then
      fail.usage("%s: %s", shown, fail.unknown("op", argument.word(word), words))
    end
    if not seen[word] then names[#names + 1] = word end
    seen[word] = true
  end
  return table.concat(names, ",")
end

--- The mode of a `keep`: "matmul", "linear,attention", a list of names, or a function that is asked
--- about each op (a neap.ModeOp) whether its output is kept.
---@param shown string  what an error begins with
---@param keep string[]|function
---@param name string|nil  of the mode, for a function; "function" when not given
---@return string|neap.Mode
function M.mode(shown, keep, name)
  if type(keep) == "function" then
    if name ~= nil and (type(name) ~= "string" or not name:find("^[%w_.-]+$")) then
      fail.usage("%s: name is %s; expected letters, digits, '_', '.', '-'", shown,
        argument.shown(name))
    end
    return { name = name or "function", keep = keep }
  end
  if name ~= nil then fail.usage("%s: a name is for a function, not for a list of ops", shown) end
  if type(keep) ~= "table" then
    fail.usage("%s: keep is %s; expected names of ops or groups, or a function of an op",
      shown, argument.shown(keep))
  end
  return of_list(shown, keep)
end

--- The name of a mode, as actions carry it.
---@param mode string|neap.Mode
---@return string
function M.name(mode) return type(mode) == "table" and mode.name or mode end

--- Adds a mode to those of a policy; two functions under one name are an error.
---@param modes (string|neap.Mode)[]
---@param mode string|neap.Mode
---@param shown string
function M.add(modes, mode, shown)
  for _, other in ipairs(modes) do
    if M.name(other) == M.name(mode) then
      local same = other == mode or type(other) == "table" and type(mode) == "table"
        and other.keep == mode.keep
      if not same then
        fail.usage("%s: two different choices are both called '%s'; give each a name = \"...\"",
          shown, M.name(mode))
      end
      return
    end
  end
  modes[#modes + 1] = mode
end

return M
