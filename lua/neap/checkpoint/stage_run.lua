-- One stage forward or backward, in a scope of its own. The executor and the profile share this, so
-- that what was measured is what runs.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local autograd = require("neap.autograd")
local fail = require("neap.fail")
local scope = require("neap.scope")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

local tensor_t = ffi.typeof("neap_tensor")
local istype = ffi.istype
local MOST = C.NEAP_MAX_BOUNDARY
local keep = ffi.new("double[?]", MOST)
local arguments = {}

-- results one by one without a table: k counts up, the list gets shorter
local function collect(tape, outputs, k, n, first, ...)
  if not istype(tensor_t, first) then
    fail.raise("invalid argument", string.format("forward must return 1 to %d tensors, result %d "
      .. "is %s", MOST, k, first == nil and "nil" or type(first)))
  end
  if k > MOST then
    fail.raise("invalid argument", string.format("forward must return 1 to %d tensors, found %d",
      MOST, n))
  end
  if tape ~= 0 then check(C.neap_tape_output(tape, first.id)) end
  local id = check(C.neap_tensor_detach(first.id))
  keep[k - 1] = id
  outputs[k] = tensor_t(id)
  if k < n then return collect(tape, outputs, k + 1, n, ...) end
  return n
end

local function collect_all(tape, outputs, ...)
  return collect(tape, outputs, 1, math.max(select("#", ...), 1), ...)
end

-- the stage's own handle of an input; new ones, because a layer may keep what it is given
local function own(tape, want_grad, input)
  if tape ~= 0 then return tensor_t(check(C.neap_tape_input(tape, input.id, want_grad))) end
  return tensor_t(check(C.neap_tensor_detach(input.id)))
end

local function inside(module, tape, want_grad, inputs, n_inputs, ctx, outputs)
  if n_inputs == 1 then
    return collect_all(tape, outputs, module:forward(own(tape, want_grad, inputs[1]), ctx))
  end
  for j = 1, n_inputs do arguments[j] = own(tape, want_grad, inputs[j]) end
  arguments[n_inputs + 1] = ctx
  return collect_all(tape, outputs, module:forward(unpack(arguments, 1, n_inputs + 1)))
end

--- Whether it is a Sequential that can be run by its stages.
---@param chain neap.Chain
function M.check_chain(chain, who)
  if type(chain) ~= "table" or type(rawget(chain, "stages")) ~= "table"
    or not rawget(chain, "_children") then
    fail.usage("%s: expected a Sequential, found %s", who, argument.shown(chain))
  end
end

--- Runs stage number index (from 0) on inputs; outputs is filled with new handles in the scope
--- around. After an error nothing is left.
---@param stage { name: string, module: neap.Module }
---@param record boolean  whether to record it for backward
---@return integer n_outputs
---@return integer tape  0 where nothing was recorded
function M.forward(stage, index, inputs, n_inputs, ctx, record, outputs)
  check(C.neap_rng_stage(index))
  local tape = record and check(C.neap_tape_new()) or 0
  local before = check(C.neap_tape_select(tape))
  local depth = scope.begin()
  local ok, n = pcall(inside, stage.module, tape, index > 0 and 1 or 0, inputs, n_inputs, ctx,
    outputs)
  C.neap_tape_select(before)
  scope.depth = depth - 1
  check(C.neap_scope_end(depth, ok and n or 0, keep))
  if not ok then
    C.neap_tape_free(tape)
    error(fail.with_place(string.format("stage '%s'", stage.name), n), 0)
  end
  return n, tape
end

local function walk(tape, gradients, n_outputs, input_gradients, n_inputs)
  for k = 1, n_outputs do
    if gradients[k] then
      check(C.neap_tape_seed(tape, k - 1, gradients[k].id))
      gradients[k] = false
    end
  end
  autograd.backward_tape(tape)
  for j = 1, n_inputs do
    local id = check(C.neap_tape_input_grad(tape, j - 1))
    input_gradients[j] = id > 0 and tensor_t(id) or false
  end
end

--- Runs the backward of a recorded stage. Takes the gradients of its outputs (false: none flows
--- there) and fills those of its inputs; frees the tape, also after an error.
function M.backward(stage, tape, gradients, n_outputs, input_gradients, n_inputs)
  local ok, err = pcall(walk, tape, gradients, n_outputs, input_gradients, n_inputs)
  C.neap_tape_free(tape)
  if not ok then
    error(fail.with_place(string.format("stage '%s' backward", stage.name), err), 0)
  end
end

return M
