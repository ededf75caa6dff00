-- Configs: a Lua table file, then the command line over it; every value checked, every key known.
local argument = require("neap.argument")
local fail = require("neap.fail")
local files = require("neap.files")
local sandbox = require("neap.config.sandbox")
local schema = require("neap.config.schema")
local M = {}

M.KEYS = schema.NAMES

---@class neap.Config
---@field n_layer integer
---@field n_head integer
---@field width integer
---@field context integer  tokens an item
---@field chunk integer|string  items one forward sees, or "auto"
---@field global_batch integer  items a step; set where the config is silent
---@field dropout number
---@field steps integer
---@field lr number
---@field min_lr number
---@field warmup integer  steps, at most `steps`
---@field betas number[]
---@field weight_decay number
---@field clip number  0: gradients are not clipped
---@field eval_every integer  steps, 0: never
---@field eval_batches integer
---@field final_eval_batches integer
---@field seed integer
---@field data string|nil  nil: the default text
---@field checkpoint string|table
---@field budget string|number|nil  bytes as neap.bytes reads them
---@field dtype string
---@field device string
---@field threads integer|nil
---@field out string|nil

local function known(place, key)
  local spec = schema.BY_NAME[key]
  if not spec then fail.usage("%s: %s", place, fail.unknown("key", key, schema.NAMES)) end
  return spec
end

local function assign(config, place, spec, value)
  local objection = schema.objection(spec, value)
  if objection then fail.raise("usage", place .. ": " .. objection) end
  config[spec.key] = value
end

local function from_text(config, place, key, text)
  local spec = known(place, key)
  if spec.optional and text == "nil" then
    config[key] = nil
    return
  end
  assign(config, place, spec, schema.read(spec, text))
end

--- One value of a config from a command line's text. Raises "usage".
---@param key string
---@param text string
---@param place string|nil  what the sentence begins with; "--set key=text" when nil
---@return any value  nil where an optional key's text is "nil"
function M.value(key, text, place)
  argument.string(key, "config.value: the key")
  argument.string(text, "config.value: the text")
  if place ~= nil then argument.string(place, "config.value: the place") end
  local one = {}
  from_text(one, place or string.format("--set %s=%s", key, text), key, text)
  return one[key]
end

local function from_file(config, path)
  local place = string.format("config '%s'", path)
  local text, message = files.read(path, sandbox.MOST_BYTES)
  if not text then
    -- too long is the file's fault, the rest is the world's
    local kind = message:find("is longer than", 1, true) and "usage" or "failure"
    fail.raise(kind, "config: " .. message)
  end
  local values = sandbox.evaluate(text, place)
  for key in pairs(values) do
    if type(key) ~= "string" then
      fail.usage("%s: it holds a value without a name (%s), expected name = value", place,
        schema.shown(values[key]))
    end
    known(place, key)
  end
  for _, spec in ipairs(schema.KEYS) do
    local value = rawget(values, spec.key)
    if value ~= nil then assign(config, place, spec, value) end
  end
end

local function from_sets(config, sets)
  for _, set in ipairs(sets or {}) do
    argument.string(set, "config.load: each of the sets")
    local key, text = set:match("^%s*([^=%s]+)%s*=(.*)$")
    if not key then fail.usage("--set: '%s' names no value; expected key=value", set) end
    from_text(config, "--set " .. set, key, text)
  end
end

-- option names have dashes where keys have underscores
local function from_options(config, options)
  for _, spec in ipairs(schema.KEYS) do
    local text = (options or {})[spec.key]
    if type(text) == "string" then
      from_text(config, "--" .. spec.key:gsub("_", "-"), spec.key, text)
    elseif text ~= nil then
      assign(config, "option", spec, text)
    end
  end
  for key in pairs(options or {}) do known("option", argument.word(key)) end
end

-- what one value alone cannot show
local function cross_check(config)
  if config.width % config.n_head ~= 0 then
    fail.usage("width %d is not a multiple of n_head %d; expected heads of equal width",
      config.width, config.n_head)
  end
  if not config.min_lr then config.min_lr = config.lr / 10 end
  if config.min_lr > config.lr then
    fail.usage("min_lr %.15g is above lr %.15g; expected a learning rate that falls",
      config.min_lr, config.lr)
  end
  -- a short trial of a long config warms up to its end
  config.warmup = math.min(config.warmup, config.steps)
end

--- The config that a run uses: defaults, then the file, then the sets, then the options.
--- Raises "usage" for what is wrong in it, "failure" where the file cannot be read.
---@param path string|nil  nil: defaults alone
---@param sets string[]|nil  "key=value"
---@param options table<string, any>|nil  by key; texts are read, other values are only checked
---@return neap.Config
function M.load(path, sets, options)
  local config = {}
  if path ~= nil then argument.path(path, "config.load: the path") end
  if sets ~= nil then argument.table(sets, "config.load: sets", "a list of key=value") end
  if options ~= nil then argument.table(options, "config.load: options") end
  if path then from_file(config, path) end
  from_sets(config, sets)
  for _, spec in ipairs(schema.KEYS) do
    if config[spec.key] == nil then
      local default = spec.default
      config[spec.key] = type(default) == "table" and { unpack(default) } or default
    end
  end
  -- the config's chunk, not the option's: another chunk is not another training
  local batch = tonumber(config.chunk) or 64
  from_options(config, options)
  if not config.global_batch then config.global_batch = batch end
  cross_check(config)
  return config
end

local function number_text(number)
  for digits = 15, 17 do
    local text = string.format("%." .. digits .. "g", number)
    if tonumber(text) == number then return text end
  end
end

--- Lua text of one value: a name, a number, or a table of these.
---@param value any
---@return string
function M.source(value)
  if type(value) == "string" then return (string.format("%q", value):gsub("\\\n", "\\n")) end
  if type(value) == "number" then return number_text(value) end
  if type(value) ~= "table" then return tostring(value) end
  local parts, keys = {}, {}
  for i = 1, #value do parts[i] = M.source(value[i]) end
  for key in pairs(value) do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    parts[#parts + 1] = string.format("[%s] = %s", M.source(key), M.source(value[key]))
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

--- Lua text that `load` reads back to the same config.
---@param config neap.Config
---@return string
function M.dump(config)
  argument.table(config, "config.dump: the config")
  local lines = { "return {" }
  for _, spec in ipairs(schema.KEYS) do
    local value = config[spec.key]
    if value ~= nil then
      lines[#lines + 1] = string.format("  %s = %s,", spec.key, M.source(value))
    end
  end
  lines[#lines + 1] = "}\n"
  return table.concat(lines, "\n")
end

return M
