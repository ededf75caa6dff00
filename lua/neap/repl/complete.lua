-- What Tab may put in place of the word before the cursor: names, fields, methods, and inside
-- quotes policies, stages, words or files. Nothing is called to find out.
local ffi = require("ffi")
local grammar = require("neap.checkpoint.grammar")
local lfs = require("lfs")
local tensor = require("neap.tensor")

local M = {}

local KEYWORDS = { "and", "break", "do", "else", "elseif", "end", "false", "for", "function",
  "goto", "if", "in", "local", "nil", "not", "or", "repeat", "return", "then", "true", "until",
  "while" }

-- text keys of a table and of the tables behind it; for methods only what can be called
local function keys_of(value, methods_only)
  local seen, list, depth = {}, {}, 0
  while type(value) == "table" and depth < 8 do
    for key, inner in next, value do
      local fits = type(key) == "string" and key:find("^[%a_][%w_]*$") and not seen[key]
      if fits and (not methods_only or type(inner) == "function") then
        seen[key] = true
        list[#list + 1] = key
      end
    end
    local meta = debug.getmetatable(value)
    value = type(meta) == "table" and rawget(meta, "__index") or nil
    depth = depth + 1
  end
  return list
end

local function raw_field(value, key)
  local depth = 0
  while type(value) == "table" and depth < 8 do
    local found = rawget(value, key)
    if found ~= nil then return found end
    local meta = debug.getmetatable(value)
    value = type(meta) == "table" and rawget(meta, "__index") or nil
    depth = depth + 1
  end
  return nil
end

-- "model.stages": a path of names; the session's environment itself may look names up
local function resolve(evaluator, path)
  local value
  for part in path:gmatch("[^%.]+") do
    if value == nil then value = evaluator.env[part] else value = raw_field(value, part) end
    if value == nil then return nil end
  end
  return value
end

local function fields(evaluator, path, separator)
  local value = resolve(evaluator, path)
  if type(value) == "string" then value = string end
  if type(value) == "cdata" and ffi.istype("neap_tensor", value) then value = tensor.methods end
  return keys_of(value, separator == ":")
end

local function stage_names(evaluator)
  local model = resolve(evaluator, "model")
  local list = {}
  for i, stage in ipairs(type(model) == "table" and rawget(model, "stages") or {}) do
    list[i] = stage.name
  end
  return list
end

local function policies()
  local list = {}
  for i, name in ipairs(grammar.ORDER) do
    list[i] = name .. (grammar.WORDS[name].form and ":" or "")
  end
  for _, text in ipairs({ "segments:auto", "optimal:auto" }) do list[#list + 1] = text end
  return list
end

local function files(prefix)
  local directory, list = prefix:match("^(.*/)") or "", {}
  pcall(function()
    for name in lfs.dir(directory == "" and "." or directory) do
      if name:sub(1, 1) ~= "." then
        local path = directory .. name
        list[#list + 1] = path .. (lfs.attributes(path, "mode") == "directory" and "/" or "")
      end
    end
  end)
  return list
end

-- where the last open quote's text begins, and the word that is called with it; false in a comment
local function open_string(before)
  local quote, start, at = nil, nil, 1
  while at <= #before do
    local c = before:sub(at, at)
    if quote and c == "\\" then
      at = at + 1
    elseif quote and c == quote then
      quote = nil
    elseif not quote and (c == '"' or c == "'") then
      quote, start = c, at + 1
    elseif not quote and before:sub(at, at + 1) == "--" then
      return false
    end
    at = at + 1
  end
  if not quote then return nil end
  local called = ""
  for name in before:sub(1, start - 2):gmatch("([%a_][%w_]*)%s*[%({%s]") do called = name end
  return start, called ~= "" and called or before:sub(1, start - 2):match("([%a_][%w_]*)%s*$")
end

local POLICY_WORDS = { policy = true, compare = true, plan = true }

local function in_string(evaluator, text, called)
  if called == "help" then return text, keys_of(evaluator.words) end
  if called == "load" or called == "save" then return text, files(text) end
  local list, last = text:match("^(by_name:.-)([^:,]*)$")
  if POLICY_WORDS[called] and not list then return text, policies() end
  return last or text, stage_names(evaluator)
end

local function starting_with(list, prefix)
  local out, seen = {}, {}
  for _, word in ipairs(list) do
    if word:sub(1, #prefix) == prefix and not seen[word] then
      seen[word] = true
      out[#out + 1] = word
    end
  end
  table.sort(out)
  return out
end

--- What may stand in place of the last bytes before the cursor.
---@param evaluator neap.Evaluator
---@param before string  the line up to the cursor
---@return string word  the bytes that would be replaced
---@return string[] candidates  sorted; each begins with the word
function M.candidates(evaluator, before)
  local start, called = open_string(before)
  if start == false then return "", {} end
  if start then
    local word, list = in_string(evaluator, before:sub(start), called)
    return word, starting_with(list, word)
  end
  local path, separator, part = before:match("([%a_][%w_%.]*)([%.:])([%w_]*)$")
  if path then return part, starting_with(fields(evaluator, path, separator), part) end
  local word = before:match("[%a_][%w_]*$") or ""
  if before:find("[%w_%)%]}%.:'\"]$") and word == "" then return "", {} end
  local list = { unpack(KEYWORDS) }
  for _, name in ipairs(evaluator:names()) do
    if name:find("^[%a_][%w_]*$") then list[#list + 1] = name end
  end
  return word, starting_with(list, word)
end

--- The longest text that all candidates begin with.
---@param candidates string[]
---@return string
function M.common(candidates)
  local common = candidates[1] or ""
  for _, word in ipairs(candidates) do
    while word:sub(1, #common) ~= common do common = common:sub(1, -2) end
  end
  return common
end

return M
