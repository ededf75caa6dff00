-- Policies as text or tables: which stages drop their residuals (are CHECKPOINTED) and which store.
local N = require("neap.ffi")
local bytes = require("neap.bytes")
local fail = require("neap.fail")
local names = require("neap.checkpoint.names")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

---@class neap.Policy
---@field kind string  none, all, every_n, by_name, greedy, segments
---@field text string  canonical spec, e.g. "every_n:2"
---@field n number|nil  every_n: each n-th stage is dropped, the first one among them
---@field names string[]|nil  by_name: stages to drop, whole names or up to a separator
---@field budget number|nil  greedy: bytes of residuals to store, first fit
---@field k number|nil  segments: how many
local Policy = {}
Policy.__index = Policy
Policy.__tostring = function(self) return self.text end

local KINDS = {
  none = C.NEAP_POLICY_NONE,
  all = C.NEAP_POLICY_ALL,
  every_n = C.NEAP_POLICY_EVERY_N,
  by_name = C.NEAP_POLICY_BY_NAME,
  greedy = C.NEAP_POLICY_GREEDY,
}

local function whole_value(shown, value, low, range)
  if not whole.is(value, low) then fail.usage("%s: expected a whole number, %s", shown, range) end
  return value
end

local function read_every_n(shown, value)
  if value == 0 then fail.usage("%s would drop nothing: say 'none' (allowed: 1 to 2^53)", shown) end
  return { n = whole_value(shown, value, 1, "1 to 2^53") }, value
end

local function read_segments(shown, value)
  return { k = whole_value(shown, value, 1, "1 to the number of stages") }, value
end

local function read_names(shown, list)
  if type(list) ~= "table" or #list == 0 then
    fail.usage("%s: expected the names of stages, e.g. by_name:block.0,block.1", shown)
  end
  for i, name in ipairs(list) do
    if type(name) ~= "string" or name == "" or name:find("[,%z]") then
      fail.usage("%s: name %d is '%s'; expected a stage's name, or its part before a separator",
        shown, i, tostring(name))
    end
  end
  return { names = { unpack(list) } }, table.concat(list, ",")
end

local function read_greedy(shown, value, available)
  local budget, message = bytes.parse(value, available)
  if not budget then fail.usage("%s: %s", shown, message) end
  return { budget = budget }, budget
end

