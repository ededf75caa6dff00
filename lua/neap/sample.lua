-- Text from a trained model, one token after another.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local scope = require("neap.scope")
local tensor = require("neap.tensor")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

local SAMPLE_STREAM = 2 ^ 43

-- a token drawn from softmax(logits / temperature), by position
local function draw(logits, first, n, temperature, index, seed)
  local most, sum, weights = -math.huge, 0, {}
  for v = 1, n do most = math.max(most, logits[first + v]) end
  for v = 1, n do
    weights[v] = math.exp((logits[first + v] - most) / temperature)
    sum = sum + weights[v]
  end
  local at = check(C.neap_uniform(index, seed, SAMPLE_STREAM)) * sum
  for v = 1, n do
    at = at - weights[v]
    if at < 0 then return v - 1 end
  end
  return n - 1
end

--- Continues a list of tokens by n tokens.
---@param executor neap.Executor
---@param tokens integer[]
---@param n integer
---@param o { context: integer, vocabulary: integer, temperature: number, seed: number }
---@return integer[] tokens  the new ones alone
function M.continue(executor, tokens, n, o)
  argument.table(executor, "sample: the executor", "what neap.executor gave")
  argument.fn(executor.evaluate, "sample: the executor's evaluate")
  argument.table(tokens, "sample: tokens", "a list of tokens")
  if #tokens == 0 then fail.usage("sample: tokens must hold one at least") end
  argument.whole(n, "sample: n")
  argument.table(o, "sample: options")
  argument.whole(o.context, "sample: context", 1)
  argument.whole(o.vocabulary, "sample: vocabulary", 1)
  argument.positive(o.temperature, "sample: temperature")
  argument.number(o.seed, "sample: seed")
  local all, new = { unpack(tokens) }, {}
  for i = 1, n do
    new[i] = scope.run(function()
      local window = {}
      for t = math.max(1, #all - o.context + 1), #all do window[#window + 1] = all[t] end
      local inputs = tensor.from(window, { 1, #window },
        { dtype = "i32", tag = C.NEAP_TAG_BATCH })
      local logits = executor:evaluate({ inputs = inputs }):table()
      return draw(logits, (#window - 1) * o.vocabulary, o.vocabulary, o.temperature, i, o.seed)
    end)
    all[#all + 1] = new[i]
  end
  return new
end

return M
