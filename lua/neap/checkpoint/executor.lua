-- Runs a plan on a chain: the one executor for every policy. The checkpoint manager is its store:
-- what was kept or dropped, what was recomputed, and in which order, are on record there.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local buffers = require("neap.checkpoint.buffers")
local fail = require("neap.fail")
local manager_module = require("neap.checkpoint.manager")
local plan_module = require("neap.checkpoint.plan")
local profile_module = require("neap.checkpoint.profile")
local scope = require("neap.scope")
local stages_module = require("neap.checkpoint.stages")
local stage_run = require("neap.checkpoint.stage_run")
local stage_traces = require("neap.checkpoint.stage_traces")
local tensor = require("neap.tensor")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.Executor
---@field manager neap.Manager  the store of the last micro-batch that ran to its end
---@field forwards integer      forward actions of the last micro-batch
---@field recomputed integer    those beyond the first of each stage
local Executor = {}
Executor.__index = Executor

local tensor_t = ffi.typeof("neap_tensor")
local loss_host = ffi.new("float[1]")
local dims_buffer = ffi.new("double[8]")
local rng_before = ffi.new("neap_rng_state")
local ACTIVATIONS, RECOMPUTE = C.NEAP_TAG_ACTIVATIONS, C.NEAP_TAG_RECOMPUTE
local ALREADY_FED = -1ULL
local PLAIN, TRACE, RECORD = stage_run.PLAIN, stage_run.TRACE, stage_run.RECORD
local AGAIN, EARLY = stage_run.AGAIN, stage_run.EARLY

---@param chain neap.Chain
---@param options? { check?: "shape"|"value"|"none" }  how recomputations are compared with the
---  first forward; "value" keeps a copy of every saved tensor (tag check)
---@return neap.Executor
function M.new(chain, options)
  stage_run.check_chain(chain, "executor")
  options = argument.options(options, "executor", { "check" })
  local n = #chain.stages
  local self = setmetatable({
    chain = chain, n = n, ctx = {}, manager = manager_module.new("none"),
    running = manager_module.new("none"), traces = stage_traces.new(n, options.check),
    x = {}, n_x = {}, tape = {}, hold = {}, seen = {}, grads = {}, next_grads = {}, mode = {},
    saved_bytes = {}, costs = {}, buffers = {}, forwards = 0, backwards = 0, recomputed = 0,
    loss = 0, weight = 1,
  }, Executor)
  for i = 0, n do
    self.x[i], self.n_x[i], self.hold[i], self.tape[i], self.mode[i] = {}, 0, {}, 0, false
    self.saved_bytes[i], self.costs[i] = 0, 0
    self.buffers[i] = i < n and buffers.of(chain.stages[i + 1].module) or false
  end
  return self
end

--- Tells what stages keep and cost, for the manager's statistics, and what modes keep.
---@param profile neap.Profile
function Executor:use_profile(profile)
  argument.self(self, Executor, "executor:use_profile")
  if self.profile == profile then return end
  local _, n = stages_module.read(profile)
  if n ~= self.n then
    fail.usage("the profile is of %d stages, the model has %d", n, self.n)
  end
  for i = 0, self.n - 1 do
    self.saved_bytes[i] = profile.stages[i + 1].saved_bytes
    self.costs[i] = profile.stages[i + 1].forward_cost
  end
  self.traces:use_profile(profile)
  self.profile = profile
end

local function free_list(list, n)
  for k = 1, n do
    if list[k] then C.neap_tensor_free(list[k].id) end
    list[k] = false
  end
end

local function free_x(self, i)
  free_list(self.x[i], self.n_x[i])
  self.n_x[i] = 0
end

