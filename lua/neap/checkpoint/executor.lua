-- Runs a plan on a chain: the one executor for every policy. The checkpoint manager is its store:
-- what was kept or dropped, what was recomputed, and in which order, are on record there.
local ffi_neap = require("neap.ffi")
local actions = require("neap.checkpoint.actions")
local argument = require("neap.argument")
local buffers = require("neap.checkpoint.buffers")
local fail = require("neap.fail")
local manager_module = require("neap.checkpoint.manager")
local plan_module = require("neap.checkpoint.plan")
local policy = require("neap.checkpoint.policy")
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

local rng_before = ffi.new("neap_rng_state")
local ACTIVATIONS = C.NEAP_TAG_ACTIVATIONS
local PLAIN = stage_run.PLAIN

-- held: the copies of buffers that another executor of this model holds
local function make(chain, options, held)
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
    self.buffers[i] = not held and i < n and buffers.of(chain.stages[i + 1].module) or false
  end
  if held then self.buffers = held end
  return self
end

---@param chain neap.Chain
---@param options? { check?: "shape"|"value"|"none" }  how recomputations are compared with the
---  first forward; "value" keeps a copy of every saved tensor (tag check)
---@return neap.Executor
function M.new(chain, options)
  stage_run.check_chain(chain, "executor")
  return make(chain, argument.options(options, "executor", { "check" }))
end

--- Another executor of the same model, with a store of its own, that uses the copies of buffers
--- that this one holds: no memory beyond this one's. Not to be freed.
---@return neap.Executor
function Executor:beside()
  argument.self(self, Executor, "executor:beside")
  return make(self.chain, {}, self.buffers)
end

--- Tells what stages keep and cost, for the manager's statistics, and what modes keep.
---@param profile neap.Profile
function Executor:use_profile(profile)
  argument.self(self, Executor, "executor:use_profile")
  if profile ~= nil and self.profile == profile then return end
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
    actions.free_record(self, i)
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
  local profile = plan_module.profile_of(plan)
  -- what its modes keep is known there
  if profile and #profile.stages == self.n then self:use_profile(profile) end
  start(self, batch)
  self.weight = weight or 1
  local before_tape, before_tag = check(C.neap_tape_select(0)),
    check(C.neap_tag_select(ACTIVATIONS))
  local before_recomputing = C.neap_recomputing()
  local depth = scope.begin()
  local ok, err = pcall(actions.run, self, plan.actions)
  finish(self, depth, before_tape, before_tag, before_recomputing, ok)
  if not ok then error(err, 0) end
  return self.loss
end

--- Most bytes that copies for the value check take at once under a plan (tag check; the profile was
--- measured with check = "value"). They come on top of the plan's peak.
---@param plan neap.Plan
---@return number
function Executor:predicted_check_bytes(plan)
  argument.self(self, Executor, "executor:predicted_check_bytes")
  argument.table(plan, "predicted_check_bytes: the plan", "a plan")
  if not self.profile then
    fail.usage("predicted_check_bytes: tell the profile first, by use_profile")
  end
  local seen, held, sum, most = {}, {}, 0, 0
  for _, action in ipairs(plan.actions) do
    local i = action.stage
    local kept = action.op == "forward" and action.keep == "everything" and not action.mode
    if action.op == "forward" and not kept and (not seen[i] or action.mode) then
      held[i] = held[i] or self.profile.stages[i + 1].check_bytes or 0
      sum = sum + (seen[i] and 0 or held[i])
    elseif held[i] and (action.op == "backward" or (kept and seen[i])) then
      sum, held[i] = sum - held[i], nil
    end
    if action.op == "forward" then seen[i] = true end
    most = math.max(most, sum)
  end
  return most
end

--- Frees what the executor holds beside the model, two copies of each buffer; it cannot run after
--- that.
function Executor:free()
  argument.self(self, Executor, "executor:free")
  for i = 0, self.n - 1 do
    if self.buffers[i] then buffers.free(self.buffers[i]) end
  end
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
      if i > 0 then actions.free_list(x, n) end
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
    if plan == nil then plan = "none" end
    plan = policy.parse(plan)
    local profile = profile_module.measure(model, batch, { cost = "flops",
      modes = policy.modes(plan) })
    executor:use_profile(profile)
    plan = plan_module.build(plan, profile)
  end
  return executor:run(batch, plan), executor
end

return M
