-- Measures a chain: the bytes of every kind of action, exactly, and what they cost. On null in
-- milliseconds for any model; elsewhere the stages really run.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local scope = require("neap.scope")
local stage_run = require("neap.checkpoint.stage_run")
local tensor = require("neap.tensor")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

local METER = C.NEAP_METER_ACTION
local counters = ffi.new("neap_counters")

-- runs fn; its peak over the live bytes before, and what it left
local function metered(device, fn, ...)
  local before = check(C.neap_memory_live(device))
  check(C.neap_memory_restart(device, METER))
  local a, b = fn(...)
  return C.neap_memory_peak(device, METER) - before, C.neap_memory_live(device) - before, a, b
end

local function free_all(list)
  for k = 1, #list do
    if list[k] then list[k]:free() end
    list[k] = nil
  end
end

-- who each tensor of x_{i+1} shares its storage with; -1: it is new, with its bytes
local function sources(inputs, outputs)
  local seen, out, bytes = {}, {}, 0
  for j = 1, #inputs do
    local id = C.neap_tensor_storage(inputs[j].id)
    seen[id] = seen[id] or j - 1
  end
  for k = 1, #outputs do
    local id = C.neap_tensor_storage(outputs[k].id)
    local size = C.neap_tensor_bytes(outputs[k].id)
    out[k] = { source = seen[id] or -1, bytes = size }
    if not seen[id] then
      seen[id] = -1 - k -- -2 - (k - 1)
      bytes = bytes + size
    end
  end
  return out, bytes
end

local function distinct_bytes(tensors)
  local seen, bytes = {}, 0
  for _, t in ipairs(tensors) do
    local id = C.neap_tensor_storage(t.id)
    if not seen[id] then bytes = bytes + C.neap_tensor_bytes(t.id) end
    seen[id] = true
  end
  return bytes
end

local function mask(tape, tensors)
  local bits = 0
  for j = 1, #tensors do
    if check(C.neap_tape_saves(tape, tensors[j].id)) == 1 then bits = bits + 2 ^ (j - 1) end
  end
  return bits
end

local function cost_of(uses_flops, direction, fn, ...)
  check(C.neap_counters_get(counters))
  local flops = counters[direction]
  local started = C.neap_now()
  local a, b, c, d = fn(...)
  local seconds = C.neap_now() - started
  check(C.neap_counters_get(counters))
  local cost = uses_flops and counters[direction] - flops or seconds * 1e9
  return math.floor(cost + 0.5), a, b, c, d
end

-- the forwards of stage i; leaves x_{i+1} in xs
local function measure_forward(p, i)
  local stage, inputs, outputs = p.chain.stages[i + 1], p.xs[i], {}
  local function run(record)
    return stage_run.forward(stage, i, inputs, #inputs, p.ctx, record, outputs)
  end
  local cost, peak, made = cost_of(p.uses_flops, "forward_flops", metered, p.device, run, false)
  local out, new_bytes = sources(inputs, outputs)
  if made ~= new_bytes then
    fail.raise("invalid plan", string.format("stage '%s' leaves %d bytes alive beside its outputs; "
      .. "its forward must free or return what it makes", stage.name, made - new_bytes))
  end
  p.xs[i + 1] = outputs
  p.stages[i + 1] = {
    name = stage.name, measured = true, out = out, out_bytes = distinct_bytes(outputs),
    forward_extra_bytes = math.max(0, peak - new_bytes), forward_cost = cost,
    forward_peak_bytes = { peak, peak, 0, 0 },
  }
end

-- the recorded forward and the backward of stage i; p.grads holds the gradients of x_{i+1}
local function measure_backward(p, i)
  local stage, inputs, profile = p.chain.stages[i + 1], p.xs[i], p.stages[i + 1]
  local outputs = {}
  free_all(p.xs[i + 1])
  local peak, made, n, tape = metered(p.device, stage_run.forward, stage, i, inputs, #inputs, p.ctx,
    true, outputs)
  local _, new_bytes = sources(inputs, outputs)
  profile.forward_peak_bytes[3] = peak
  profile.saved_bytes = made - new_bytes
  profile.saves_in = i > 0 and mask(tape, inputs) or 0
  profile.saves_out = mask(tape, outputs)
  if i == #p.chain.stages - 1 then p.seed(outputs) end
  local gradient_bytes = 0
  for k = 1, n do
    if p.grads[k] then gradient_bytes = gradient_bytes + C.neap_tensor_bytes(p.grads[k].id) end
  end
  local input_grads = {}
  local cost, back_peak, change = cost_of(p.uses_flops, "backward_flops", metered, p.device,
    stage_run.backward, stage, tape, p.grads, n, input_grads, i > 0 and #inputs or 0)
  profile.backward_peak_bytes = back_peak
  profile.backward_cost = cost
  profile.grad_bytes = change + gradient_bytes + profile.saved_bytes
  profile.backward_extra_bytes = math.max(0, back_peak - profile.grad_bytes)
  p.grads = input_grads
  free_all(outputs)
  if i > 0 then p.xs[i + 1] = {} end
end

local function measure(p)
  local n = #p.chain.stages
  for i = 0, n - 1 do measure_forward(p, i) end
  for i = n - 1, 0, -1 do measure_backward(p, i) end
  return { stages = p.stages, unit = p.uses_flops and "FLOPs" or "nanoseconds" }
end

--- Profiles a chain on the device of the batch. Parameters stay as they are; their gradients are
--- zero afterwards.
---@param chain neap.Chain
---@param batch { inputs: neap.Tensor, targets: neap.Tensor? }
---@param options? { cost?: "flops"|"seconds" }  flops by default on null, else seconds
---@return neap.Profile
function M.measure(chain, batch, options)
  stage_run.check_chain(chain, "profile")
  argument.table(batch, "profile: batch", "a table { inputs =, targets = }")
  local device = check(C.neap_tensor_device(tensor.id_of(batch.inputs, "profile: batch.inputs")))
  local cost = argument.options(options, "profile", { "cost" }).cost
  if cost == nil then cost = C.neap_device_computes(device) == 1 and "seconds" or "flops" end
  if cost ~= "flops" and cost ~= "seconds" then
    fail.usage("profile: %s", fail.unknown("cost", argument.word(cost), { "flops", "seconds" }))
  end
  chain:zero_grad()
  local p = { chain = chain, device = device, ctx = { batch = batch },
    xs = { [0] = { batch.inputs } }, stages = {}, grads = {}, uses_flops = cost == "flops" }
  function p.seed(outputs)
    if #outputs ~= 1 or outputs[1]:numel() ~= 1 then
      fail.raise("shape mismatch", "the chain's last stage must return the loss, one number")
    end
    p.grads = { tensor.on(device, outputs[1]:dims()):fill(1) }
  end
  local before = check(C.neap_tape_select(0))
  local ok, result = pcall(scope.run, measure, p)
  C.neap_tape_select(before)
  chain:zero_grad()
  if not ok then error(result, 0) end
  return result
end

return M
