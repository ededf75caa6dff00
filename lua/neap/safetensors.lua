-- Safetensors files: named tensors and a table of strings, written whole or not at all, and checked
-- before anything of them is used.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local tensor = require("neap.tensor")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.SafetensorsFile
---@field path string
local File = {}
File.__index = File
File.__tostring = function(self) return "safetensors file '" .. self.path .. "'" end

-- C reads strings up to their first zero byte
local function text(value, what)
  if type(value) ~= "string" or value:find("\0", 1, true) then
    fail.raise("invalid argument", string.format("safetensors: expected %s as a string without "
      .. "zero bytes, found %s", what, argument.shown(value)))
  end
  return value
end

-- a C array of the strings, which the list keeps alive
local function strings(list)
  local array = ffi.new("const char *[?]", math.max(#list, 1))
  for i, value in ipairs(list) do array[i - 1] = value end
  return array
end

local function sorted_pairs(metadata)
  local keys, values = {}, {}
  for key in pairs(metadata) do keys[#keys + 1] = text(key, "a metadata key") end
  table.sort(keys)
  for i, key in ipairs(keys) do
    values[i] = text(metadata[key], string.format("the metadata of '%s'", key))
  end
  return keys, values
end

--- Writes tensors in this order. Raises "input/output"; the old file is unaltered then.
---@param path string
---@param list { name: string, tensor: neap.Tensor }[]
---@param metadata? table<string, string>
function M.save(path, list, metadata)
  text(path, "a path")
  if type(list) ~= "table" or (metadata ~= nil and type(metadata) ~= "table") then
    fail.raise("invalid argument", "safetensors: expected a list of tensors and a table of strings")
  end
  local names, ids = {}, ffi.new("double[?]", math.max(#list, 1))
  for i, item in ipairs(list) do
    if type(item) ~= "table" then
      fail.raise("invalid argument", string.format("safetensors: item %d is a %s, expected "
        .. "{ name = ..., tensor = ... }", i, type(item)))
    end
    names[i] = text(item.name, string.format("the name of item %d", i))
    ids[i - 1] = tensor.id_of(item.tensor, string.format("safetensors: '%s'", item.name))
  end
  local keys, values = sorted_pairs(metadata or {})
  check(C.neap_safetensors_save(path, #names, strings(names), ids, #keys, strings(keys),
    strings(values)))
end

--- Opens a file and checks all but its data. Raises "input/output" when it is not right.
---@param path string
---@return neap.SafetensorsFile
function M.open(path)
  text(path, "a path")
  local out = ffi.new("neap_safetensors *[1]")
  check(C.neap_safetensors_open(path, out))
  local file = setmetatable({ path = path }, File)
  file.handle = ffi.gc(out[0], C.neap_safetensors_close)
  return file
end

local function handle(self)
  argument.self(self, File, "safetensors")
  if not self.handle then
    fail.raise("wrong state", string.format("safetensors: '%s' is closed", self.path))
  end
  return self.handle
end

local function find(self, name)
  return check(C.neap_safetensors_find(handle(self), text(name, "a tensor's name")))
end

--- The names of its tensors, in the order of the header.
---@return string[]
function File:names()
  local names, file = {}, handle(self)
  for i = 1, check(C.neap_safetensors_count(file)) do
    names[i] = ffi.string(C.neap_safetensors_name(file, i - 1))
  end
  return names
end

---@param name string
---@return boolean
function File:has(name)
  return C.neap_safetensors_find(handle(self), text(name, "a tensor's name")) >= 0
end

---@return table<string, string>
function File:metadata()
  local metadata, file, k = {}, handle(self), 0
  local key = C.neap_safetensors_metadata_key(file, k)
  while key ~= nil do
    metadata[ffi.string(key)] = ffi.string(C.neap_safetensors_metadata(file, key))
    k = k + 1
    key = C.neap_safetensors_metadata_key(file, k)
  end
  return metadata
end

---@param name string
---@return integer[]
function File:dims(name)
  local dims, i, file = {}, find(self, name), handle(self)
  for d = 1, check(C.neap_safetensors_n_dims(file, i)) do
    dims[d] = check(C.neap_safetensors_dim(file, i, d - 1))
  end
  return dims
end

local DTYPES = { F32 = "f32", BF16 = "bf16", I32 = "i32" }

--- "f32", "bf16" or "i32"; the format's own word ("F64") of what cannot be read.
---@param name string
---@return string
function File:dtype(name)
  local word = ffi.string(C.neap_safetensors_dtype_name(handle(self), find(self, name)))
  return DTYPES[word] or word
end

--- Copies a tensor of the file into one of the same dtype and shape.
---@param name string
---@param into neap.Tensor
function File:read_into(name, into)
  local i = find(self, name)
  check(C.neap_safetensors_read(handle(self), i, tensor.id_of(into, "read_into")))
end

--- Closes the file; harmless when it was closed before.
function File:close()
  argument.self(self, File, "safetensors: close")
  if self.handle then
    C.neap_safetensors_close(ffi.gc(self.handle, nil))
    self.handle = nil
  end
end

return M
