-- What the actions of a plan do to the state of an executor: boundaries x, records (tapes or traces
-- of modes), and the gradient at the front of the backward walk.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local buffers = require("neap.checkpoint.buffers")
local fail = require("neap.fail")
local stage_run = require("neap.checkpoint.stage_run")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

local tensor_t = ffi.typeof("neap_tensor")
local loss_host = ffi.new("float[1]")
local dims_buffer = ffi.new("double[8]")
local ACTIVATIONS, RECOMPUTE = C.NEAP_TAG_ACTIVATIONS, C.NEAP_TAG_RECOMPUTE
local ALREADY_FED = -1ULL
local PLAIN, TRACE, RECORD = stage_run.PLAIN, stage_run.TRACE, stage_run.RECORD
local AGAIN, EARLY = stage_run.AGAIN, stage_run.EARLY

--- Frees the first n tensors of a list.
function M.free_list(list, n)
  for k = 1, n do
    if list[k] then C.neap_tensor_free(list[k].id) end
    list[k] = false
  end
end
local free_list = M.free_list

local function free_x(self, i)
  free_list(self.x[i], self.n_x[i])
  self.n_x[i] = 0
end

--- Drops what stage i keeps for its backward.
function M.free_record(self, i)
  if self.mode[i] then
    self.traces:clear(i)
    self.mode[i] = false
  end
  C.neap_tape_free(self.tape[i])
  self.tape[i] = 0
  free_list(self.hold[i], #self.hold[i])
end
local free_record = M.free_record

-- a boundary that the record saves stays until its backward ends, whenever x is freed
local function hold_outputs(self, i)
  local outputs, hold = self.x[i + 1], self.hold[i]
  for k = 1, self.n_x[i + 1] do
    hold[k] = false
    if check(C.neap_tape_saves(self.tape[i], outputs[k].id)) == 1 then
      hold[k] = tensor_t(check(C.neap_tensor_detach(outputs[k].id)))
    end
  end
end

-- the loss is read, and its gradient appears
local function take_loss(self)
  local loss = self.x[self.n][1]
  if self.n_x[self.n] ~= 1 or C.neap_tensor_n_elements(loss.id) ~= 1
    or C.neap_tensor_dtype(loss.id) ~= C.NEAP_F32 then
    fail.raise("shape mismatch", string.format("stage '%s' ends the chain and must return the "
      .. "loss, one f32 number", self.chain.stages[self.n].name))
  end
  check(C.neap_tensor_read(loss.id, loss_host, 4))
  self.loss = loss_host[0]
  local n_dims = C.neap_tensor_n_dims(loss.id)
  for i = 0, n_dims - 1 do dims_buffer[i] = 1 end
  local id = check(C.neap_tensor_new(C.neap_tensor_device(loss.id), C.NEAP_F32, n_dims, dims_buffer,
    ACTIVATIONS))
  check(C.neap_tensor_fill(id, self.weight))
  self.grads[1] = tensor_t(id)
end

local function remember(self, i, first, keep)
  local name, manager = self.chain.stages[i + 1].name, self.running.c
  if first then
    local stored = keep == "everything"
    local payload = stored and self.tape[i] ~= 0 and self.tape[i] or 1
    check(C.neap_manager_record_payload(manager, name, i, self.saved_bytes[i], payload,
      self.costs[i], stored and 0 or 1))
  else
    check(C.neap_manager_deliver(manager, name, ALREADY_FED))
    self.recomputed = self.recomputed + 1
  end
end

-- runs the stage; a recomputation sees the buffers as they were at first
local function run_stage(self, i, how, trace, outputs)
  local list, stage = self.buffers[i], self.chain.stages[i + 1]
  local again = self.seen[i]
  if list then
    if again then buffers.enter(list) else buffers.remember(list) end
  end
  C.neap_tag_select(again and RECOMPUTE or ACTIVATIONS)
  C.neap_recomputing_set(again and 1 or 0)
  self.seen[i] = true
  if not (list and again) then
    return stage_run.forward(stage, i, self.x[i], self.n_x[i], self.ctx, how, outputs, trace)
  end
  local ok, n, tape = pcall(stage_run.forward, stage, i, self.x[i], self.n_x[i], self.ctx, how,
    outputs, trace)
  buffers.leave(list)
  if not ok then error(n, 0) end
  return n, tape
end

local function how_of(self, i, keep, mode, early)
  if mode then return TRACE end
  if keep ~= "everything" then return self.seen[i] and PLAIN or TRACE end
  if not self.seen[i] or not self.traces:is_ready(i) then return RECORD end
  return early and EARLY or AGAIN
end

local function check_forward(self, i, keep)
  local name = self.chain.stages[i + 1].name
  if self.n_x[i] == 0 then
    fail.raise("invalid plan", string.format("forward of stage '%s': its input is not there", name))
  end
  if keep == "everything" and (self.tape[i] ~= 0 or self.mode[i]) then
    fail.raise("invalid plan", string.format("forward of stage '%s': its activations are kept "
      .. "already", name))
  end
end

-- early: its backward is next, so that nobody needs its output
local function forward(self, i, keep, mode, early)
  check_forward(self, i, keep)
  local first = not self.seen[i]
  local how = how_of(self, i, keep, mode, early)
  local trace = how ~= PLAIN and how ~= RECORD and self.traces:get(i, mode) or nil
  local n, tape = run_stage(self, i, how, trace, self.x[i + 1])
  self.n_x[i + 1] = n
  self.forwards = self.forwards + 1
  if mode then self.mode[i] = mode end
  if tape ~= 0 then
    self.tape[i] = tape
    hold_outputs(self, i)
  end
  remember(self, i, first, keep)
  if keep == "nothing" and i > 0 then free_x(self, i) end
  if how == EARLY then free_x(self, i + 1) end
  if first and i == self.n - 1 then take_loss(self) end
end

-- the rest of what backward needs, made again from what the mode kept
local function complete(self, i)
  local trace = self.traces:get(i, self.mode[i])
  local outputs = self.again_outputs or {}
  self.again_outputs = outputs
  local n, tape = run_stage(self, i, EARLY, trace, outputs)
  self.mode[i] = false
  free_list(outputs, n)
  self.tape[i] = tape
  self.traces:clear(i)
end

local function backward(self, i)
  local stage = self.chain.stages[i + 1]
  if self.mode[i] then complete(self, i) end
  local tape = self.tape[i]
  if tape == 0 then
    fail.raise("recomputation failed", string.format("backward of stage '%s': its activations were "
      .. "dropped and not recomputed", stage.name))
  end
  C.neap_tag_select(ACTIVATIONS)
  self.tape[i] = 0
  self.backwards = self.backwards + 1
  local n_inputs = i > 0 and self.n_x[i] or 0
  stage_run.backward(stage, tape, self.grads, #self.grads, self.next_grads, n_inputs)
  for k = n_inputs + 1, #self.next_grads do self.next_grads[k] = nil end
  self.grads, self.next_grads = self.next_grads, self.grads
  free_list(self.hold[i], #self.hold[i])
end

local KEEPS = { nothing = true, input = true, everything = true }

local function no_action(self, a, action)
  local shown = argument.shown(action)
  if type(action) == "table" then
    shown = string.format("op %s, stage %s, keep %s, what %s", argument.shown(action.op),
      argument.shown(action.stage), argument.shown(action.keep), argument.shown(action.what))
  end
  fail.raise("invalid plan", string.format("action %d is none of a plan of %d stages: %s", a,
    self.n, shown))
end

local function act(self, a, action, next_action)
  local i = type(action) == "table" and action.stage
  if type(i) ~= "number" or not (i >= 0 and i <= self.n) or i % 1 ~= 0 then
    no_action(self, a, action)
  end
  local op, what = action.op, action.what
  if op == "forward" and i < self.n and KEEPS[action.keep or ""] then
    local mode = action.keep == "everything" and action.mode or nil
    local early = self.seen[i] and next_action and next_action.op == "backward"
      and next_action.stage == i
    forward(self, i, action.keep, mode, early)
  elseif op == "backward" and i < self.n then
    backward(self, i)
  elseif op == "free" and what == "x" and i > 0 then
    free_x(self, i)
  elseif op == "free" and what == "r" and i < self.n then
    free_record(self, i)
  else
    no_action(self, a, action)
  end
end

--- Runs all actions of a plan.
---@param self neap.Executor
---@param actions neap.Action[]
function M.run(self, actions)
  for a = 1, #actions do act(self, a, actions[a], actions[a + 1]) end
  if self.backwards ~= self.n then
    fail.raise("invalid plan", string.format("the plan has %d backwards, the model %d stages",
      self.backwards, self.n))
  end
end

return M
