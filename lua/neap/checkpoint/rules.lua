-- Rule tables: { rules = { { "block.0", "store" }, { "head", "selective:matmul" } } }
-- gives each stage one of three outcomes: store, recompute, selective.
local argument = require("neap.argument")
local fail = require("neap.fail")
local grammar = require("neap.checkpoint.grammar")
local keeping = require("neap.checkpoint.keeping")
local names = require("neap.checkpoint.names")

local M = {}

local OUTCOMES = { "store", "recompute", "selective:OPS" }

---@class neap.Outcome
---@field text string  "store", "recompute", "selective:matmul"
---@field drop boolean  residuals go and are recomputed
---@field mode string|neap.Mode|nil  which of them stay

-- an outcome from "store", "selective:matmul" or { policy = "selective", keep = ... }
local function outcome_of(place, value)
  local spec = type(value) == "table" and value or nil
  local word, given = value, nil
  if spec then word, given = "selective", spec.keep end
  if type(word) == "string" and not spec then word, given = grammar.parts(word) end
  if word == "selective" and (spec == nil or spec.policy == "selective") then
    if given == nil or given == "" then fail.usage("%s: expected selective:OPS", place) end
    local ok, fields, canonical, text = pcall(grammar.read, "selective", "keep", given, nil, spec)
    if not ok then error(fail.with_place(place, fields), 0) end
    return { text = text or "selective:" .. canonical, drop = false, mode = fields.mode }
  end
  if (word == "store" or word == "recompute") and not given then
    return { text = word, drop = word == "recompute" }
  end
  fail.usage("%s: %s", place, fail.unknown("outcome", argument.word(value), OUTCOMES))
end

local function read_rule(i, rule)
  local place = "rule " .. i
  if type(rule) ~= "table" then
    fail.usage("%s is %s; expected { \"stage\", \"store\" }", place, argument.shown(rule))
  end
  for key in pairs(rule) do
    if key ~= 1 and key ~= 2 then
      fail.usage("%s: unexpected %s; expected { \"stage\", \"store\" }", place,
        argument.shown(key))
    end
  end
  local name = rule[1]
  if type(name) ~= "string" or name == "" or name:find("%z") then
    fail.usage("%s: its stage is %s; expected a stage's name, or its part before a separator",
      place, argument.shown(name))
  end
  return { name = name, outcome = outcome_of(string.format("rule %d (%s)", i, name), rule[2]) }
end

--- Reads a rule table; fields of the policy and a text to show.
---@param spec { rules: table[], default: string|table|nil }  default: store
---@return table fields
---@return string text
function M.read(spec)
  for key in pairs(spec) do
    if key ~= "rules" and key ~= "default" then
      fail.usage("rules: %s", fail.unknown("key", argument.word(key), { "rules", "default" }))
    end
  end
  if type(spec.rules) ~= "table" or #spec.rules == 0 then
    fail.usage("rules is %s; expected a list like { { \"block.0\", \"store\" }, "
      .. "{ \"head\", \"recompute\" } }",
      type(spec.rules) == "table" and "empty" or argument.shown(spec.rules))
  end
  local default = spec.default
  if default == nil then default = "store" end
  local fields, parts = { rules = {}, modes = {} }, {}
  fields.default = outcome_of("default", default)
  for i, rule in ipairs(spec.rules) do
    fields.rules[i] = read_rule(i, rule)
    parts[i] = fields.rules[i].name .. "=" .. fields.rules[i].outcome.text
  end
  for i = 0, #fields.rules do
    local outcome = i == 0 and fields.default or fields.rules[i].outcome
    if outcome.mode then keeping.add(fields.modes, outcome.mode, "rules") end
  end
  parts[#parts + 1] = "default=" .. fields.default.text
  return fields, "rules{" .. table.concat(parts, ", ") .. "}"
end

--- The outcome of each stage. A stage under two rules that do not agree is an error that names
--- both, and so is a rule that no stage is under.
---@param policy neap.Policy
---@param stages { name: string }[]
---@return neap.Outcome[]
function M.outcomes(policy, stages)
  local list, by = {}, {}
  for i, rule in ipairs(policy.rules) do
    local found = false
    for s, stage in ipairs(stages) do
      if names.matches(rule.name, stage.name) then
        found = true
        local other = by[s] and policy.rules[by[s]]
        if other and other.outcome.text ~= rule.outcome.text then
          fail.usage("stage '%s' is under rule %d (%s: %s) and rule %d (%s: %s); expected one "
            .. "outcome a stage", stage.name, by[s], other.name, other.outcome.text, i, rule.name,
            rule.outcome.text)
        end
        by[s] = by[s] or i
        list[s] = rule.outcome
      end
    end
    if not found then
      names.refuse(string.format("rule %d (%s)", i, rule.name), rule.name, stages)
    end
  end
  for s = 1, #stages do list[s] = list[s] or policy.default end
  return list
end

return M
