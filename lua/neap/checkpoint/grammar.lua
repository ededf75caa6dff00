-- The words that a policy is written with, and how the argument of each is read.
local argument = require("neap.argument")
local bytes = require("neap.bytes")
local fail = require("neap.fail")
local keeping = require("neap.checkpoint.keeping")
local whole = require("neap.checkpoint.whole")

local M = {}

local function whole_value(shown, value, low, range)
  if not whole.is(value, low) then fail.usage("%s: expected a whole number, %s", shown, range) end
  return value
end

local function read_every_n(shown, value)
  if value == 0 then fail.usage("%s would drop nothing: say 'none' (allowed: 1 to 2^53)", shown) end
  return { n = whole_value(shown, value, 1, "1 to 2^53") }, value
end

local function read_segments(shown, value)
  if value == "auto" then return { k = "auto" }, value end
  return { k = whole_value(shown, value, 1, "1 to the number of stages, or auto") }, value
end

local function read_revolve(shown, value)
  return { slots = whole_value(shown, value, 1, "1 to 2^53 (boundaries kept at once)") }, value
end

local function read_names(shown, list)
  if type(list) ~= "table" or #list == 0 then
    fail.usage("%s: expected the names of stages, e.g. block.0,block.1", shown)
  end
  for i, name in ipairs(list) do
    if type(name) ~= "string" or name == "" or name:find("[,%z]") then
      fail.usage("%s: name %d is '%s'; expected a stage's name, or its part before a separator",
        shown, i, argument.word(name))
    end
  end
  return { unpack(list) }
end

local function read_by_name(shown, list)
  local copy = read_names(shown, list)
  return { names = copy }, table.concat(copy, ",")
end

local function read_starts(shown, list)
  local copy = read_names(shown, list)
  return { starts = copy }, nil, "segments{" .. table.concat(copy, ",") .. "}"
end

local function read_greedy(shown, value, available)
  local budget, message = bytes.parse(value, available)
  if not budget then fail.usage("%s: %s", shown, message) end
  return { budget = budget }, budget
end

local function read_optimal(shown, value, available)
  if value == "auto" then return { budget = "auto" }, value end
  local budget, message = bytes.parse(value, available)
  if not budget then fail.usage("%s: %s, or auto", shown, message) end
  return { budget = budget }, budget
end

local function split(text)
  local list = {}
  for name in (text .. ","):gmatch("([^,]*),") do list[#list + 1] = name:match("^%s*(.-)%s*$") end
  return list
end

local function read_keep(shown, keep, _, spec)
  local name = spec and spec.name
  if type(keep) == "string" then keep = split(keep) end
  local mode = keeping.mode(shown, keep, name)
  if type(mode) == "table" then return { mode = mode }, nil, "selective:" .. mode.name end
  return { mode = mode }, mode
end

-- digits only: "1e3", "0x2", "2.5" and "2 " are no numbers of layers
local function digits(text) return text:match("^%-?%d+$") and tonumber(text) or text end

---@class neap.grammar.Word
---@field form string|nil  how its argument looks; nil: it takes none
---@field keys table<string, function>|nil  in a table: key -> its reader, one of them is given
---@field first string|nil  the key that a text's argument is
---@field from_text nil|fun(text: string): any
---@field more string[]|nil  further keys of the table

--- By name. A reader gives the policy's fields, the argument in canonical text (nil: it is none
--- that text could say) and then a text to show.
---@type table<string, neap.grammar.Word>
M.WORDS = {
  none = {},
  all = {},
  every_n = { form = "N", first = "n", keys = { n = read_every_n }, from_text = digits },
  by_name = { form = "prefix,prefix", first = "names", keys = { names = read_by_name },
    from_text = split },
  greedy = { form = "BYTES", first = "budget", keys = { budget = read_greedy } },
  segments = { form = "K|auto", first = "k", keys = { k = read_segments, starts = read_starts },
    from_text = digits },
  revolve = { form = "S", first = "slots", keys = { slots = read_revolve }, from_text = digits },
  optimal = { form = "BYTES|auto", first = "budget", keys = { budget = read_optimal },
    more = { "modes" } },
  selective = { form = "OPS", first = "keep", keys = { keep = read_keep }, more = { "name" } },
}
M.ORDER = { "none", "all", "every_n", "by_name", "greedy", "segments", "revolve", "optimal",
  "selective" }

--- "none, all, every_n:N, ..."
---@return string
function M.allowed()
  local forms = {}
  for i, name in ipairs(M.ORDER) do
    forms[i] = name .. (M.WORDS[name].form and ":" .. M.WORDS[name].form or "")
  end
  return table.concat(forms, ", ")
end

--- The word of that name; a misspelt one is an error with the nearest.
---@param name string
---@return neap.grammar.Word
function M.word(name)
  if M.WORDS[name] then return M.WORDS[name] end
  local near = fail.nearest(tostring(name), M.ORDER)
  fail.usage("unknown policy '%s'%s; allowed: %s", argument.word(name),
    near and string.format(", did you mean '%s'?", near) or "", M.allowed())
end

--- "kind:argument" in its two parts.
---@param text string
---@return string kind
---@return string|nil argument
function M.parts(text)
  local kind, given = text:match("^([^:]*):(.*)$")
  return kind or text, given
end

-- the modes that an optimal plan may choose from beside store and recompute
local function read_modes(spec)
  local modes = {}
  if spec.modes == nil then return nil end
  argument.table(spec.modes, "policy 'optimal': modes", "a list, e.g. { \"matmul\" }")
  for _, keep in ipairs(spec.modes) do
    local shown = "policy 'optimal': modes"
    local named = type(keep) == "table" and keep.keep ~= nil
    local fields = read_keep(shown, named and keep.keep or keep, nil, named and keep or nil)
    keeping.add(modes, fields.mode, shown)
  end
  return modes
end

--- The fields of a policy, the argument in canonical text, a text to show where there is none.
---@param kind string
---@param key string  which of the word's keys is given
---@param value any
---@param available number|nil
---@param spec table|nil  the table that it stands in
---@param shown string|nil  what an error begins with
function M.read(kind, key, value, available, spec, shown)
  shown = shown or kind .. (type(value) ~= "table" and type(value) ~= "function"
    and ":" .. tostring(value) or "")
  local fields, canonical, text = M.WORDS[kind].keys[key](shown, value, available, spec)
  if kind == "optimal" and spec then fields.modes = read_modes(spec) end
  return fields, canonical, text
end

return M