local function split(text)
  local list = {}
  for name in (text .. ","):gmatch("([^,]*),") do list[#list + 1] = name:match("^%s*(.-)%s*$") end
  return list
end

-- digits only: "1e3", "0x2", "2.5" and "2 " are no numbers of layers
local function digits(text) return text:match("^%-?%d+$") and tonumber(text) or text end

-- word -> how its argument looks, its key in a table, from text, the reader
local WORDS = {
  none = {},
  all = {},
  every_n = { form = "N", key = "n", from_text = digits, read = read_every_n },
  by_name = { form = "prefix,prefix", key = "names", from_text = split, read = read_names },
  greedy = { form = "BYTES", key = "budget", read = read_greedy },
  segments = { form = "K", key = "k", from_text = digits, read = read_segments },
}
local ORDER = { "none", "all", "every_n", "by_name", "greedy", "segments" }

local function allowed()
  local forms = {}
  for i, name in ipairs(ORDER) do
    forms[i] = name .. (WORDS[name].form and ":" .. WORDS[name].form or "")
  end
  return table.concat(forms, ", ")
end

local function word_of(name)
  if WORDS[name] then return WORDS[name] end
  local near = fail.nearest(tostring(name), ORDER)
  fail.usage("unknown policy '%s'%s; allowed: %s", tostring(name),
    near and string.format(", did you mean '%s'?", near) or "", allowed())
end

local function finish(kind, fields, value)
  fields.kind = kind
  if type(value) == "number" then value = string.format("%.0f", value) end
  fields.text = value and kind .. ":" .. value or kind
  return setmetatable(fields, Policy)
end

local function parse_text(text, available)
  local kind, argument = text:match("^([^:]*):(.*)$")
  kind = kind or text
  local word = word_of(kind)
  if not word.read then
    if argument then fail.usage("%s: '%s' takes no argument", text, kind) end
    return finish(kind, {})
  end
  if not argument or argument == "" then
    fail.usage("%s: expected %s:%s", text, kind, word.form)
  end
  return finish(kind, word.read(text, word.from_text and word.from_text(argument) or argument,
    available))
end

local function parse_table(spec, available)
  if type(spec.policy) ~= "string" then
    fail.usage("policy is a %s; allowed: %s", type(spec.policy), allowed())
  end
  local kind, argument = spec.policy:match("^([^:]*):(.*)$")
  local word = word_of(kind or spec.policy)
  local keys = { "policy", not argument and word.key or nil }
  for key in pairs(spec) do
    if key ~= "policy" and (argument or key ~= word.key) then
      fail.usage("policy '%s': %s", spec.policy, fail.unknown("key", key, keys))
    end
  end
  if argument or not word.read then return parse_text(spec.policy, available) end
  local value = spec[word.key]
  if value == nil then fail.usage("policy '%s' needs '%s'", spec.policy, word.key) end
  local shown = spec.policy .. (type(value) == "table" and "" or ":" .. tostring(value))
  return finish(spec.policy, word.read(shown, value, available))
end

--- Reads a policy from text ("every_n:2") or a table ({ policy = "every_n", n = 2 }).
---@param spec string|table|neap.Policy
---@param available number|nil  bytes that a percentage of greedy is of
---@return neap.Policy
function M.parse(spec, available)
  if getmetatable(spec) == Policy then return spec end
  if type(spec) == "string" then return parse_text(spec, available) end
  if type(spec) == "table" then return parse_table(spec, available) end
  fail.usage("policy is a %s; allowed: %s", type(spec), allowed())
end

--- The policy as C reads it: bytes of names are compared, n = 0 drops nothing.
---@param spec neap.Policy|table  { kind, n|names|budget }, not checked like a config
---@return ffi.cdata* policy
---@return table anchor  has to live as long as the policy
function M.to_c(spec)
  local kind = KINDS[spec.kind]
  if not kind then
    fail.usage("'%s' decides over segments, not over single activations; allowed: none, all, "
      .. "every_n, by_name, greedy", tostring(spec.text or spec.kind))
  end
  local list = spec.names or {}
  local prefixes = ffi.new("const char *[?]", math.max(#list, 1))
  for i, name in ipairs(list) do prefixes[i - 1] = name end
  local policy = ffi.new("neap_policy", {
    kind = kind, n_prefixes = #list, n = spec.n or 0, budget_bytes = spec.budget or 0,
    prefixes = prefixes,
  })
  return policy, { prefixes, list }
end

--- The raw decision over one activation.
---@param spec neap.Policy|table
---@param name string
---@param index number|ffi.cdata*  from 0
---@param n_bytes number|ffi.cdata*
---@param stored number|ffi.cdata*|nil  bytes stored so far
---@return boolean drops
---@return table anchor  of the policy that C read
function M.decides(spec, name, index, n_bytes, stored)
  local policy, anchor = M.to_c(spec)
  local code = check(C.neap_policy_drops(policy, name, whole.u64(index, "index"),
    whole.u64(n_bytes, "bytes"), whole.u64(stored or 0, "stored")))
  return code == 1, anchor
end

--- Which stages of a chain drop their residuals.
---@param spec string|table|neap.Policy  every kind but segments
---@param stages { name: string, saved_bytes: number }[]
---@return boolean[] drops  drops[i] is about stages[i]
function M.drops(spec, stages)
  spec = M.parse(spec)
  if spec.kind == "by_name" then return names.drops(spec.names, stages) end
  local drops, stored = {}, 0ULL
  for i, stage in ipairs(stages) do
    drops[i] = M.decides(spec, stage.name, i - 1, stage.saved_bytes, stored)
    if not drops[i] then stored = stored + whole.u64(stage.saved_bytes, "saved_bytes") end
  end
  return drops
end

return M
