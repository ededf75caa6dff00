-- Recording and walking back. Ops record on the selected tape; outside of regions that is the
-- ambient one.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local memory = require("neap.memory")
local tensor = require("neap.tensor")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

--- Called before each walk while somebody wants to know (the chunk prober, to put gradients back).
---@type fun()|nil
M.before_walk = nil

M.lua_ops = {} -- backward functions of ops defined in Lua, by op id

M.ambient = check(C.neap_tape_new())
check(C.neap_tape_select(M.ambient))

-- runs the backward function of a Lua op and gives its results to the tape
local function serve(tape, node)
  local number = check(C.neap_tape_node_op(tape, node))
  if number == C.NEAP_OP_REGION then return M.serve_region(tape, node) end
  local op = M.lua_ops[number]
  local saved, grads = {}, {}
  for k = 1, op.n_saved(tape, node) do
    saved[k] = tensor.wrap(C.neap_tape_node_saved(tape, node, k - 1))
  end
  for k = 1, op.n_outputs do
    local grad = check(C.neap_tape_node_grad(tape, node, k - 1))
    grads[k] = grad > 0 and tensor.wrap(grad) or false
  end
  local before = check(C.neap_tape_select(0))
  local results = { pcall(op.backward, saved, unpack(grads, 1, op.n_outputs)) }
  check(C.neap_tape_select(before))
  if not results[1] then error(fail.with_place(op.name .. " backward", results[2]), 0) end
  for i = 1, op.n_inputs do
    local grad = results[i + 1]
    if grad and C.neap_tape_node_wants(tape, node, i - 1) == 1 then
      -- the tape takes the handle; a copy of it, so that one tensor may be returned twice
      local id = check(C.neap_tensor_detach(tensor.id_of(grad, op.name .. " backward")))
      local code = C.neap_tape_node_give(tape, node, i - 1, id)
      if code < 0 then
        C.neap_tensor_free(id)
        check(code)
      end
    end
  end
  check(C.neap_tape_node_done(tape, node))
end

local function serve_scoped(tape, node)
  require("neap.scope").run(serve, tape, node)
end

-- step: one call into the library that walks until it is done, fails, or meets a Lua op
local function walk(step, about, tape)
  if M.before_walk then M.before_walk() end
  local retried = false
  while true do
    local code = step(about)
    if code == 0 then return end
    if code > 0 then
      serve_scoped(tape, code - 1)
      retried = false
    elseif not retried and memory.make_room(code) then
      retried = true
    else
      check(code)
    end
  end
end

local function tape_step(tape) return C.neap_tape_backward(tape) end
local function loss_step(id) return C.neap_backward(id) end

--- Walks a tape back to its start; seeds were given before.
function M.backward_tape(tape)
  walk(tape_step, tape, tape)
end

--- From a loss (one number) back to the leaves; then its history is freed.
---@param loss neap.Tensor
function M.backward(loss)
  local ok, err = pcall(walk, loss_step, tensor.id_of(loss, "backward"), C.neap_tape_selected())
  if ok then return end
  C.neap_backward_abandon()
  error(err, 0)
end

local function restore(before, ok, ...)
  C.neap_tape_select(before)
  if not ok then error((...), 0) end
  return ...
end

--- Runs fn(...) without recording.
function M.no_grad(fn, ...)
  argument.fn(fn, "no_grad: its argument")
  local before = check(C.neap_tape_select(0))
  return restore(before, pcall(fn, ...))
end

--- Whether the running region or stage is a recomputation of an earlier forward.
function M.is_recomputing()
  return C.neap_recomputing() == 1
end

tensor.methods.backward = M.backward

return M
