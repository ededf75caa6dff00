-- Runs a plan on a chain: the one executor for every policy. The checkpoint manager is its store:
-- what was kept or dropped, what was recomputed, and in which order, are on record there.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local manager_module = require("neap.checkpoint.manager")
local plan_module = require("neap.checkpoint.plan")
local profile_module = require("neap.checkpoint.profile")
local scope = require("neap.scope")
local stages_module = require("neap.checkpoint.stages")
local stage_run = require("neap.checkpoint.stage_run")
local tensor = require("neap.tensor")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.Executor
---@field manager neap.Manager  the store of the last micro-batch
---@field forwards integer      forward actions of the last micro-batch
---@field recomputed integer    those beyond the first of each stage
local Executor = {}
Executor.__index = Executor

local tensor_t = ffi.typeof("neap_tensor")
local snapshot = ffi.new("neap_snapshot")
local loss_host = ffi.new("float[1]")
local dims_buffer = ffi.new("double[8]")
local ACTIVATIONS, RECOMPUTE = C.NEAP_TAG_ACTIVATIONS, C.NEAP_TAG_RECOMPUTE
local ALREADY_FED = -1ULL

---@param chain neap.Chain
---@return neap.Executor
function M.new(chain)
  stage_run.check_chain(chain, "executor")
  local self = setmetatable({
    chain = chain, n = #chain.stages, ctx = {}, manager = manager_module.new("none"),
    x = {}, n_x = {}, tape = {}, hold = {}, seen = {}, grads = {}, next_grads = {},
    saved_bytes = {}, costs = {}, forwards = 0, backwards = 0, recomputed = 0, loss = 0, weight = 1,
  }, Executor)
  for i = 0, self.n do
    self.x[i], self.n_x[i], self.hold[i], self.tape[i] = {}, 0, {}, 0
    self.saved_bytes[i], self.costs[i] = 0, 0
  end
  return self
end

--- Tells what stages keep and cost, for the manager's statistics.
---@param profile neap.Profile
function Executor:use_profile(profile)
  argument.self(self, Executor, "executor:use_profile")
  local _, n = stages_module.read(profile)
  if n ~= self.n then
    fail.usage("the profile is of %d stages, the model has %d", n, self.n)
  end
  for i = 0, self.n - 1 do
    self.saved_bytes[i] = profile.stages[i + 1].saved_bytes
    self.costs[i] = profile.stages[i + 1].forward_cost
  end
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
  local name, manager = self.chain.stages[i + 1].name, self.manager.c
  if first then
    local stored = keep == "everything"
    check(C.neap_manager_record_payload(manager, name, i, self.saved_bytes[i],
      stored and self.tape[i] or 1, self.costs[i], stored and 0 or 1))
  else
    check(C.neap_manager_deliver(manager, name, ALREADY_FED))
    self.recomputed = self.recomputed + 1
  end
end

local function forward(self, i, keep)
  local first, stage = not self.seen[i], self.chain.stages[i + 1]
  if self.n_x[i] == 0 then
    fail.raise("invalid plan", string.format("forward of stage '%s': its input is not there",
      stage.name))
  end
  if keep == "everything" and self.tape[i] ~= 0 then
    fail.raise("invalid plan", string.format("forward of stage '%s': its activations are kept "
      .. "already", stage.name))
  end
  C.neap_tag_select(first and ACTIVATIONS or RECOMPUTE)
  C.neap_recomputing_set(first and 0 or 1)
  local n, tape = stage_run.forward(stage, i, self.x[i], self.n_x[i], self.ctx,
    keep == "everything", self.x[i + 1])
  self.n_x[i + 1] = n
  self.seen[i] = true
  self.forwards = self.forwards + 1
  if tape ~= 0 then
    self.tape[i] = tape
    hold_outputs(self, i)
  end
  remember(self, i, first, keep)
  if keep == "nothing" and i > 0 then free_x(self, i) end
  if first and i == self.n - 1 then take_loss(self) end
end

local function backward(self, i)
  local stage = self.chain.stages[i + 1]
  local code = check(C.neap_manager_get(self.manager.c, stage.name, snapshot))
  local tape = code == 0 and snapshot.payload or self.tape[i]
  if tape == 0 or self.tape[i] == 0 then
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

local function act(self, a, action)
  local i = type(action) == "table" and action.stage
  if type(i) ~= "number" or not (i >= 0 and i <= self.n) or i % 1 ~= 0 then
    no_action(self, a, action)
  end
  local op, what = action.op, action.what
  if op == "forward" and i < self.n and KEEPS[action.keep or ""] then
    forward(self, i, action.keep)
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
  for a = 1, #actions do act(self, a, actions[a]) end
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
  check(C.neap_manager_clear(self.manager.c))
end

local function finish(self, depth, before_tape, before_tag, ok)
  C.neap_tape_select(before_tape)
  C.neap_tag_select(before_tag)
  C.neap_recomputing_set(0)
  C.neap_rng_stage(self.n) -- what is drawn next does not depend on the plan
  if not ok then
    for i = 0, self.n do free_record(self, i) end
  end
  scope.stop(depth)
  for i = 1, self.n do self.n_x[i] = 0 end
  for k = 1, #self.grads do self.grads[k] = nil end
  self.ctx.batch = nil
end

--- One micro-batch, forward and backward, under a plan. Gradients of parameters accumulate,
--- weighted. After an error memory, tapes and scopes are as before.
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
  local depth = scope.begin()
  local ok, err = pcall(act_all, self, plan.actions)
  finish(self, depth, before_tape, before_tag, ok)
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
      local n_y = stage_run.forward(self.chain.stages[i + 1], i, x, n, ctx, false, y)
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
