-- The keys of a config: their order, types, ranges and defaults. A new key is one line here.
local bytes = require("neap.bytes")
local M = {}

local function shown(value)
  if type(value) == "string" then return string.format("'%s'", value) end
  if type(value) == "table" or type(value) == "function" then return "a " .. type(value) end
  return tostring(value)
end
M.shown = shown

-- "a whole number from 1 to 64", "a number of 0 or more, below 1"
local function range_text(noun, spec)
  if spec.most then
    local mantissa, exponent = math.frexp(spec.most)
    local most = mantissa == 0.5 and exponent > 20 and "2^" .. (exponent - 1) or spec.most
    return string.format("%s from %d to %s", noun, spec.least, most)
  end
  if spec.below then
    return string.format("%s of %.15g or more, below %.15g", noun, spec.least, spec.below)
  end
  return string.format("%s of %.15g or more", noun, spec.least)
end

local function in_range(value, spec)
  return value == value and value >= spec.least and value < math.huge
    and (not spec.most or value <= spec.most) and (not spec.below or value < spec.below)
end

-- decimal only: tonumber also reads "0x10", "nan" and "inf"
local function to_number(text)
  return text:find("^%s*[-+]?[%d.]+[eE]?[-+]?%d*%s*$") and tonumber(text) or nil
end

local function is_name(value)
  return type(value) == "string" and value ~= "" and not value:find("%z")
end

-- plain data: what a config may hold where a table is allowed
local function is_data(value, depth)
  if type(value) ~= "table" then return type(value) ~= "function" and value == value end
  if depth > 4 then return false end
  for key, item in pairs(value) do
    if type(key) ~= "string" and type(key) ~= "number" then return false end
    if not is_data(item, depth + 1) then return false end
  end
  return true
end

--- Types: expects(spec) is the text of what is expected, check(value, spec) whether a value is one,
--- read(text) makes a value from what stands on a command line (nil: not one).
local TYPES = {
  integer = {
    expects = function(spec) return range_text("a whole number", spec) end,
    check = function(value, spec)
      return type(value) == "number" and value == math.floor(value) and in_range(value, spec)
    end,
    read = to_number,
  },
  number = {
    expects = function(spec) return range_text("a number", spec) end,
    check = function(value, spec) return type(value) == "number" and in_range(value, spec) end,
    read = to_number,
  },
  chunk = {
    expects = function(spec) return range_text("'auto' or a whole number", spec) end,
    check = function(value, spec)
      return value == "auto"
        or type(value) == "number" and value == math.floor(value) and in_range(value, spec)
    end,
    read = function(text) return text == "auto" and text or to_number(text) end,
  },
  betas = {
    expects = function() return "two numbers of 0 or more, below 1, like 0.9,0.99" end,
    check = function(value, spec)
      if type(value) ~= "table" then return false end
      local n = 0
      for _ in pairs(value) do n = n + 1 end
      return n == 2 and type(value[1]) == "number" and in_range(value[1], spec)
        and type(value[2]) == "number" and in_range(value[2], spec)
    end,
    read = function(text)
      local list = {}
      for part in (text:match("^%s*{(.*)}%s*$") or text):gmatch("[^,]+") do
        list[#list + 1] = to_number(part) or part
      end
      return list
    end,
  },
  word = {
    expects = function(spec) return spec.text end,
    check = function(value, spec)
      if type(value) ~= "string" then return false end
      for _, pattern in ipairs(spec.words) do
        if value:find("^" .. pattern .. "$") then return true end
      end
      return false
    end,
    read = function(text) return text end,
  },
  name = {
    expects = function(spec) return spec.text end,
    check = is_name,
    read = function(text) return text end,
  },
  checkpoint = {
    expects = function()
      return "a policy like none, segments:4 or optimal:auto, or a table of plain data (the run's "
        .. "directory keeps it, and a function cannot be kept)"
    end,
    check = function(value)
      return is_name(value) or type(value) == "table" and is_data(value, 1)
    end,
    read = function(text) return text end,
  },
  -- a percentage can be judged only where the device is known
  size = {
    expects = function() return "bytes like 512MiB, 1.5GiB, 80%" end,
    check = function(value) return bytes.parse(value, 2 ^ 53) ~= nil end,
    read = function(text) return text end,
  },
}

--- In this order they are listed, dumped and written.
---@class neap.config.Key
---@field key string
---@field type string
---@field default any  nil: none
---@field optional boolean|nil  nil is a value too
M.KEYS = {
  { key = "n_layer", type = "integer", default = 4, least = 1, most = 100000 },
  { key = "n_head", type = "integer", default = 4, least = 1, most = 65536 },
  { key = "width", type = "integer", default = 128, least = 1, most = 2 ^ 20 },
  { key = "context", type = "integer", default = 64, least = 1, most = 2 ^ 20 },
  { key = "chunk", type = "chunk", default = 12, least = 1, most = 2 ^ 20 },
  { key = "global_batch", type = "integer", optional = true, least = 1, most = 2 ^ 31 },
  { key = "dropout", type = "number", default = 0, least = 0, below = 1 },
  { key = "steps", type = "integer", default = 2000, least = 1, most = 2 ^ 40 },
  { key = "lr", type = "number", default = 1e-3, least = 0 },
  { key = "min_lr", type = "number", optional = true, least = 0 },
  { key = "warmup", type = "integer", default = 100, least = 0, most = 2 ^ 40 },
  { key = "betas", type = "betas", default = { 0.9, 0.99 }, least = 0, below = 1 },
  { key = "weight_decay", type = "number", default = 0.1, least = 0 },
  { key = "clip", type = "number", default = 1.0, least = 0 },
  { key = "eval_every", type = "integer", default = 250, least = 0, most = 2 ^ 40 },
  { key = "eval_batches", type = "integer", default = 20, least = 1, most = 2 ^ 31 },
  { key = "final_eval_batches", type = "integer", default = 200, least = 0, most = 2 ^ 31 },
  { key = "seed", type = "integer", default = 1, least = 0, most = 2 ^ 53 },
  { key = "data", type = "name", optional = true, text = "the path of a file" },
  { key = "checkpoint", type = "checkpoint", default = "none" },
  { key = "budget", type = "size", optional = true },
  { key = "dtype", type = "word", default = "f32", words = { "f32", "tf32", "bf16" },
    text = "f32, tf32 or bf16" },
  { key = "device", type = "word", default = "auto",
    words = { "auto", "cpu", "null", "cuda", "cuda:%d+", "cuda%-emu" },
    text = "auto, cpu, null, cuda or cuda:N" },
  { key = "threads", type = "integer", optional = true, least = 1, most = 1024 },
  { key = "out", type = "name", optional = true, text = "the path of a directory" },
}

M.NAMES, M.BY_NAME = {}, {}
for i, spec in ipairs(M.KEYS) do
  M.NAMES[i], M.BY_NAME[spec.key] = spec.key, spec
end

--- nil when the value is one this key may have, else "is X, expected Y".
---@param spec neap.config.Key
---@param value any
---@return string|nil
function M.objection(spec, value)
  local kind = TYPES[spec.type]
  if kind.check(value, spec) then return nil end
  return string.format("%s is %s; expected %s", spec.key, shown(value), kind.expects(spec))
end

--- A value of this key from a command line's text. What cannot be read stays the text, for
--- `objection` to name.
---@param spec neap.config.Key
---@param text string
---@return any
function M.read(spec, text)
  local value = TYPES[spec.type].read(text)
  if value == nil then return text end
  return value
end

return M
