-- Token sources: text by bytes, files of 16-bit tokens, and the text every Debian machine holds.
local ffi = require("ffi")
local lfs = require("lfs")
local argument = require("neap.argument")
local fail = require("neap.fail")
local files = require("neap.files")
local M = {}

M.LICENCES = "/usr/share/common-licenses"
-- less than this is no text to learn from
local LEAST_DEFAULT_BYTES = 2000

---@class neap.Tokens
---@field name string  where they come from
---@field n integer  tokens
---@field n_vocabulary integer
---@field contents string  the bytes of the source; anchors `codes`
---@field codes ffi.cdata*  const uint8_t* or const uint16_t*, one a token
---@field ids ffi.cdata*|nil  token of each byte (int32_t[256]); nil: codes are tokens
---@field characters string|nil  the byte of each token, in order; nil: tokens are no text
local Tokens = {}
Tokens.__index = Tokens

-- regular files, no links, sorted by name: the same text wherever the files are the same
local function read_directory(directory, pattern)
  local names, parts = {}, {}
  if not files.is_directory(directory) then return "" end
  for name in lfs.dir(directory) do
    local mode = lfs.symlinkattributes(directory .. "/" .. name, "mode")
    if mode == "file" and name:find(pattern) then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do parts[#parts + 1] = files.read(directory .. "/" .. name) or "" end
  return table.concat(parts)
end

--- The text that is trained on when none is named: the licences, else the documents of a checkout.
---@param places { [1]: string, [2]: string }[]|nil  directories and name patterns, in order
---@return string contents
---@return string name
function M.default(places)
  if places ~= nil then
    argument.table(places, "text.default: places")
    if #places == 0 then fail.usage("text.default: places must be directories, found none") end
  end
  local here = debug.getinfo(1, "S").source:match("^@(.*)lua/neap/text%.lua$")
  places = places or {
    { M.LICENCES, "." },
    { here == "" and "." or here or "", "%.md$" },
  }
  for i, place in ipairs(places) do
    local who = "text.default: place " .. i
    argument.table(place, who, "{ directory, pattern }")
    argument.path(place[1], who .. ": the directory")
    argument.path(place[2], who .. ": the pattern")
    local contents = read_directory(place[1], place[2])
    if #contents >= LEAST_DEFAULT_BYTES then return contents, place[1] end
  end
  fail.raise("failure", string.format("data: this machine has no text under %s; name one with "
    .. "--data FILE", places[1][1]))
end

local function from_text(contents, name)
  local codes = ffi.cast("const uint8_t *", contents)
  local seen = ffi.new("uint8_t[256]")
  for i = 0, #contents - 1 do seen[codes[i]] = 1 end
  local ids, characters = ffi.new("int32_t[256]", -1), {}
  for byte = 0, 255 do
    ids[byte] = seen[byte] == 1 and #characters or -1
    if seen[byte] == 1 then characters[#characters + 1] = string.char(byte) end
  end
  return setmetatable({
    name = name, n = #contents, n_vocabulary = #characters, contents = contents, codes = codes,
    ids = ids, characters = table.concat(characters),
  }, Tokens)
end

local function from_u16(contents, name)
  if #contents % 2 ~= 0 then
    fail.raise("failure", string.format("data: '%s' has %d bytes, expected 16-bit tokens of two "
      .. "bytes each", name, #contents))
  end
  local codes, n, largest = ffi.cast("const uint16_t *", contents), #contents / 2, -1
  for i = 0, n - 1 do largest = math.max(largest, codes[i]) end
  return setmetatable({
    name = name, n = n, n_vocabulary = largest + 1, contents = contents, codes = codes,
  }, Tokens)
end

--- The tokens of a file: bytes of a text, or 16-bit little-endian numbers (.bin, .u16). Raises
--- "failure" where there is no such file or nothing in it.
---@param path string|nil  nil: the default text
---@return neap.Tokens
function M.open(path)
  local contents, name
  if path == nil then
    contents, name = M.default()
  else
    local message
    argument.text(path, "data: the path")
    contents, message = files.read(path)
    name = path
    if not contents then fail.raise("failure", "data: " .. message) end
    if #contents == 0 then fail.raise("failure", string.format("data: '%s' is empty", path)) end
  end
  if name:find("%.bin$") or name:find("%.u16$") then return from_u16(contents, name) end
  return from_text(contents, name)
end

--- The tokens of a text, or nil and a sentence where it holds a byte the vocabulary lacks.
---@param text string
---@return integer[]|nil
---@return string|nil message
function Tokens:encode(text)
  argument.string(text, "data: the text to encode")
  if not self.characters then
    return nil, string.format("'%s' holds tokens, not text", self.name)
  end
  local list = {}
  for i = 1, #text do
    local id = self.ids[text:byte(i)]
    if id < 0 then
      return nil, string.format("the byte %d (%q) at position %d is not in the vocabulary of '%s'",
        text:byte(i), text:sub(i, i), i, self.name)
    end
    list[i] = id
  end
  return list
end

--- The text of tokens; numbers with spaces between where they are no text.
---@param list integer[]
---@return string
function Tokens:decode(list)
  argument.table(list, "data: what to decode", "a list of tokens")
  local parts, last = {}, self.n_vocabulary - 1
  for i, id in ipairs(list) do
    if type(id) ~= "number" or not (id >= 0 and id <= last) or id % 1 ~= 0 then
      fail.usage("data: token %d is %s, expected a whole number, 0 to %d", i, argument.shown(id),
        last)
    end
    parts[i] = self.characters and self.characters:sub(id + 1, id + 1) or id
  end
  return table.concat(parts, self.characters and "" or " ")
end

return M
