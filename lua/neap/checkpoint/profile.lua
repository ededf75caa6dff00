-- Measures a chain: the bytes of every kind of action, exactly, and what they cost. On null in
-- milliseconds for any model; elsewhere the stages really run.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local buffers = require("neap.checkpoint.buffers")
local fail = require("neap.fail")
local mode_module = require("neap.checkpoint.mode")
local profile_stage = require("neap.checkpoint.profile_stage")
local scope = require("neap.scope")
local stage_run = require("neap.checkpoint.stage_run")
local stage_traces = require("neap.checkpoint.stage_traces")
local tensor = require("neap.tensor")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

local function measure(p)
  local n = #p.chain.stages
  for i = 0, n - 1 do profile_stage.forward(p, i) end
  for i = n - 1, 0, -1 do profile_stage.backward(p, i) end
  return { stages = p.stages, unit = p.uses_flops and "FLOPs" or "nanoseconds" }
end

-- gradients that are there go to host memory for the time of a measuring pass
local function put_aside(chain, computes)
  local kept = {}
  for k, p in ipairs(chain:parameters()) do
    local grad, n = p.tensor:grad(), p.tensor:numel() * 4
    kept[k] = { id = grad.id, n = n, host = computes and ffi.new("uint8_t[?]", math.max(n, 1)) }
    if computes then check(C.neap_tensor_read(grad.id, kept[k].host, n)) end
  end
  chain:zero_grad()
  return kept
end

local function put_back(kept)
  for _, g in ipairs(kept) do
    if g.host then C.neap_tensor_write(g.id, g.host, g.n) else C.neap_tensor_fill(g.id, 0) end
  end
end

-- a measuring pass leaves gradients, buffers and the position of random numbers as they were
local function measure_apart(p)
  -- tensors that were forgotten must not be freed while bytes are counted
  collectgarbage()
  collectgarbage()
  local gradients = put_aside(p.chain, C.neap_device_computes(p.device) == 1)
  local list = buffers.of(p.chain) or {}
  local position = ffi.new("neap_rng_state")
  check(C.neap_rng_get(position))
  buffers.remember(list)
  local before = check(C.neap_tape_select(0))
  -- a tensor that the collector frees meanwhile would count as one that a stage freed
  local collects = collectgarbage("isrunning")
  collectgarbage()
  collectgarbage()
  collectgarbage("stop")
  local ok, result = pcall(scope.run, measure, p)
  if collects then collectgarbage("restart") end
  C.neap_tape_select(before)
  buffers.restore(list)
  buffers.free(list)
  C.neap_rng_set(position)
  put_back(gradients)
  if not ok then error(result, 0) end
  return result
end

local option_names = { "cost", "modes", "check" }

--- Profiles a chain on the device of the batch. Parameters, gradients, buffers and the position of
--- random numbers are as before afterwards; gradients that were not there yet are zero.
---@param chain neap.Chain
---@param batch { inputs: neap.Tensor, targets: neap.Tensor? }
---@param options? { cost?: "flops"|"seconds", modes?: (string|neap.Mode)[],
---  check?: "shape"|"value"|"none" }  flops by default on null, else seconds; modes to measure
---@return neap.Profile
function M.measure(chain, batch, options)
  stage_run.check_chain(chain, "profile")
  argument.table(batch, "profile: batch", "a table { inputs =, targets = }")
  local device = check(C.neap_tensor_device(tensor.id_of(batch.inputs, "profile: batch.inputs")))
  options = argument.options(options, "profile", option_names)
  local cost, modes = options.cost, {}
  for k, mode in ipairs(options.modes and argument.table(options.modes, "profile: modes") or {}) do
    modes[k] = mode_module.read(mode, "profile")
  end
  if cost == nil then cost = C.neap_device_computes(device) == 1 and "seconds" or "flops" end
  if cost ~= "flops" and cost ~= "seconds" then
    fail.usage("profile: %s", fail.unknown("cost", argument.word(cost), { "flops", "seconds" }))
  end
  local p = { chain = chain, device = device, ctx = { batch = batch },
    xs = { [0] = { batch.inputs } }, stages = {}, grads = {}, uses_flops = cost == "flops",
    modes = modes, check_kind = stage_traces.check_kind(options.check, "profile") }
  function p.seed(outputs)
    if #outputs ~= 1 or outputs[1]:numel() ~= 1 then
      fail.raise("shape mismatch", "the chain's last stage must return the loss, one number")
    end
    p.grads = { tensor.on(device, outputs[1]:dims()):fill(1) }
  end
  return measure_apart(p)
end

return M
