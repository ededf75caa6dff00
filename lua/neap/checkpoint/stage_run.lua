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

-- ways to run a stage
M.PLAIN = 0 -- nothing recorded: a recomputation on the way, or evaluation
M.TRACE = 1 -- nothing recorded, but remembered by a trace, for a recomputation to come
M.RECORD = 2 -- recorded for backward
M.AGAIN = 3 -- recorded, and checked against the trace of the first forward
M.EARLY = 4 -- the same, and what backward does not need is left out
local PLAIN, TRACE, RECORD, EARLY = M.PLAIN, M.TRACE, M.RECORD, M.EARLY

local function place_of(stage)
  local place = check(C.neap_place_find(string.format("stage '%s'", stage.name)))
  stage.place = place
  return place
end

-- inputs as they came: a stage that writes into them cannot be run again
local function check_inputs(tape, inputs, n_inputs)
  for j = 1, n_inputs do check(C.neap_tape_input_intact(tape, j - 1, inputs[j].id)) end
end

local function start(how, trace)
  if how == TRACE then return check(C.neap_trace_begin(trace)) end
  if how == PLAIN then return 0 end
  local tape = check(C.neap_tape_new())
  if how ~= RECORD then
    local code = C.neap_trace_follow(trace, tape, how == EARLY and 1 or 0)
    if code < 0 then
      C.neap_tape_free(tape)
      check(code)
    end
  end
  return tape
end

-- what closes a run that succeeded
local function close(how, tape, trace, inputs, n_inputs)
  if tape ~= 0 then check_inputs(tape, inputs, n_inputs) end
  if how == TRACE then
    check(C.neap_trace_end(trace))
  elseif how > RECORD then
    check(C.neap_trace_unfollow(trace, 1))
  end
end

local function abandon(how, tape, trace)
  if how == TRACE then
    C.neap_trace_clear(trace)
  elseif tape ~= 0 then
    if how ~= RECORD then C.neap_trace_unfollow(trace, 0) end
    C.neap_tape_free(tape)
  end
end

local function run(stage, tape, want_grad, inputs, n_inputs, ctx, outputs, how, trace)
  local n = inside(stage.module, tape, want_grad, inputs, n_inputs, ctx, outputs)
  close(how, tape, trace, inputs, n_inputs)
  return n
end

--- Runs stage number index (from 0) on inputs; outputs is filled with new handles in the scope
--- around. After an error nothing is left.
---@param stage { name: string, module: neap.Module }
---@param how integer   M.PLAIN, TRACE, RECORD, AGAIN or EARLY
---@param outputs neap.Tensor[]  after EARLY some have a shape and no contents
---@param trace integer|nil  of TRACE, AGAIN and EARLY
---@return integer n_outputs
---@return integer tape  0 where nothing was recorded
function M.forward(stage, index, inputs, n_inputs, ctx, how, outputs, trace)
  check(C.neap_rng_stage(index))
  local here = stage.place or place_of(stage)
  local tape = start(how, trace)
  local before = check(C.neap_tape_select(tape))
  local place = C.neap_place_select(here)
  local depth = scope.begin()
  local ok, n = pcall(run, stage, tape, index > 0 and 1 or 0, inputs, n_inputs, ctx, outputs, how,
    trace)
  C.neap_tape_select(before)
  C.neap_place_select(place)
  scope.depth = depth - 1
  check(C.neap_scope_end(depth, ok and n or 0, keep))
  if not ok then
    abandon(how, tape, trace)
    error(fail.with_place(string.format("stage '%s'", stage.name), n), 0)
  end
  return n, how == TRACE and 0 or tape
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
  local place = C.neap_place_select(stage.place or 0) -- set by its forward
  local ok, err = pcall(walk, tape, gradients, n_outputs, input_gradients, n_inputs)
  C.neap_tape_free(tape)
  C.neap_place_select(place)
  if not ok then
    error(fail.with_place(string.format("stage '%s' backward", stage.name), err), 0)
  end
end

return M
