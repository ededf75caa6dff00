-- saved(model, batch): every byte that a recorded forward keeps for backward, and why.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local bytes = require("neap.bytes")
local scope = require("neap.scope")
local stage_run = require("neap.checkpoint.stage_run")
local tensor = require("neap.tensor")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.SavedTensor
---@field stage string
---@field op string       whose backward reads it (the first one that saved it)
---@field number integer  of the op in the stage's forward, from 1
---@field what string     "input 1", "output 1": of that op
---@field why string      a sentence
---@field shape integer[]
---@field dtype string
---@field bytes number    counted; 0 for what another row holds already or the model owns
---@field owner string    "residual", "boundary", "parameter", "batch", "buffer"
---@field also string[]   further ops that hold the same storage

local Saved = {}
Saved.__index = Saved

local DTYPES = { [C.NEAP_F32] = "f32", [C.NEAP_BF16] = "bf16", [C.NEAP_I32] = "i32" }
local ROLES = { [C.NEAP_SAVED_INPUT] = "input", [C.NEAP_SAVED_OUTPUT] = "output",
  [C.NEAP_SAVED_EXTRA] = "tensor" }
local OWNERS = { [C.NEAP_TAG_PARAMETERS] = "parameter", [C.NEAP_TAG_BATCH] = "batch",
  [C.NEAP_TAG_BUFFERS] = "buffer" }

-- why an op saves what: its rule in src/core decides, these are its reasons in words
local REASONS = {
  ["linear input 1"] = "the gradient of the weight is x^T times the output's gradient",
  ["linear input 2"] = "the gradient of x is the output's gradient times the weight",
  ["matmul input 1"] = "the gradient of the second factor needs the first",
  ["matmul input 2"] = "the gradient of the first factor needs the second",
  ["conv2d input 1"] = "the gradient of the weight needs x",
  ["conv2d input 2"] = "the gradient of x needs the weight",
  ["attention input 1"] = "scores are computed again block by block from queries, keys and values",
  ["attention output 1"] = "the row sums of gradient times output",
  ["attention output 2"] = "the log-sum-exp of every row of scores",
  ["layernorm input 1"] = "x is normalised again",
  ["layernorm input 2"] = "the gradient of x goes through the gain",
  ["layernorm output 2"] = "mean and 1/deviation of every row",
  ["rmsnorm input 1"] = "x is normalised again",
  ["rmsnorm input 2"] = "the gradient of x goes through the gain",
  ["rmsnorm output 2"] = "1/root mean square of every row",
  ["cross_entropy input 1"] = "the softmax is computed again from the logits, in their place",
  ["gelu input 1"] = "the derivative is taken at x",
  ["silu input 1"] = "the derivative is taken at x",
  ["relu output 1"] = "the gradient passes where the output is above 0",
  ["cross_entropy input 2"] = "which class every row should have been",
  ["cross_entropy output 2"] = "the log-sum-exp of every row of logits",
  ["embedding input 1"] = "which rows of the weight the gradient is added to",
  ["checkpoint input"] = "the region starts again from its arguments",
}

local function reason(op, role, number)
  local key = string.format("%s %s %d", op, role, number)
  return REASONS[key] or REASONS[op .. " " .. role]
    or string.format("backward of %s reads its %s %d", op, role, number)
end

local value = ffi.new("neap_saved")

local function new_row(stage, owner, is_new)
  local shape = {}
  for d = 1, value.n_dims do shape[d] = value.dims[d - 1] end
  local op, role = ffi.string(C.neap_op_name(value.op)), ROLES[value.role]
  return { stage = stage, op = op, number = value.node + 1,
    what = string.format("%s %d", role, value.number + 1), why = reason(op, role, value.number + 1),
    shape = shape, dtype = DTYPES[value.dtype], bytes = is_new and value.bytes or 0, owner = owner,
    also = {} }
end

-- rows of one stage's tape; inputs: storages of x_i
local function list(rows, by_storage, stage, tape, boundaries)
  local here = {}
  for v = 0, check(C.neap_tape_n_values(tape)) - 1 do
    check(C.neap_tape_value(tape, v, value))
    local id = value.storage
    if id > 0 and here[id] then
      local op = ffi.string(C.neap_op_name(value.op))
      table.insert(here[id].also, string.format("%s (op %d)", op, value.node + 1))
    elseif id > 0 then
      local owner = OWNERS[value.tag] or boundaries[id] and "boundary" or "residual"
      local counted = owner == "residual" or owner == "boundary"
      local row = new_row(stage, owner, counted and not by_storage[id])
      here[id], by_storage[id] = row, true
      rows[#rows + 1] = row
    end
  end
end

local function storages(into, tensors, n)
  for k = 1, n do into[C.neap_tensor_storage(tensors[k].id)] = true end
end

local function run(chain, batch)
  local rows, by_storage, ctx = {}, {}, { batch = batch }
  local x, n, tapes = { batch.inputs }, 1, {}
  local ok, err = pcall(function()
    for i, stage in ipairs(chain.stages) do
      local y, boundaries = {}, {}
      local n_y, tape = stage_run.forward(stage, i - 1, x, n, ctx, stage_run.RECORD, y)
      tapes[#tapes + 1] = tape
      storages(boundaries, x, n)
      storages(boundaries, y, n_y)
      list(rows, by_storage, stage.name, tape, boundaries)
      x, n = y, n_y
    end
  end)
  for _, tape in ipairs(tapes) do C.neap_tape_free(tape) end
  if not ok then error(err, 0) end
  return rows
end

--- Bytes of residuals and boundaries that backward holds, each storage once.
---@return number
function Saved:bytes()
  local sum = 0
  for _, row in ipairs(self) do sum = sum + row.bytes end
  return sum
end

Saved.__tostring = function(self)
  local lines = { string.format("%-12s %-16s %-9s %-18s %-5s %12s  %s", "stage", "op", "what",
    "shape", "dtype", "bytes", "why") }
  for _, row in ipairs(self) do
    local shown = row.bytes > 0 and bytes.format(row.bytes) or row.owner
    lines[#lines + 1] = string.format("%-12s %-16s %-9s %-18s %-5s %12s  %s", row.stage,
      string.format("%d %s", row.number, row.op), row.what,
      "(" .. table.concat(row.shape, ", ") .. ")", row.dtype, shown, row.why)
  end
  lines[#lines + 1] = string.format("%s kept for backward", bytes.format(self:bytes()))
  return table.concat(lines, "\n")
end

--- What a forward of the chain on this batch keeps for backward when nothing is dropped: a row a
--- tensor. print() shows it as a table. Runs the forward; nothing stays.
---@param chain neap.Chain
---@param batch { inputs: neap.Tensor, targets: neap.Tensor? }
---@return neap.SavedTensor[]
function M.saved(chain, batch)
  stage_run.check_chain(chain, "saved")
  argument.table(batch, "saved: batch", "a table { inputs =, targets = }")
  tensor.id_of(batch.inputs, "saved: batch.inputs")
  local position = ffi.new("neap_rng_state")
  check(C.neap_rng_get(position))
  local buffers = require("neap.checkpoint.buffers")
  local copies = buffers.of(chain) or {}
  buffers.remember(copies)
  local before = check(C.neap_tape_select(0))
  local ok, rows = pcall(scope.run, run, chain, batch)
  C.neap_tape_select(before)
  buffers.restore(copies)
  buffers.free(copies)
  C.neap_rng_set(position)
  if not ok then error(rows, 0) end
  return setmetatable(rows, Saved)
end

return M
