-- Measures the actions of one stage: their peaks and ends in bytes, and what they cost.
local ffi_neap = require("neap.ffi")
local fail = require("neap.fail")
local mode_module = require("neap.checkpoint.mode")
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

local BYTES = { forward_flops = "forward_bytes", backward_flops = "backward_bytes" }
local moved_bytes -- by the ops of the last cost_of

local function cost_of(uses_flops, direction, fn, ...)
  check(C.neap_counters_get(counters))
  local flops, bytes = counters[direction], counters[BYTES[direction]]
  local started = C.neap_now()
  local a, b, c, d = fn(...)
  local seconds = C.neap_now() - started
  check(C.neap_counters_get(counters))
  local cost = uses_flops and counters[direction] - flops or seconds * 1e9
  moved_bytes = counters[BYTES[direction]] - bytes
  return math.floor(cost + 0.5), a, b, c, d
end

local function forward(p, i, how, outputs, trace)
  return stage_run.forward(p.chain.stages[i + 1], i, p.xs[i], #p.xs[i], p.ctx, how, outputs, trace)
end

-- a recomputation that stops early: what it makes, at most and in the end, and what it costs
local function measure_early(p, i, trace)
  local profile, outputs = p.stages[i + 1], {}
  C.neap_recomputing_set(1)
  local ok, cost, peak, _, _, tape = pcall(cost_of, p.uses_flops, "forward_flops", metered,
    p.device, forward, p, i, stage_run.EARLY, outputs, trace)
  C.neap_recomputing_set(0)
  if not ok then error(cost, 0) end
  profile.stops_early, profile.recompute_cost = true, cost
  profile.recompute_moved_bytes = moved_bytes
  profile.forward_peak_bytes[4] = peak
  local held = 0
  for k = 1, #outputs do held = held + C.neap_tensor_bytes(outputs[k].id) end
  profile.recompute_extra_bytes = math.max(0, peak - held)
  C.neap_tape_free(tape)
  free_all(outputs)
end

-- the forwards of stage i; leaves x_{i+1} in xs
function M.forward(p, i)
  local stage, inputs, outputs = p.chain.stages[i + 1], p.xs[i], {}
  local trace = mode_module.trace(nil, nil, p.check_kind)
  local ok, err = pcall(function()
    local cost, peak, made = cost_of(p.uses_flops, "forward_flops", metered, p.device, forward, p,
      i, stage_run.TRACE, outputs, trace)
    local out, new_bytes = sources(inputs, outputs)
    local check_bytes = check(C.neap_trace_check_bytes(trace))
    if made ~= new_bytes + check_bytes then
      fail.raise("invalid plan", string.format("stage '%s' leaves %.0f bytes alive beside its "
        .. "outputs; its forward must free or return what it makes", stage.name,
        made - new_bytes - check_bytes))
    end
    p.stages[i + 1] = {
      name = stage.name, measured = true, out = out, out_bytes = distinct_bytes(outputs),
      forward_extra_bytes = math.max(0, peak - new_bytes), forward_cost = cost,
      forward_peak_bytes = { peak, peak, 0, 0 }, forward_moved_bytes = moved_bytes,
      check_bytes = check_bytes > 0 and check_bytes or nil, -- copies of the value check
    }
    p.xs[i + 1] = {} -- not among what lives while it is recomputed
    measure_early(p, i, trace)
    p.xs[i + 1] = outputs
  end)
  C.neap_trace_free(trace)
  if not ok then error(err, 0) end
end

local function gradient_bytes(grads, n)
  local sum = 0
  for k = 1, n do
    if grads[k] then sum = sum + C.neap_tensor_bytes(grads[k].id) end
  end
  return sum
end

local function copies(grads, n)
  local out = {}
  for k = 1, n do
    out[k] = grads[k] and tensor.on(C.neap_tensor_device(grads[k].id), grads[k]:dims())
      :copy_from(grads[k]) or false
  end
  return out
end

-- one mode of stage i: a forward that keeps some outputs, and a backward that makes the rest again
local function measure_mode(p, i, mode, positions)
  local stage, inputs, profile, outputs = p.chain.stages[i + 1], p.xs[i], p.stages[i + 1], {}
  local trace = mode_module.trace(mode, positions)
  local n_inputs = i > 0 and #inputs or 0
  local ok, err = pcall(function()
    local cost, peak, made, n = cost_of(p.uses_flops, "forward_flops", metered, p.device, forward,
      p, i, stage_run.TRACE, outputs, trace)
    local _, new_bytes = sources(inputs, outputs)
    local saves_out = 0
    for k = 1, #outputs do
      if C.neap_trace_holds(trace, outputs[k].id) == 1 then saves_out = saves_out + 2 ^ (k - 1) end
    end
    local m = { name = mode.name, saved_bytes = made - new_bytes, forward_cost = cost,
      forward_peak_bytes = peak, forward_extra_bytes = math.max(0, peak - made),
      saves_in = 0, saves_out = saves_out, keep_at = positions,
      forward_moved_bytes = moved_bytes }
    local grads, input_grads, made_again = copies(p.grads, n), {}, {}
    local function backward()
      local n_again, tape = forward(p, i, stage_run.EARLY, made_again, trace)
      for k = 1, n_again do made_again[k]:free() end
      stage_run.backward(stage, tape, grads, n, input_grads, n_inputs)
    end
    C.neap_recomputing_set(1)
    check(C.neap_counters_get(counters))
    local flops = counters.forward_flops + counters.backward_flops
    local bytes = counters.forward_bytes + counters.backward_bytes
    local started = C.neap_now()
    local done, back_peak = pcall(metered, p.device, backward)
    C.neap_recomputing_set(0)
    if not done then error(back_peak, 0) end
    local seconds = C.neap_now() - started
    check(C.neap_counters_get(counters))
    flops = counters.forward_flops + counters.backward_flops - flops
    m.backward_cost = math.floor((p.uses_flops and flops or seconds * 1e9) + 0.5)
    m.backward_moved_bytes = counters.forward_bytes + counters.backward_bytes - bytes
    m.backward_peak_bytes = back_peak
    m.backward_extra_bytes = math.max(0, back_peak - profile.grad_bytes)
    profile.modes = profile.modes or {}
    profile.modes[#profile.modes + 1] = m
    free_all(input_grads)
  end)
  C.neap_trace_free(trace)
  free_all(outputs)
  if not ok then error(err, 0) end
end

-- where a mode with a function keeps what in this stage
local function positions_of(p, i, mode)
  if not mode.keep then return nil end
  local trace, outputs = mode_module.trace(), {}
  local ok, result = pcall(function()
    forward(p, i, stage_run.TRACE, outputs, trace)
    return mode_module.positions(mode, trace, p.chain.stages[i + 1].name)
  end)
  C.neap_trace_free(trace)
  free_all(outputs)
  if not ok then error(result, 0) end
  return result
end

-- the recorded forward and the backward of stage i; p.grads holds the gradients of x_{i+1}
function M.backward(p, i)
  local stage, inputs, profile = p.chain.stages[i + 1], p.xs[i], p.stages[i + 1]
  local outputs, n_inputs = {}, i > 0 and #p.xs[i] or 0
  free_all(p.xs[i + 1])
  local peak, made, n, tape = metered(p.device, forward, p, i, stage_run.RECORD, outputs)
  local _, new_bytes = sources(inputs, outputs)
  profile.forward_peak_bytes[3] = peak
  profile.saved_bytes = made - new_bytes
  profile.saves_in = i > 0 and mask(tape, inputs) or 0
  profile.saves_out = mask(tape, outputs)
  if i == #p.chain.stages - 1 then p.seed(outputs) end
  local for_modes = p.modes[1] and copies(p.grads, n)
  local before = gradient_bytes(p.grads, n)
  local input_grads = {}
  local cost, back_peak, change = cost_of(p.uses_flops, "backward_flops", metered, p.device,
    stage_run.backward, stage, tape, p.grads, n, input_grads, n_inputs)
  profile.backward_peak_bytes = back_peak
  profile.backward_cost, profile.backward_moved_bytes = cost, moved_bytes
  profile.grad_bytes = change + before + profile.saved_bytes
  profile.backward_extra_bytes = math.max(0, back_peak - profile.grad_bytes)
  free_all(outputs)
  if for_modes then
    p.grads = for_modes
    for _, mode in ipairs(p.modes) do measure_mode(p, i, mode, positions_of(p, i, mode)) end
    free_all(for_modes)
  end
  p.grads = input_grads
  if i > 0 then p.xs[i + 1] = {} end
end

return M
