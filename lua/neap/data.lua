-- Batches from tokens. What an item holds is a function of its position in the run alone, so that
-- resuming needs a number and nothing else.
local argument = require("neap.argument")
local fail = require("neap.fail")
local neap = require("neap.ffi")
local text = require("neap.text")
local M = {}

local C, ffi = neap.C, neap.ffi

-- streams of the permutation: one an epoch for training, one for validation, far from each other
local TRAIN_STREAM, SHIFT_STREAM, VALIDATION_STREAM = 2 ^ 40, 2 ^ 41, 2 ^ 42
-- validation shows every seed the same text
local VALIDATION_SEED = 0

---@class neap.Data
---@field tokens neap.Tokens
---@field context integer  tokens an item
---@field seed number
---@field n_vocabulary integer
---@field n_tokens integer
---@field n_train integer  tokens of the training split: the first nine tenths
---@field n_validation integer  tokens of the validation split
---@field n_items integer  items of an epoch
---@field n_validation_items integer
---@field validation_first integer  token at which the validation split starts
---@field hash string  XXH3-128 of the source's bytes
---@field name string
local Data = {}
Data.__index = Data

local OPTIONS = { "context", "seed" }

local function check_options(options)
  options = argument.options(options, "data.open", OPTIONS)
  argument.whole(options.context, "data.open: context", 1)
  if options.seed ~= nil then argument.number(options.seed, "data.open: seed") end
  return options
end

local function hash(contents)
  local hex = ffi.new("char[33]")
  neap.check(C.neap_hash_bytes(contents, #contents, hex))
  return ffi.string(hex)
end

--- Opens a text or token file and splits it by position. Raises "failure" for what is missing,
--- empty, or shorter than context + 2 tokens.
---@param path string|nil  nil: the default text
---@param options { context: integer, seed: number|nil }
---@return neap.Data
function M.open(path, options)
  options = check_options(options)
  local tokens = text.open(path)
  local context = options.context
  if tokens.n < context + 2 then
    fail.raise("failure", string.format("data: '%s' has %d tokens, expected at least %d for a "
      .. "context of %d", tokens.name, tokens.n, context + 2, context))
  end
  -- a short text gives training one item at least; validation then overlaps it
  local n_train = math.max(math.floor(tokens.n * 9 / 10), context + 1)
  local first = math.min(n_train, tokens.n - context - 1)
  return setmetatable({
    tokens = tokens, name = tokens.name, context = context, seed = options.seed or 1,
    n_vocabulary = tokens.n_vocabulary, n_tokens = tokens.n,
    n_train = n_train, n_validation = tokens.n - n_train,
    n_items = math.floor((n_train - 1) / context),
    n_validation_items = math.floor((tokens.n - first - 1) / context),
    validation_first = first,
    hash = hash(tokens.contents),
  }, Data)
end

local function permuted(index, n, seed, stream)
  local at = C.neap_permute(index, n, seed, stream)
  if at < 0 then neap.check(at) end
  return at
end

-- one item: context tokens from `first` on, and the same shifted by one
local function copy(tokens, first, context, inputs, targets, to)
  local codes, ids = tokens.codes, tokens.ids
  if ids then
    for t = 0, context - 1 do
      inputs[to + t] = ids[codes[first + t]]
      targets[to + t] = ids[codes[first + t + 1]]
    end
  else
    for t = 0, context - 1 do
      inputs[to + t] = codes[first + t]
      targets[to + t] = codes[first + t + 1]
    end
  end
end

-- the token at which item number `position` of a run starts
local function train_start(self, position)
  local n, context = self.n_items, self.context
  local epoch = math.floor(position / n)
  local item = permuted(position - epoch * n, n, self.seed, TRAIN_STREAM + epoch)
  if epoch == 0 then return item * context end
  -- later epochs cut the text elsewhere; the last item gives way to the end of the split
  local shift = math.floor(C.neap_uniform(epoch, self.seed, SHIFT_STREAM) * context)
  return math.min(item * context + shift, self.n_train - context - 1)
end

-- what a batch is asked for, against buffers that C would not guard
local function check_batch(self, who, position, n, inputs, targets)
  if getmetatable(self) ~= Data then
    fail.raise("invalid argument", who .. ": call it on what data.open returned, with a colon")
  end
  local function whole(x) return type(x) == "number" and x >= 0 and x < 2 ^ 53 and x % 1 == 0 end
  if not whole(position) or not whole(n) then
    fail.raise("invalid argument", string.format("%s: position and number of items must be whole "
      .. "numbers of 0 or more, found %s and %s", who, argument.shown(position),
      argument.shown(n)))
  end
  local need = n * self.context * 4
  for i, buffer in ipairs({ inputs or false, targets or false }) do
    if type(buffer) ~= "cdata" or (ffi.sizeof(buffer) or 0) < need then
      fail.raise("invalid argument", string.format("%s: buffer %d must be int32_t[n] with n of "
        .. "%d or "
        .. "more", who, i, n * self.context))
    end
  end
end

--- Fills the buffers with items position .. position + n - 1 of the run.
---@param position number  items that the run has seen before
---@param n integer  items
---@param inputs ffi.cdata*  int32_t[n * context]
---@param targets ffi.cdata*  int32_t[n * context]: inputs shifted by one token
function Data:batch(position, n, inputs, targets)
  check_batch(self, "batch", position, n, inputs, targets)
  local context = self.context
  for i = 0, n - 1 do
    copy(self.tokens, train_start(self, position + i), context, inputs, targets, i * context)
  end
end

--- Fills the buffers with validation items: the same for every run on this data and context. Past
--- the last item it starts again.
---@param position number
---@param n integer  items
---@param inputs ffi.cdata*  int32_t[n * context]
---@param targets ffi.cdata*  int32_t[n * context]
function Data:validation_batch(position, n, inputs, targets)
  check_batch(self, "validation_batch", position, n, inputs, targets)
  local context, n_items = self.context, self.n_validation_items
  for i = 0, n - 1 do
    local item = permuted((position + i) % n_items, n_items, VALIDATION_SEED, VALIDATION_STREAM)
    copy(self.tokens, self.validation_first + item * context, context, inputs, targets, i * context)
  end
end

--- The tokens of a text; nil and a sentence where the vocabulary lacks a byte of it.
---@param prompt string
---@return integer[]|nil
---@return string|nil message
function Data:encode(prompt)
  argument.self(self, Data, "data:encode")
  return self.tokens:encode(prompt)
end

--- The text of tokens.
---@param list integer[]
---@return string
function Data:decode(list)
  argument.self(self, Data, "data:decode")
  return self.tokens:decode(list)
end

return M