local function free_record(self, i)
  if self.mode[i] then
    self.traces:clear(i)
    self.mode[i] = false
  end
  C.neap_tape_free(self.tape[i])
  self.tape[i] = 0
  free_list(self.hold[i], #self.hold[i])
end

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

local function act_all(self, actions)
  for a = 1, #actions do act(self, a, actions[a], actions[a + 1]) end
  if self.backwards ~= self.n then
    fail.raise("invalid plan", string.format("the plan has %d backwards, the model %d stages",
      self.backwards, self.n))
  end
end

local function start(self, batch)
  self.ctx.batch = batch
  self.x[0][1], self.n_x[0] = batch.inputs, 1
  self.forwards, self.backwards, self.recomputed, self.loss = 0, 0, 0, 0
  for i = 0, self.n do self.seen[i] = false end
  self.traces:restart()
  check(C.neap_rng_get(rng_before))
  check(C.neap_manager_clear(self.running.c))
end

-- after an error everything is as before the step, also what stages wrote into their buffers
local function undo(self)
  for i = self.n - 1, 0, -1 do
    free_record(self, i)
    if self.buffers[i] and self.seen[i] then buffers.restore(self.buffers[i]) end
  end
  self.traces:clear_all()
  C.neap_rng_set(rng_before)
end

local function finish(self, depth, before_tape, before_tag, before_recomputing, ok)
  C.neap_tape_select(before_tape)
  C.neap_tag_select(before_tag)
  C.neap_recomputing_set(before_recomputing)
  if ok then
    C.neap_rng_stage(self.n) -- what is drawn next does not depend on the plan
    self.manager, self.running = self.running, self.manager
  else
    undo(self)
  end
  scope.stop(depth)
  for i = 1, self.n do self.n_x[i] = 0 end
  for k = 1, #self.grads do self.grads[k] = nil end
  self.ctx.batch = nil
end

--- One micro-batch, forward and backward, under a plan. Gradients of parameters accumulate,
--- weighted. After an error memory, tapes, scopes, buffers, the manager and the position of random
--- numbers are as before; gradients are not.
---@param batch { inputs: neap.Tensor, targets: neap.Tensor? }
---@param plan neap.Plan  made for this chain
---@param weight? number  gradient of the loss; items of the chunk / items of the global batch
---@return number loss
function Executor:run(batch, plan, weight)
  argument.self(self, Executor, "executor:run")
  argument.table(batch, "step: batch", "a table { inputs =, targets = }")
  if type(plan) ~= "table" or type(plan.actions) ~= "table" then
    fail.usage("step: expected a plan, found %s", type(plan) == "table" and "no actions"
      or argument.shown(plan))
  end
  if weight ~= nil then argument.number(weight, "step: the weight") end
  if plan.n_stages ~= self.n then
    fail.usage("the plan is for %s stages, the model has %d", argument.shown(plan.n_stages), self.n)
  end
  tensor.id_of(batch.inputs, "step: batch.inputs")
  start(self, batch)
  self.weight = weight or 1
  local before_tape, before_tag = check(C.neap_tape_select(0)),
    check(C.neap_tag_select(ACTIVATIONS))
  local before_recomputing = C.neap_recomputing()
  local depth = scope.begin()
  local ok, err = pcall(act_all, self, plan.actions)
  finish(self, depth, before_tape, before_tag, before_recomputing, ok)
  if not ok then error(err, 0) end
  return self.loss
end

--- Loss (or logits) of a batch without recording anything and without recomputing: each stage in
--- turn, only the running one's input and output alive. Returns the last stage's tensor.
---@param batch { inputs: neap.Tensor, targets: neap.Tensor? }
---@return neap.Tensor
function Executor:evaluate(batch)
  argument.self(self, Executor, "executor:evaluate")
  argument.table(batch, "evaluate: batch", "a table { inputs =, targets = }")
  tensor.id_of(batch.inputs, "evaluate: batch.inputs")
  local ctx = { batch = batch }
  local before = check(C.neap_tape_select(0))
  local ok, result = pcall(scope.run, function()
    local x, n = { batch.inputs }, 1
    for i = 0, self.n - 1 do
      local y = {}
      local n_y = stage_run.forward(self.chain.stages[i + 1], i, x, n, ctx, PLAIN, y)
      if i > 0 then free_list(x, n) end
      x, n = y, n_y
    end
    return x[1]
  end)
  C.neap_tape_select(before)
  if not ok then error(result, 0) end
  return result
end

--- One micro-batch of a model under a plan (or a policy, then the model is profiled first).
---@param model neap.Chain
---@param batch { inputs: neap.Tensor, targets: neap.Tensor? }
---@param plan neap.Plan|string|table
---@return number loss
---@return neap.Executor executor  with the manager and counts of this run
function M.step(model, batch, plan)
  stage_run.check_chain(model, "step")
  local executor = rawget(model, "_executor")
  if not executor then
    executor = M.new(model)
    rawset(model, "_executor", executor)
  end
  if type(plan) ~= "table" or not plan.actions then
    local profile = profile_module.measure(model, batch, { cost = "flops" })
    executor:use_profile(profile)
    if plan == nil then plan = "none" end
    plan = plan_module.build(plan, profile)
  end
  return executor:run(batch, plan), executor
end

return M
