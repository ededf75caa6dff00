-- Labelled images for training: IDX files (the MNIST format), or made from a seed. An image is a
-- function of its number alone, and a batch of its position in the run.
local argument = require("neap.argument")
local fail = require("neap.fail")
local files = require("neap.files")
local lfs = require("lfs")
local neap = require("neap.ffi")
local C, ffi = neap.C, neap.ffi

local M = {}

---@class neap.Images
---@field name string
---@field n integer
---@field n_train integer  the others, the last tenth, are held out
---@field height integer
---@field width integer
---@field classes integer
---@field seed number  of the order in training
local Images = {}
Images.__index = Images

local MOST_BYTES = 2 ^ 30
local UNSIGNED_BYTE = 8
local ORDER_STREAM, PATTERN_STREAM, NOISE_STREAM = 2 ^ 43, 2 ^ 44, 2 ^ 45

local function refuse(path, format, ...)
  fail.raise("failure", string.format("images '%s': " .. format, path, ...))
end

local function contents_of(path)
  local size = lfs.attributes(path, "size")
  if size and size > MOST_BYTES then
    refuse(path, "it has %.0f bytes, expected at most %.0f", size, MOST_BYTES)
  end
  local contents, message = files.read(path)
  if not contents then fail.raise("failure", "images: " .. message) end
  return contents
end

-- the number of four bytes, the first one the highest
local function u32(text, at)
  local a, b, c, d = text:byte(at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

--- An IDX file of unsigned bytes. Raises "failure" with one sentence for what is none: a wrong
--- start, other types or dimensions, sizes that the data does not have to the byte.
---@param path string
---@param n_dims integer
---@return integer[] dims
---@return string contents  data from byte 5 + 4 n_dims on
function M.read_idx(path, n_dims)
  argument.text(path, "images: the path")
  local contents = contents_of(path)
  local header = 4 + 4 * n_dims
  if #contents < 4 then
    refuse(path, "it has %d bytes, expected an IDX file's header of %d", #contents, header)
  end
  local zero1, zero2, kind, found_dims = contents:byte(1, 4)
  if zero1 ~= 0 or zero2 ~= 0 or kind ~= UNSIGNED_BYTE or found_dims ~= n_dims then
    refuse(path, "it starts with the bytes %02x %02x %02x %02x, expected 00 00 08 %02x: IDX, "
      .. "unsigned bytes, %d dimension%s", zero1, zero2, kind, found_dims, n_dims, n_dims,
      n_dims == 1 and "" or "s")
  end
  if #contents < header then
    refuse(path, "it ends inside its header, after %d of %d bytes", #contents, header)
  end
  local dims, product = {}, 1
  for d = 1, n_dims do
    dims[d] = u32(contents, 1 + 4 * d)
    product = product * dims[d] -- at most 2^96: exact as far as a file can be long
  end
  if product == 0 then refuse(path, "its sizes %s hold nothing", table.concat(dims, " x ")) end
  if product ~= #contents - header then
    refuse(path, "its sizes %s need %.0f bytes of data, it has %d", table.concat(dims, " x "),
      product, #contents - header)
  end
  return dims, contents
end

-- mean and deviation of the first n bytes from offset
local function moments(bytes, offset, n)
  local sum, squares = 0, 0
  for i = offset, offset + n - 1 do
    local v = bytes[i]
    sum, squares = sum + v, squares + v * v
  end
  local mean = sum / n
  return mean, math.sqrt(math.max(squares / n - mean * mean, 0))
end

local function new(fields)
  local self = setmetatable(fields, Images)
  self.n_train = self.n - math.floor(self.n / 10)
  self.pixels = self.height * self.width
  return self
end

--- Images and their labels, from two IDX files. Pixels are moved to mean 0 and deviation 1.
---@param images_path string
---@param labels_path string
---@param seed number
---@return neap.Images
function M.open(images_path, labels_path, seed)
  local dims, pixels = M.read_idx(images_path, 3)
  local label_dims, labels = M.read_idx(labels_path, 1)
  if dims[1] ~= label_dims[1] then
    refuse(labels_path, "it holds %.0f labels for the %.0f images of '%s'", label_dims[1], dims[1],
      images_path)
  end
  local classes, label_bytes = 0, ffi.cast("const uint8_t *", labels)
  for i = 0, dims[1] - 1 do classes = math.max(classes, label_bytes[8 + i] + 1) end
  if classes < 2 then refuse(labels_path, "all its labels are 0, expected two classes or more") end
  local self = new({ name = files.basename(images_path), n = dims[1], height = dims[2],
    width = dims[3], classes = classes, seed = seed, text = pixels, label_text = labels })
  local bytes = ffi.cast("const uint8_t *", pixels)
  local mean, deviation = moments(bytes, 16, self.n_train * self.pixels)
  local scale = deviation > 0 and 1 / deviation or 1
  function self.write(index, host, at)
    local from = 16 + index * self.pixels
    for p = 0, self.pixels - 1 do host[at + p] = (bytes[from + p] - mean) * scale end
    return label_bytes[8 + index]
  end
  return self
end

--- Images made from a seed: each class has a pattern of its own, under noise.
---@param o { n: integer, side: integer, classes: integer, seed: number }
---@return neap.Images
function M.generated(o)
  argument.options(argument.table(o, "images.generated: its argument"), "images.generated",
    { "n", "side", "classes", "seed" })
  argument.whole(o.n, "images.generated: n", 1, 2 ^ 31)
  argument.whole(o.side, "images.generated: side", 1, 4096)
  argument.whole(o.classes, "images.generated: classes", 2, 256)
  argument.whole(o.seed, "images.generated: seed")
  local self = new({ name = "generated images", n = o.n, height = o.side, width = o.side,
    classes = o.classes, seed = o.seed })
  local n, seed = self.pixels, o.seed
  local patterns = ffi.new("float[?]", o.classes * n)
  for i = 0, o.classes * n - 1 do
    patterns[i] = 2 * C.neap_uniform(i, seed, PATTERN_STREAM) - 1
  end
  function self.write(index, host, at)
    local class = index % o.classes
    for p = 0, n - 1 do
      local noise = 2 * C.neap_uniform(index * n + p, seed, NOISE_STREAM) - 1
      host[at + p] = patterns[class * n + p] + 1.5 * noise
    end
    return class
  end
  return self
end

local function fill(self, n, host, labels, index_of)
  for k = 0, n - 1 do labels[k] = self.write(index_of(k), host, k * self.pixels) end
end

--- Writes the n images from a position of the run on; every epoch has an order of its own.
---@param position integer
---@param host ffi.cdata*  n * height * width floats
---@param labels ffi.cdata*  n of int32_t
function Images:batch(position, n, host, labels)
  fill(self, n, host, labels, function(k)
    local at = position + k
    local epoch = math.floor(at / self.n_train)
    return neap.check(C.neap_permute(at % self.n_train, self.n_train, self.seed,
      ORDER_STREAM + epoch))
  end)
end

--- Writes n of the images that are held out, from number `first` (from 0) of them on, in order.
function Images:held_out(first, n, host, labels)
  fill(self, n, host, labels, function(k) return self.n_train + first + k end)
end

return M
