-- Plans and profiles as files of JSON. Writing raises; reading gives nil and a sentence for a file
-- that is not what it should be, whatever is in it.
local argument = require("neap.argument")
local fail = require("neap.fail")
local files = require("neap.files")
local json = require("neap.json")
local plans = require("neap.checkpoint.plan")
local stages = require("neap.checkpoint.stages")
local whole = require("neap.checkpoint.whole")

local M = {}

local MOST_BYTES = 256 * 2 ^ 20
local FORMATS = { plan = "neap plan 1", profile = "neap profile 1" }

-- one element a line, so that two files can be compared line by line
local function write(path, who, kind, head, order, list_name, list)
  argument.text(path, who .. ": path")
  local lines = {}
  for i, item in ipairs(list) do lines[i] = json.encode(item) end
  head.format = FORMATS[kind]
  local text = json.encode(head, { "format", unpack(order) })
  files.write(path, string.format("%s,%s:[\n%s\n]}\n", text:sub(1, -2), json.encode(list_name),
    table.concat(lines, ",\n")))
end

local function read(path, who, kind)
  argument.text(path, who .. ": path")
  local text, message = files.read(path, MOST_BYTES)
  if not text then return nil, message end
  local document
  document, message = json.decode(text)
  if type(document) ~= "table" then
    return nil, string.format("'%s' is no %s: %s", path, kind, message or "not an object")
  end
  local format = document.format
  if format ~= nil and format ~= FORMATS[kind] then
    return nil, string.format("'%s' is no %s: its format is %s, expected '%s'", path, kind,
      argument.shown(format), FORMATS[kind])
  end
  document.format = nil
  return document
end

-- a name or sentence that can be printed: no control characters
local function is_text(value) return type(value) == "string" and not value:find("%c") end

local function check_list(plan, key)
  local list = plan[key]
  if list == nil then return end
  if type(list) ~= "table" then fail.usage("%s is %s", key, argument.shown(list)) end
  for i, item in ipairs(list) do
    if not is_text(item) then
      fail.usage("%s[%d] is %s; expected a line of text", key, i, argument.shown(item))
    end
  end
end

local ACTION_KEYS = { op = true, stage = true, keep = true, what = true, mode = true }

local function check_actions(plan)
  if type(plan.actions) ~= "table" then
    fail.usage("actions is %s; expected a list", argument.shown(plan.actions))
  end
  -- each stage takes a forward and a backward at least
  if not whole.is(plan.n_stages, 1, #plan.actions / 2) then
    fail.usage("n_stages is %s; expected a whole number, at most half the %d actions",
      argument.shown(plan.n_stages), #plan.actions)
  end
  for a, action in ipairs(plan.actions) do
    if type(action) == "table" then
      for key in pairs(action) do
        if not ACTION_KEYS[key] then
          fail.usage("action %d: unknown key %s", a, argument.shown(key))
        end
      end
      if action.mode ~= nil and not is_text(action.mode) then
        fail.usage("action %d: mode is %s", a, argument.shown(action.mode))
      end
      if whole.is(action.stage, 0) and action.stage > plan.n_stages then
        fail.usage("action %d: stage %.0f of %d", a, action.stage, plan.n_stages)
      end
    end
  end
  plans.to_c(plan, plan.n_stages, false)
end

local PLAN_KEYS = { "spec", "n_stages", "names", "notes", "measured_peak_bytes", "least_bytes",
  "budget_bytes", "actions" }
local BYTES = { "measured_peak_bytes", "least_bytes", "budget_bytes" }

local function check_plan(document)
  local plan = {}
  for _, key in ipairs(PLAN_KEYS) do plan[key] = document[key] end
  for key in pairs(document) do
    if plan[key] == nil then
      fail.raise("usage", fail.unknown("key", argument.word(key), PLAN_KEYS))
    end
  end
  check_list(plan, "names")
  check_list(plan, "notes")
  check_actions(plan)
  if plan.names and #plan.names ~= plan.n_stages then
    fail.usage("%d names for %d stages", #plan.names, plan.n_stages)
  end
  if plan.spec ~= nil and not is_text(plan.spec) then
    fail.usage("spec is %s; expected a line of text", argument.shown(plan.spec))
  end
  for _, key in ipairs(BYTES) do
    if plan[key] ~= nil and not whole.is(plan[key], 0) then
      fail.usage("%s is %s; expected a whole number", key, argument.shown(plan[key]))
    end
  end
  return plan
end

-- dkjson's metatables would print and compare as its own
local function plain(value)
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, item in pairs(value) do copy[key] = plain(item) end
  return copy
end

local function checked(path, kind, fn, document)
  local ok, result = pcall(fn, document)
  if ok then return result end
  if not fail.is(result) then error(result, 0) end
  return nil, string.format("'%s' is no %s: %s", path, kind,
    (result.message:gsub("%c", "?")))
end

--- Writes a plan. Raises "input/output".
---@param plan neap.Plan
---@param path string
function M.save(plan, path)
  local copy = check_plan(plan)
  local actions = copy.actions
  copy.actions = nil
  write(path, "plan:save", "plan", copy, PLAN_KEYS, "actions", actions)
end

--- Reads a plan.
---@param path string
---@param profile neap.Profile|nil  for printing it with bytes; the plan has to suit it
---@return neap.Plan|nil
---@return string|nil message
function M.load(path, profile)
  local document, message = read(path, "plan_load", "plan")
  if not document then return nil, message end
  return checked(path, "plan", function()
    local plan = plans.new(check_plan(plain(document)), profile)
    local valid, reason = true, nil
    if profile then valid, reason = plans.validate(plan, profile) end
    if not valid then fail.raise("usage", reason) end
    return plan
  end)
end

-- numbers that a file holds exactly
local function to_plain(place, value)
  if type(value) == "cdata" then
    local number = tonumber(value)
    if not number or math.abs(number) > 2 ^ 53 then
      fail.usage("profile_save: %s is %s; a file holds whole numbers up to 2^53", place,
        tostring(value))
    end
    return number
  end
  if type(value) == "function" or type(value) == "userdata" then
    fail.usage("profile_save: %s is a %s, which a file cannot hold", place, type(value))
  end
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, item in pairs(value) do copy[key] = to_plain(place .. "." .. tostring(key), item) end
  return copy
end

--- Writes a profile. Raises "input/output".
---@param profile neap.Profile
---@param path string
function M.save_profile(profile, path)
  stages.read(profile)
  local head, list = {}, {}
  for key, value in pairs(profile) do
    if key ~= "stages" then head[key] = to_plain(tostring(key), value) end
  end
  for i, stage in ipairs(profile.stages) do list[i] = to_plain("stage " .. i - 1, stage) end
  write(path, "profile_save", "profile", head, {}, "stages", list)
end

--- Reads a profile, also one that was written by hand.
---@param path string
---@return neap.Profile|nil
---@return string|nil message
function M.load_profile(path)
  local document, message = read(path, "profile_load", "profile")
  if not document then return nil, message end
  return checked(path, "profile", function()
    local profile = plain(document)
    stages.read(profile)
    for i, stage in ipairs(profile.stages) do
      if not is_text(stage.name) then
        fail.usage("stage %d: name is %s; expected a line of text", i - 1,
          argument.shown(stage.name))
      end
    end
    return profile
  end)
end

return M
