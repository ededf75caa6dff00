-- Policies as text or tables: which stages drop their residuals (are CHECKPOINTED), which store.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local grammar = require("neap.checkpoint.grammar")
local names = require("neap.checkpoint.names")
local rules = require("neap.checkpoint.rules")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

---@class neap.Policy
---@field kind string  a word of the grammar, or "rules"
---@field text string  canonical spec, e.g. "every_n:2"
---@field is_text boolean  whether the text says all of it, so that parse reads it back
---@field n number|nil  every_n: each n-th stage is dropped, the first one among them
---@field names string[]|nil  by_name: stages to drop, whole names or up to a separator
---@field budget number|string|nil  greedy: bytes of residuals to store, first fit; optimal: plan
---  budget or "auto"
---@field k number|string|nil  segments: how many, or "auto"
---@field starts string[]|nil  segments: the stages where they begin
---@field slots number|nil  revolve: boundaries kept at once
---@field mode string|neap.Mode|nil  selective: the ops whose outputs stay
---@field modes (string|neap.Mode)[]|nil  rules, optimal: those that stages may be in
---@field rules table[]|nil
---@field default neap.Outcome|nil
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

local function finish(kind, fields, value, shown)
  fields.kind = kind
  if type(value) == "number" then value = string.format("%.0f", value) end
  fields.text = shown or (value and kind .. ":" .. value or kind)
  fields.is_text = shown == nil and fields.modes == nil
  return setmetatable(fields, Policy)
end

local function parse_text(text, available)
  local kind, given = grammar.parts(text)
  local word = grammar.word(kind)
  if not word.form then
    if given then fail.usage("%s: '%s' takes no argument", text, kind) end
    return finish(kind, {})
  end
  if not given or given == "" then fail.usage("%s: expected %s:%s", text, kind, word.form) end
  return finish(kind, grammar.read(kind, word.first, word.from_text and word.from_text(given)
    or given, available, nil, text))
end

local function keys_of(word)
  local keys = { "policy" }
  for key in pairs(word.keys or {}) do keys[#keys + 1] = key end
  for _, key in ipairs(word.more or {}) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

local function parse_table(spec, available)
  if spec.rules ~= nil then
    local fields, text = rules.read(spec)
    return finish("rules", fields, nil, text)
  end
  if type(spec.policy) ~= "string" then
    fail.usage("policy is a %s; allowed: %s, or a table { rules = ... }", type(spec.policy),
      grammar.allowed())
  end
  local kind, given = grammar.parts(spec.policy)
  local word = grammar.word(kind)
  local keys, found = given and { "policy" } or keys_of(word), nil
  for key in pairs(spec) do
    local known = false
    for _, name in ipairs(keys) do known = known or name == key end
    if not known then
      fail.usage("policy '%s': %s", spec.policy, fail.unknown("key", argument.word(key), keys))
    end
    if word.keys and word.keys[key] then
      if found then fail.usage("policy '%s': '%s' or '%s', not both", kind, found, key) end
      found = key
    end
  end
  if given or not word.form then return parse_text(spec.policy, available) end
  if not found then fail.usage("policy '%s' needs '%s'", spec.policy, word.first) end
  return finish(kind, grammar.read(kind, found, spec[found], available, spec))
end

--- Reads a policy from text ("every_n:2") or a table ({ policy = "every_n", n = 2 },
--- { rules = { { "block", "recompute" } } }).
---@param spec string|table|neap.Policy
---@param available number|nil  bytes that a percentage is of
---@return neap.Policy
function M.parse(spec, available)
  if getmetatable(spec) == Policy then return spec end
  if type(spec) == "string" then return parse_text(spec, available) end
  if type(spec) == "table" then return parse_table(spec, available) end
  fail.usage("policy is a %s; allowed: %s", type(spec), grammar.allowed())
end

--- The modes that stages have to be measured in before the policy can be planned.
---@param spec string|table|neap.Policy
---@return (string|neap.Mode)[]  none for most policies; of an optimal one those it may choose from
function M.modes(spec)
  spec = M.parse(spec)
  -- keeping products alone is what no schedule over whole stages comes near
  if spec.kind == "optimal" and not spec.modes then return { "matmul" } end
  return spec.mode and { spec.mode } or spec.modes or {}
end

--- The policy as C reads it: bytes of names are compared, n = 0 drops nothing.
---@param spec neap.Policy|table  { kind, n|names|budget }, not checked like a config
---@return ffi.cdata* policy
---@return table anchor  has to live as long as the policy
function M.to_c(spec)
  local kind = KINDS[spec.kind]
  if not kind then
    fail.usage("'%s' decides over segments or a whole chain, not over one activation; allowed: "
      .. "none, all, every_n, by_name, greedy", tostring(spec.text or spec.kind))
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
---@param spec string|table|neap.Policy  every kind that decides stage by stage
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

--- What becomes of each stage: its residuals are dropped, stored, or some of them stay.
---@param spec string|table|neap.Policy  every kind that decides stage by stage
---@param stages { name: string, saved_bytes: number }[]
---@return neap.Outcome[]
function M.outcomes(spec, stages)
  spec = M.parse(spec)
  if spec.kind == "rules" then return rules.outcomes(spec, stages) end
  local list = {}
  if spec.kind == "selective" then
    for i = 1, #stages do list[i] = { text = spec.text, drop = false, mode = spec.mode } end
    return list
  end
  for i, drop in ipairs(M.drops(spec, stages)) do
    list[i] = { text = drop and "recompute" or "store", drop = drop }
  end
  return list
end

return M
