-- Policies over a whole list of layers, as text ("largest:2") or tables, and as C reads them.
local N = require("neap.ffi")
local argument = require("neap.argument")
local bytes = require("neap.bytes")
local fail = require("neap.fail")
local whole = require("neap.checkpoint.whole")

local C, ffi = N.C, N.ffi
local M = {}

local MIB = 2 ^ 20

M.KINDS = {} -- "attention" -> NEAP_LAYER_ATTENTION
M.KIND_NAMES = {}
for kind = 0, C.NEAP_N_LAYER_KINDS - 1 do
  local name = ffi.string(C.neap_layer_kind_name(kind))
  M.KINDS[name], M.KIND_NAMES[kind + 1] = kind, name
end

local function shown(value)
  return type(value) == "cdata" and tostring(value) or argument.shown(value)
end

-- text is digits only: "1e3" and "0x2" are no counts
local function count(value, who)
  if type(value) == "string" then value = value:match("^%d+$") and tonumber(value) or value end
  return whole.u64(value, who)
end

local function size(value, who)
  if type(value) == "cdata" then return whole.u64(value, who) end
  local n, message = bytes.parse(value)
  if not n then fail.usage("%s: %s", who, message) end
  return whole.u64(n, who)
end

local function number(value, who)
  local found = type(value) == "string" and tonumber(value) or value
  if type(found) ~= "number" then fail.usage("%s is %s; expected a number", who, shown(value)) end
  return found
end

local function kind_of(value, who)
  local kind = type(value) == "string" and M.KINDS[value]
  if not kind then
    fail.usage("%s: %s", who, fail.unknown("kind", argument.word(value), M.KIND_NAMES))
  end
  return kind
end

local function indices(value, who)
  if type(value) == "string" then
    local list = {}
    for index in (value .. ","):gmatch("%s*([^,]-)%s*,") do list[#list + 1] = index end
    value = list
  end
  argument.table(value, who, "a list of layer indices")
  local list = ffi.new("uint64_t[?]", math.max(#value, 1))
  for i = 1, #value do list[i - 1] = count(value[i], who .. ", index " .. i) end
  return list, #value
end

-- word -> its C kind, the key of its argument in a table, how the argument is read
local WORDS = {
  none = { C.NEAP_LAYERS_NONE },
  all = { C.NEAP_LAYERS_ALL },
  every_n = { C.NEAP_LAYERS_EVERY_N, "n", function(to, v, who) to.n = count(v, who) end },
  specific = { C.NEAP_LAYERS_SPECIFIC, "layers", function(to, v, who)
    local list, n = indices(v, who)
    to.indices, to.n_indices = list, n
    return list
  end },
  memory_threshold = { C.NEAP_LAYERS_MEMORY_THRESHOLD, "bytes",
    function(to, v, who) to.bytes = size(v, who) end },
  fewest = { C.NEAP_LAYERS_FEWEST, "budget", function(to, v, who) to.bytes = size(v, who) end },
  by_kind = { C.NEAP_LAYERS_BY_KIND, "kind",
    function(to, v, who) to.layer_kind = kind_of(v, who) end },
  ratio = { C.NEAP_LAYERS_RATIO, "ratio", function(to, v, who) to.ratio = number(v, who) end },
  largest = { C.NEAP_LAYERS_LARGEST, "n", function(to, v, who) to.n = count(v, who) end },
  budget = { C.NEAP_LAYERS_BUDGET, "budget", function(to, v, who)
    -- a negative or fractional number is for C to judge
    to.budget_mib = (type(v) == "number" and v or tonumber(size(v, who))) / MIB
  end },
}
local ORDER = { "none", "all", "every_n", "specific", "memory_threshold", "fewest", "by_kind",
  "ratio", "largest", "budget" }

local function split(spec, who)
  if type(spec) == "string" then
    local word, value = spec:match("^([^:]*):(.*)$")
    return word or spec, value
  end
  argument.table(spec, who .. ": the policy", "text like 'largest:2' or a table { policy = }")
  local word = WORDS[spec.policy]
  for key in pairs(spec) do
    if word and key ~= "policy" and key ~= word[2] then
      fail.usage("%s: policy '%s': %s", who, spec.policy,
        fail.unknown("key", argument.word(key), { "policy", word[2] }))
    end
  end
  return spec.policy, word and word[2] and spec[word[2]]
end

--- Reads a policy: none, all, every_n:N, specific:0,3, memory_threshold:BYTES, fewest:BYTES,
--- by_kind:attention, ratio:0.5, largest:N, budget:BYTES; or a table { policy = "largest", n = 2 }
--- with n, layers, bytes, budget, kind or ratio. Sizes may be uint64_t.
---@param spec string|table
---@param who string
---@return ffi.cdata* policy  neap_layer_policy
---@return table anchor  has to live as long as the policy
---@return string text
function M.read(spec, who)
  local name, value = split(spec, who)
  local word = type(name) == "string" and WORDS[name]
  if not word then
    fail.usage("%s: %s", who, fail.unknown("policy", argument.word(name), ORDER))
  end
  local policy = ffi.new("neap_layer_policy", { kind = word[1] })
  if not word[2] then
    if value ~= nil then fail.usage("%s: '%s' takes no argument", who, name) end
    return policy, {}, name
  end
  if value == nil or value == "" then
    fail.usage("%s: policy '%s' needs '%s'", who, name, word[2])
  end
  local anchor = word[3](policy, value, who .. ": " .. name)
  local parts = type(value) == "table" and value or { value }
  local texts = {}
  for i = 1, #parts do texts[i] = tostring(parts[i]):gsub("U?LL$", "") end
  return policy, { anchor }, name .. ":" .. table.concat(texts, ",")
end

return M
