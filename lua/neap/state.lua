-- State on disk: parameters, buffers, optimizer, step, position in the data, seed and
-- configuration, in one safetensors file. Loading checks everything before it changes anything.
local argument = require("neap.argument")
local fail = require("neap.fail")

local M = {}

M.FORMAT = "neap state 1"

-- numbers without which a run cannot go on
local COUNTS = { "step", "position", "seed", "optimizer_steps" }

-- a model and its optimizer, by what is asked of them
local function are_parts(model, optimizer)
  return type(model) == "table" and type(model.parameters) == "function"
    and type(model.buffers) == "function" and type(optimizer) == "table"
    and type(optimizer.tensors) == "function" and type(optimizer.steps) == "number"
end

--- What a training's state consists of, by name and in order.
---@param model neap.Module
---@param optimizer { tensors: function }
---@return { name: string, tensor: neap.Tensor }[]
function M.entries(model, optimizer)
  if not are_parts(model, optimizer) then
    fail.raise("invalid argument", "state.entries: expected a model and its optimizer")
  end
  local list = {}
  local function add(prefix, group)
    for _, e in ipairs(group) do list[#list + 1] = { name = prefix .. e.name,
      tensor = e.tensor } end
  end
  add("parameters.", model:parameters())
  add("buffers.", model:buffers())
  add("optimizer.", optimizer:tensors())
  return list
end

local function check_arguments(who, path, o, wants_counts)
  if type(path) ~= "string" or type(o) ~= "table" or not are_parts(o.model, o.optimizer)
    or (wants_counts and type(o.counts) ~= "table") then
    fail.raise("invalid argument", string.format("%s: expected a path and { model =, optimizer "
      .. "=%s }", who, wants_counts and ", counts =" or ""))
  end
  for key, value in pairs(wants_counts and o.counts or {}) do
    argument.number(value, string.format("%s: the count %s", who, argument.word(key)))
  end
  if o.notes ~= nil then argument.table(o.notes, who .. ": notes", "a table of text") end
end

--- Writes the file: whole and new, or the old one stays.
---@param path string
---@param o { model: neap.Module, optimizer: table, counts: table<string, number>,
---  notes: table<string, string> }
---   counts: step, position, seed; notes: what else is worth knowing, as text
function M.save(path, o)
  check_arguments("state.save", path, o, true)
  local metadata = { format = M.FORMAT, optimizer_steps = string.format("%.0f", o.optimizer.steps) }
  for key, value in pairs(o.counts) do metadata[key] = string.format("%.17g", value) end
  for key, value in pairs(o.notes or {}) do metadata[key] = value end
  require("neap.safetensors").save(path, M.entries(o.model, o.optimizer), metadata)
end

local function refuse(path, format, ...)
  fail.raise("state", string.format("state '%s': " .. format, path, ...))
end

local function read_counts(path, metadata)
  if metadata.format ~= M.FORMAT then
    refuse(path, "its format is %s, expected '%s'", tostring(metadata.format), M.FORMAT)
  end
  local counts = {}
  for _, key in ipairs(COUNTS) do
    local value = tonumber(metadata[key])
    if not value or value % 1 ~= 0 or (key ~= "seed" and value < 0) then
      refuse(path, "'%s' is %s, expected a whole number", key, tostring(metadata[key]))
    end
    counts[key] = value
  end
  return counts
end

local function same_dims(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

local function check_entries(path, file, entries)
  local wanted, there = {}, {}
  for _, name in ipairs(file:names()) do there[name] = true end
  for _, e in ipairs(entries) do
    wanted[e.name] = true
    if not there[e.name] then refuse(path, "tensor '%s' is missing", e.name) end
    local dims = file:dims(e.name)
    if not same_dims(dims, e.tensor:dims()) or file:dtype(e.name) ~= e.tensor:dtype() then
      refuse(path, "tensor '%s' is %s (%s), this model's is %s (%s); it belongs to another "
        .. "configuration", e.name, file:dtype(e.name), table.concat(dims, ", "), e.tensor:dtype(),
        table.concat(e.tensor:dims(), ", "))
    end
  end
  for _, name in ipairs(file:names()) do
    if not wanted[name] then
      refuse(path, "tensor '%s' belongs to no part of this model or its optimizer", name)
    end
  end
end

--- The counts and notes of a state file, without its tensors.
---@param path string
---@return table<string, number> counts
---@return table<string, string> metadata
function M.peek(path)
  local file = require("neap.safetensors").open(path)
  local metadata = file:metadata()
  file:close()
  return read_counts(path, metadata), metadata
end

--- Loads a file into a model and its optimizer, which have to be those it was saved from.
---@param path string
---@param o { model: neap.Module, optimizer: table }
---@return table<string, number> counts  step, position, seed
---@return table<string, string> metadata
function M.load(path, o)
  check_arguments("state.load", path, o)
  local file = require("neap.safetensors").open(path)
  local function read()
    local metadata = file:metadata()
    local counts = read_counts(path, metadata)
    local entries = M.entries(o.model, o.optimizer)
    check_entries(path, file, entries)
    for _, e in ipairs(entries) do file:read_into(e.name, e.tensor) end
    o.optimizer.steps = counts.optimizer_steps
    return { counts, metadata }
  end
  local ok, result = pcall(read)
  file:close()
  if not ok then error(result, 0) end
  return result[1], result[2]
end

return M
