-- neap.auto_chunk{ mode = "step" }: how many items a whole step of a script's model may take. A
-- trial is a real forward and backward of exactly n items under the plan; the optimizer's state is
-- there, as the caller made it, and stays as it is.
local N = require("neap.ffi")
local argument = require("neap.argument")
local chunk_memory = require("neap.chunk_memory")
local chunk_plan = require("neap.chunk_plan")
local chunk_step = require("neap.chunk_step")
local device_module = require("neap.device")
local executor_module = require("neap.checkpoint.executor")
local fail = require("neap.fail")
local rng = require("neap.rng")
local stage_run = require("neap.checkpoint.stage_run")
local tensor = require("neap.tensor")
local unchanged = require("neap.unchanged")

local C, check = N.C, N.check
local M = {}

local MOST = 2 ^ 31 - 1
local MARGINS = { cuda = 0.05 } -- what others allocate on the card while we run

local option_names = { "mode", "model", "batch", "plan", "cap", "floor", "margin", "device",
  "memory", "settle", "log" }

---@class neap.ChunkScript
---@field model neap.Chain
---@field batch fun(n: integer): table
---@field cap integer
---@field floor integer
---@field margin number
---@field device neap.Device
---@field log fun(line: string)|false

local function read(o)
  argument.options(o, "auto_chunk", option_names)
  stage_run.check_chain(o.model, "auto_chunk")
  argument.fn(o.batch, "auto_chunk: batch")
  local self = { model = o.model, batch = o.batch }
  self.cap = argument.whole(o.cap, "auto_chunk: cap", 1, MOST)
  self.floor = o.floor == nil and 1 or argument.whole(o.floor, "auto_chunk: floor", 1, MOST)
  self.floor = math.min(self.floor, self.cap)
  self.device = o.device == nil and device_module.current()
    or device_module.checked(o.device, "auto_chunk: device")
  self.margin = o.margin
  if self.margin == nil then self.margin = MARGINS[self.device.name:match("^%a+")] or 0 end
  if type(self.margin) ~= "number" or not (self.margin >= 0 and self.margin < 1) then
    fail.usage("auto_chunk: margin must be a share of the memory, 0 to below 1, found %s",
      argument.shown(o.margin))
  end
  self.log = o.log
  if o.log == nil then self.log = function(line) io.stderr:write(line, "\n") end end
  if self.log then argument.fn(self.log, "auto_chunk: log") end
  self.plans = chunk_plan.of(o.plan)
  self.memory = chunk_memory.source(self.device, o.memory, o.settle)
  self.is_told = o.memory ~= nil
  return self
end

-- exactly n items on the device, or a sentence: fewer would take less than the step that comes
local function items(self, n)
  local batch = argument.table(self.batch(n), "auto_chunk: what batch returns",
    "a table { inputs =, targets = }")
  local id = tensor.id_of(batch.inputs, "auto_chunk: batch(n).inputs")
  if check(C.neap_tensor_device(id)) ~= self.device.id then
    fail.usage("auto_chunk: batch(%d).inputs is on another device than the one that is measured "
      .. "(%s); say device =", n, self.device.name)
  end
  local found = check(C.neap_tensor_n_dims(id)) > 0 and C.neap_tensor_dim(id, 0) or 1
  if found ~= n then
    fail.raise("wrong state", string.format("auto_chunk: batch(%d) gave %.0f items, expected "
      .. "exactly %d; begin again where the data ends", n, found, n))
  end
  return batch
end

local function place(n)
  local at = rng.get()
  rng.place(at.seed, at.step, at.item, n)
end

-- the trials have a store of their own, so that the one that a script looks at stays what it is
local function executor_of(model)
  local made = rawget(model, "_executor")
  if made then return made:beside(), false end
  return executor_module.new(model), true
end

local function search(self, limit)
  local executor, is_ours = executor_of(self.model)
  local ok, found = pcall(chunk_step.find, {
    device = self.device, cap = self.cap, floor = self.floor, limit = limit, margin = self.margin,
    log = function(trial) if self.log then self.log(chunk_step.trial_line(trial)) end end,
    before = function(n) return self.plans:at(self, n) end,
    run = function(n, plan)
      place(n)
      executor:run(items(self, n), plan)
      return n
    end,
  })
  if is_ours then executor:free() end
  if not ok then error(found, 0) end
  return found
end

-- beyond what the caller says is free an allocation fails, as on a device that is full
local function under(device, limit, fn, ...)
  local before = device.budget_bytes
  if before and before <= limit then return fn(...) end
  device:set_budget(limit)
  local ok, result = pcall(fn, ...)
  device:set_budget(before)
  if not ok then error(result, 0) end
  return result
end

local function finish(self, found, free, total)
  local out = { kind = found.n and "chosen" or "nothing_fits", n = found.n,
    within_budget = found.n and true or nil, unmeasured = false, stop = found.reason,
    used_bytes = found.bytes, item_bytes = found.n and found.bytes / found.n or nil,
    free_bytes = free, total_bytes = total, cap = self.cap, floor = self.floor,
    trials = found.trials, margin = found.margin, limit_bytes = found.limit_bytes,
    line = found.line, needed_bytes = found.needed_bytes,
    reason = not found.n and found.failed or nil }
  if self.log then self.log(out.line) end
  return out.n, out
end

--- The largest n of floor..cap whose step fits, and what there is to know about it.
---@param o table  see neap.auto_chunk
---@return integer|nil n
---@return neap.ChunkOutcome outcome
function M.auto(o)
  local self = read(o)
  self.memory.settle()
  local free, total = self.memory.query()
  if free == nil then
    local line = string.format("auto_chunk: the free memory is not told here, keep the default "
      .. "(cap %d, floor %d)", self.cap, self.floor)
    if self.log then self.log(line) end
    return nil, { kind = "unsupported", unmeasured = false, stop = "unsupported", cap = self.cap,
      floor = self.floor, margin = self.margin, trials = {}, line = line }
  end
  free, total = tonumber(free), tonumber(total)
  local limit = math.min(self.device:memory().live_bytes + free, 2 ^ 53)
  self.plans:prepare(self, function(look, fn) return unchanged.run(look, fn) end)
  local found
  if self.is_told then
    found = under(self.device, limit, search, self, limit)
  else
    found = search(self, limit)
  end
  return finish(self, found, free, total)
end

return M
