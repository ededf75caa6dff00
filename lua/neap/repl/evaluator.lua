-- The core of the REPL, without a terminal: takes lines, runs them, prints what they give. An error
-- is one sentence and leaves everything else as it was.
local fail = require("neap.fail")
local show = require("neap.repl.show")
local source = require("neap.repl.source")

local M = {}

---@class neap.Evaluator
---@field env table           globals of the session; words stand behind them, _G behind those
---@field words table<string, function>
---@field pending string|nil  lines of a text that is not whole yet
---@field value_names string[]|nil  of what `values` knows
---@field say fun(text: string)        takes what is printed
---@field complain fun(text: string)   takes the sentence of an error
local Evaluator = {}
Evaluator.__index = Evaluator

local CHUNK = "=line"
local COUNT = 10000
local STOPPED = "stopped by Ctrl-C"

-- a word runs without the hook: it stops by itself, where its work is whole. Setting the hook again
-- starts its count again, so a loop of words asks before each
local function unhooked(self, fn)
  local function finish(hook, mask, count, ok, ...)
    debug.sethook(hook, mask, count)
    if not ok then error((...), 0) end
    return ...
  end
  return function(...)
    if self.stop_asked and self.stop_asked() then fail.raise("interrupted", STOPPED) end
    local hook, mask, count = debug.gethook()
    debug.sethook()
    return finish(hook, mask, count, pcall(fn, ...))
  end
end

---@param o { words: table<string, function>, values: nil|fun(name: string): any,
---  say: fun(text: string), complain: fun(text: string), stop_asked: nil|fun(): boolean }
---  values: what else a name may be, asked at each use; stop_asked: polled while typed code runs
---@return neap.Evaluator
function M.new(o)
  local self = setmetatable({ words = {}, say = o.say, complain = o.complain,
    stop_asked = o.stop_asked }, Evaluator)
  for name, fn in pairs(o.words) do self.words[name] = unhooked(self, fn) end
  self.env = setmetatable({}, { __index = function(_, name)
    local value = self.words[name]
    if value == nil and o.values then value = o.values(name) end
    if value == nil then value = _G[name] end
    return value
  end })
  self.env._G = self.env
  self.env.print = function(...)
    local parts = {}
    for i = 1, select("#", ...) do parts[i] = tostring((select(i, ...))) end
    self.say(table.concat(parts, "\t"))
  end
  return self
end

--- Names that a line may use: the session's own, words, then Lua's; sorted.
---@return string[]
function Evaluator:names()
  local seen, list = {}, {}
  local function add(name)
    if type(name) == "string" and not seen[name] then
      seen[name] = true
      list[#list + 1] = name
    end
  end
  for _, names in ipairs({ self.env, self.words, _G }) do
    for name in pairs(names) do add(name) end
  end
  for _, name in ipairs(self.value_names or {}) do add(name) end
  table.sort(list)
  return list
end

-- only where typed code itself is running: inside the library nothing is cut in half
local function hook_of(self)
  return function()
    if not self.stop_asked() then return end
    local info = debug.getinfo(2, "S")
    if info and info.source == CHUNK then
      debug.sethook()
      fail.raise("interrupted", STOPPED)
    end
  end
end

local function nearest(name, list)
  local near = #name > 2 and fail.nearest(name, list)
  return near and near ~= name and string.format(", did you mean '%s'?", near) or ""
end

-- "neap.segmnts": the keys of what stands before the last dot or colon
local function keys_before(self, text, field)
  local path = text:match("([%a_][%w_%.]*)[%.:]" .. field .. "%f[^%w_]")
  local value = path and self.env or nil
  for part in (path or ""):gmatch("[^%.]+") do
    local ok, inner = pcall(function() return value[part] end)
    value = ok and inner or nil
  end
  local keys = {}
  if type(value) == "table" then
    local meta = getmetatable(value)
    local more = type(meta) == "table" and type(meta.__index) == "table" and meta.__index or {}
    for _, list in ipairs({ value, more }) do
      for key in pairs(list) do
        if type(key) == "string" then keys[#keys + 1] = key end
      end
    end
  end
  table.sort(keys)
  return keys
end

-- what Lua says about a name that means nothing, with the nearest that does
local function explain(self, text, message)
  local kind, name = message:match("attempt to %a+ (%a+) '([^']+)' %(a nil value%)")
  if kind == "global" then
    local near = nearest(name, self:names())
    return string.format("unknown name '%s'%s help() lists the words", name,
      near ~= "" and near or ";")
  elseif kind == "field" or kind == "method" then
    local near = nearest(name, keys_before(self, text, name))
    if near ~= "" then return string.format("unknown %s '%s'%s", kind, name, near) end
  end
  return message
end

--- The sentence of an error, on one line.
---@param err any
---@param text string  what was typed
---@return string
function Evaluator:sentence(err, text)
  local ok, message = pcall(fail.message, err)
  if not ok then message = "an error whose __tostring fails" end
  if not fail.is(err) then
    message = explain(self, text, message:match("^[^\n]*"))
    message = message:gsub("^line:(%d+): ", text:find("\n", 1, true) and "line %1: " or "", 1)
  end
  return (message:gsub("%s*\n%s*", " "))
end

local function call(self, chunk)
  jit.off(chunk, true) -- compiled loops never ask whether to stop
  local function packed(...) return { n = select("#", ...), ... } end
  if self.stop_asked then debug.sethook(hook_of(self), "", COUNT) end
  local ok, result = pcall(function() return packed(chunk()) end)
  debug.sethook()
  return ok, result
end

local function refuse(self, err, text)
  self.error = err
  self.complain("error: " .. self:sentence(err, text))
  return "error"
end

-- a name alone that means nothing is a slip of the finger
local function check_name(self, text)
  local name = text:match("^%s*=?%s*([%a_][%w_]*)%s*;?%s*$")
  if name and self.env[name] == nil and name ~= "nil" and name ~= "_" then
    local near = nearest(name, self:names())
    if near ~= "" then fail.usage("unknown name '%s'%s", name, near) end
  end
end

-- "stages" without brackets
local function word_text(self, value)
  for name, fn in pairs(self.words) do
    if fn == value then
      return string.format("%s is a word: call it; help \"%s\" says how", name, name)
    end
  end
  return nil
end

local function run(self, chunk, text)
  local ok, err = pcall(check_name, self, text)
  if not ok then return refuse(self, err, text) end
  local result
  ok, result = call(self, chunk)
  if not ok then return refuse(self, result, text) end
  if result.n > 0 then
    if result.n > 1 or result[1] ~= nil then self.env._ = result[1] end
    self.say(result.n == 1 and type(result[1]) == "function" and word_text(self, result[1])
      or show.values(result, result.n))
  end
  return "ok"
end

--- One more line. "more": it is the beginning of something; "error": its sentence was said, and
--- nothing has changed.
---@param line string
---@return "ok"|"more"|"error"
function Evaluator:feed(line)
  local text = self.pending and self.pending .. "\n" .. line or line
  self.pending, self.error = nil, nil
  local chunk, message, is_incomplete = source.compile(text, CHUNK, self.env)
  if chunk then return run(self, chunk, text) end
  if is_incomplete then
    self.pending = text
    return "more"
  end
  return refuse(self, message, text)
end

--- The end of all lines: what is not whole by now is an error.
---@return "ok"|"error"
function Evaluator:finish()
  local text = self.pending
  self.pending = nil
  if not text then return "ok" end
  return refuse(self, "the last lines are not whole: something is still open", text)
end

--- Forgets what is not whole yet.
function Evaluator:cancel() self.pending = nil end

return M
