-- The copy task (Hochreiter & Schmidhuber 1997; Arjovsky et al. 2016): symbols at the start of a
-- sequence have to be told again at its end, after a sign. Made up as neap.data reads texts: what
-- an item holds is a function of its position in the run and of the seed.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

local BLANK, N_SYMBOLS, SIGN = 0, 8, 9
local MOST_SYMBOLS = 10
-- streams of random numbers: far from each other and from those of texts
local TRAIN_STREAM, VALIDATION_STREAM = 2 ^ 43, 2 ^ 44
local N_ITEMS = 2 ^ 30

---@class neap.CopyTask : neap.Data
---@field n_symbols integer  to remember, of one item
local CopyTask = {}
CopyTask.__index = CopyTask

local OPTIONS = { "context", "seed" }

--- Ten symbols, or as many as fit twice beside the sign.
---@param options { context: integer, seed: number|nil }  context: steps of a sequence, 3 at least
---@return neap.CopyTask
function M.open(options)
  argument.options(argument.table(options, "copy task: its argument"), "copy task", OPTIONS)
  local context, seed = options.context, options.seed
  argument.whole(context, "copy task: context", 3, 2 ^ 20)
  if seed == nil then seed = 1 end
  local n_symbols = math.min(MOST_SYMBOLS, math.floor((context - 1) / 2))
  local name = string.format("copy task: %d symbols over %d steps", n_symbols, context)
  return setmetatable({
    name = name, context = context, seed = argument.whole(seed, "copy task: seed"),
    n_symbols = n_symbols, n_vocabulary = SIGN + 1, n_items = N_ITEMS,
    n_validation_items = N_ITEMS, n_tokens = N_ITEMS * context, hash = "none",
  }, CopyTask)
end

-- one item: symbols, blanks, the sign, blanks; the targets are blanks, then the symbols
local function fill(self, item, stream, inputs, targets, to)
  local context, k = self.context, self.n_symbols
  for t = 0, context - 1 do inputs[to + t], targets[to + t] = BLANK, BLANK end
  for i = 0, k - 1 do
    local u = C.neap_uniform(item * k + i, self.seed, stream)
    if u < 0 then check(u) end
    local symbol = 1 + math.floor(u * N_SYMBOLS)
    inputs[to + i], targets[to + context - k + i] = symbol, symbol
  end
  inputs[to + context - k - 1] = SIGN
end

local function check_batch(self, who, position, n, inputs, targets)
  argument.self(self, CopyTask, who)
  argument.whole(position, who .. ": position")
  argument.whole(n, who .. ": number of items")
  for i, buffer in ipairs({ inputs or false, targets or false }) do
    if type(buffer) ~= "cdata" or (ffi_neap.ffi.sizeof(buffer) or 0) < n * self.context * 4 then
      fail.raise("invalid argument", string.format("%s: buffer %d must be int32_t[n] with n of "
        .. "%d or more", who, i, n * self.context))
    end
  end
end

local function read(self, stream, position, n, inputs, targets)
  for i = 0, n - 1 do
    fill(self, (position + i) % N_ITEMS, stream, inputs, targets, i * self.context)
  end
end

--- Fills the buffers with items position .. position + n - 1 of the run.
---@param position number  items that the run has seen before
---@param n integer  items
---@param inputs ffi.cdata*  int32_t[n * context]
---@param targets ffi.cdata*  int32_t[n * context]
function CopyTask:batch(position, n, inputs, targets)
  check_batch(self, "batch", position, n, inputs, targets)
  read(self, TRAIN_STREAM, position, n, inputs, targets)
end

--- The same with items that training never sees.
function CopyTask:validation_batch(position, n, inputs, targets)
  check_batch(self, "validation_batch", position, n, inputs, targets)
  read(self, VALIDATION_STREAM, position, n, inputs, targets)
end

--- The loss of guessing the symbols and knowing the rest: below it something was remembered.
---@return number
function CopyTask:guess_loss() return self.n_symbols * math.log(N_SYMBOLS) / self.context end

return M
