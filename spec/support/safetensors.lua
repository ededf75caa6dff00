-- Builds safetensors files byte by byte, right ones and wrong ones, and judges what opens.
local bit = require("bit")
local dkjson = require("dkjson")
local files = require("neap.files")
local lfs = require("lfs")
local safetensors = require("neap.safetensors")

local M = {}

--- The 8 bytes of a header's length; words: low and high 32 bits where a double would not do.
function M.length(n, high)
  local bytes = {}
  local low = n
  if not high then low, high = n % 2 ^ 32, math.floor(n / 2 ^ 32) end
  for i = 0, 3 do bytes[i + 1] = string.char(math.floor(low / 256 ^ i) % 256) end
  for i = 0, 3 do bytes[i + 5] = string.char(math.floor(high / 256 ^ i) % 256) end
  return table.concat(bytes)
end

--- A file of this header and that many data bytes (or these).
function M.file(header, data)
  return M.length(#header) .. header .. (type(data) == "number" and ("x"):rep(data) or data or "")
end

--- An entry: M.entry("a", "F32", "[2]", "[0,8]").
function M.entry(name, dtype, shape, offsets)
  return string.format('"%s":{"dtype":"%s","shape":%s,"data_offsets":%s}', name, dtype, shape,
    offsets)
end

function M.write(path, contents)
  -- some file systems flush a file that is cut and written again, which is slow
  os.remove(path)
  local file = assert(io.open(path, "wb"))
  file:write(contents)
  file:close()
  return path
end

--- Descriptors this process has open.
function M.n_descriptors()
  local n = 0
  for _ in lfs.dir("/proc/self/fd") do n = n + 1 end
  return n
end

--- Names in a directory.
function M.listing(directory)
  local names = {}
  for name in lfs.dir(directory) do
    if name ~= "." and name ~= ".." then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- what the header says by another reader, and the bytes after it
local function decoded(contents)
  local n = 0
  for i = 8, 1, -1 do n = n * 256 + contents:byte(i) end
  return dkjson.decode(contents:sub(9, 8 + n)), #contents - 8 - n
end

local BITS = { F32 = 32, BF16 = 16, I32 = 32, U8 = 8, I8 = 8, BOOL = 8, F16 = 16, U16 = 16,
  I16 = 16, U32 = 32, F64 = 64, I64 = 64, U64 = 64, C64 = 64 }

-- luassert is too slow for thousands of files
local function check(condition, ...)
  if not condition then
    local words = { ... }
    for i, word in ipairs(words) do words[i] = tostring(word) end
    error(table.concat(words, " "), 3)
  end
end

local function check_entry(file, name, entry)
  local dims, elements = file:dims(name), 1
  check(#dims == #entry.shape, name, "has", #dims, "dimensions")
  for d, dim in ipairs(entry.shape) do
    check(dims[d] == dim, name, "dimension", d, "is", dims[d])
    elements = elements * dim
  end
  local from, to = unpack(entry.data_offsets)
  check(elements * (BITS[entry.dtype] or 8) / 8 == to - from, name, "has", to - from, "bytes")
  return { from, to }
end

--- Raises an error unless a file that opened is a right one, by dkjson's reading and own sums.
function M.check_valid(contents, file)
  local header, data_bytes = decoded(contents)
  local n, spans, metadata = 0, {}, file:metadata()
  for key, value in pairs(header.__metadata__ or {}) do
    check(metadata[key] == value, "metadata", key)
    metadata[key] = nil
  end
  check(next(metadata) == nil, "more metadata")
  header.__metadata__ = nil
  for name, entry in pairs(header) do
    n = n + 1
    spans[n] = check_entry(file, name, entry)
  end
  check(n == #file:names(), n, "names")
  table.sort(spans, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  local at = 0
  for _, span in ipairs(spans) do
    check(at == span[1], "data at", at, span[1])
    at = span[2]
  end
  check(at == data_bytes, "data ends at", at)
end

--- Opens contents, which may be right: true, or false with the sentence, which has to be one.
function M.try(path, contents)
  M.write(path, contents)
  local ok, result = pcall(safetensors.open, path)
  if ok then
    M.check_valid(contents, result)
    result:close()
    return true
  end
  local message = tostring(result)
  check(result.kind == "input/output", message)
  check(message:find(path, 1, true), message)
  check(not message:find("[%z\1-\31]") and #message < 400, message)
  return false, message
end

--- A right file to spoil: three dtypes, an empty tensor, a scalar, metadata with escapes.
function M.sample()
  local header = "{" .. table.concat({
    [["__metadata__":{"format":"neap","q":"\"\u00e9\n"}]],
    M.entry("w", "F32", "[2,3]", "[0,24]"), M.entry("i", "I32", "[]", "[24,28]"),
    M.entry("none", "BF16", "[0,7]", "[28,28]"), M.entry("h", "BF16", "[2]", "[28,32]"),
  }, ",") .. "}"
  return M.file(header .. (" "):rep(-#header % 8), 32), #header
end

--- Flips one bit of a string.
function M.flip(contents, byte, number)
  return contents:sub(1, byte - 1) .. string.char(bit.bxor(contents:byte(byte), 2 ^ number))
    .. contents:sub(byte + 1)
end

M.read = files.read

-- a child's state of many pieces: its tensors are full of one value
M.STATE = [[
local ffi_neap = require("neap.ffi")
local files = require("neap.files")
local neap = require("neap")
local safetensors = require("neap.safetensors")
local SIZES = { 3, 700000, 1, 262144, 0, 300001 }
local function state(value)
  local list = {}
  for i, n in ipairs(SIZES) do list[i] = { name = "t" .. i, tensor = neap.full({ n }, value) } end
  return list
end
]]

return M
