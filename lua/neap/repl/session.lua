-- A training that is tuned live: the trainer, what policies would take, what was measured.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local config_module = require("neap.config")
local fail = require("neap.fail")
local forecast_module = require("neap.forecast")
local keeping = require("neap.checkpoint.keeping")
local main_job = require("neap.main_job")
local policy = require("neap.checkpoint.policy")
local trainer_module = require("neap.trainer")
local undo = require("neap.repl.undo")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

---@class neap.Session
---@field trainer neap.Trainer|nil
---@field say fun(line: string)   lines while a word runs
---@field tell fun(line: string)  remarks, for stderr
local Session = {}
Session.__index = Session

---@class neap.SessionRow  what a policy takes
---@field spec neap.Policy
---@field forecast neap.Forecast
---@field prediction neap.Prediction
---@field chunks integer[]
---@field chunk integer        the one of the peak
---@field extra_cost number    a fraction of keep-all's FLOPs
---@field keep_all_bytes number  peak of a step that keeps everything

---@param o { say: fun(line: string), tell: fun(line: string), stop_asked: fun(): boolean,
---  options: table<string, any>|nil, sets: string[]|nil }  options and sets go over every config
---@return neap.Session
function M.new(o)
  return setmetatable({ say = o.say, tell = o.tell, stop_asked = o.stop_asked, measured = {},
    options = o.options or {}, sets = o.sets or {} }, Session)
end

--- Takes a trainer that is prepared already, as after a training.
---@param trainer neap.Trainer
---@param name string
function Session:adopt(trainer, name)
  if self.trainer then self:close() end
  self.trainer, self.name = trainer, name
  self.measured, self.forecasts = {}, {}
  trainer.stop_asked = self.stop_asked
end

--- Frees the model.
function Session:close()
  local trainer = self.trainer
  if not trainer then return end
  self.trainer = nil
  trainer:free()
  -- a device of its own; the user's tensors may still live there
  if trainer.config.budget then pcall(trainer.device.close, trainer.device) end
end

local function read_config(self, config)
  if type(config) ~= "table" then
    argument.text(config, "load: the config's path")
    return config_module.load(config, self.sets, self.options)
  end
  local options = {}
  for key, value in pairs(config) do options[key] = value end
  for key, value in pairs(self.options) do options[key] = value end
  return config_module.load(nil, self.sets, options)
end

--- Reads a config and makes its model; the one before stays when that fails.
---@param config string|table  a path, or keys
function Session:load(config)
  local trainer = trainer_module.new(read_config(self, config),
    { build = main_job.build, tell = self.tell })
  local ok, err = pcall(trainer.prepare, trainer)
  if not ok then
    if trainer.model then trainer.model:free() end
    error(err, 0)
  end
  self:adopt(trainer, type(config) == "string" and config or "a table")
end

--- The trainer, or an error that says how to get one.
function Session:need()
  if not self.trainer then fail.usage("no model is loaded; load(\"CONFIG.lua\") makes one") end
  return self.trainer
end

---@param spec string|table|neap.Policy|nil  nil: the one in use
function Session:spec_of(spec)
  local trainer = self:need()
  if spec == nil then return trainer.spec end
  local available = C.neap_memory_available(trainer.device.id)
  return policy.parse(spec, available >= 0 and available or nil)
end

-- a forecast that knows all modes of these policies; measured once
local function forecast_for(self, specs)
  local own, modes, names = self.trainer.forecast, {}, {}
  for _, mode in ipairs(own.modes) do modes[#modes + 1] = mode end
  for _, spec in ipairs(specs) do
    for _, mode in ipairs(policy.modes(spec)) do keeping.add(modes, mode, tostring(spec)) end
  end
  if #modes == #own.modes then return own end
  for i, mode in ipairs(modes) do names[i] = keeping.name(mode) end
  table.sort(names)
  local key = table.concat(names, " ")
  if not self.forecasts[key] then
    local options = {}
    for name, value in pairs(own.options) do options[name] = value end
    options.modes, options.chunks = modes, self.trainer.chunks
    self.forecasts[key] = forecast_module.new(options)
  end
  return self.forecasts[key]
end

--- What a policy takes in a step. Raises "does not fit" where no plan keeps its plan budget.
---@param spec neap.Policy
---@param o { chunk: integer|nil, with: neap.Policy[]|nil }|nil  with: its modes are measured too
---@return neap.SessionRow
function Session:row(spec, o)
  o = o or {}
  local trainer = self.trainer
  local chunks = o.chunk and forecast_module.chunks(trainer.config.global_batch, o.chunk)
    or trainer.chunks
  local forecast = forecast_for(self, { spec, unpack(o.with or {}) })
  local prediction, keep_all = forecast:predict(spec, chunks), forecast:predict("none", chunks)
  return { spec = spec, forecast = forecast, prediction = prediction, chunks = chunks,
    chunk = prediction.chunk or chunks[1], keep_all_bytes = keep_all.peak_bytes,
    extra_cost = keep_all.cost > 0 and prediction.cost / keep_all.cost - 1 or 0 }
end

--- Raises "does not fit" when a row's policy takes more than the device budget or its plan budget.
---@param row neap.SessionRow
function Session:check_fits(row)
  row.forecast:refuse(row.spec.text, row.prediction, self.trainer.device.budget_bytes)
end

--- Makes a policy the one in use.
---@param spec neap.Policy
---@param chunk integer|nil
---@return neap.SessionRow
function Session:use(spec, chunk)
  local trainer = self:need()
  local row = self:row(spec, { chunk = chunk })
  self:check_fits(row)
  trainer:retune(row.chunks, spec, row.forecast, row.prediction)
  return row
end

local function key_of(row) return row.spec.text .. " " .. row.chunks[1] end

---@class neap.Measured
---@field peak_bytes number        of the step, without what the session's user holds
---@field activation_bytes number  in forward and backward
---@field seconds number|nil
---@field user_bytes number
---@field tags table<string, number>  alive at the peak, by tag

local function keep(self, row, others, peak, work, seconds)
  local old = self.measured[key_of(row)]
  work = work - others.work_bytes
  local plan = row.prediction.plans[row.chunk]
  if plan then plan.measured_peak_bytes = work end
  self.measured[key_of(row)] = {
    peak_bytes = math.max(peak - others.bytes, old and old.peak_bytes or 0),
    activation_bytes = work, user_bytes = others.bytes,
    tags = self.trainer.device:memory().tags_at_peak,
    seconds = self.trainer.device:computes() and seconds or nil }
end

-- bytes that are alive beside the training: tensors made at the prompt. Restarts both meters
local function others_of(trainer)
  local device = trainer.device.id
  check(C.neap_memory_restart(device, C.NEAP_METER_STEP))
  check(C.neap_memory_restart(device, C.NEAP_METER_WORK))
  return { work_bytes = C.neap_memory_peak(device, C.NEAP_METER_WORK),
    bytes = math.max(0, C.neap_memory_live(device) - trainer.forecast.fixed_bytes) }
end

--- What was measured under a policy, nil where it never ran.
function Session:measured_of(row) return self.measured[key_of(row)] end

--- Forward and backward of the next step's items under a policy, without an update: parameters,
--- optimizer, random numbers and position stay. Not run where it does not fit the device.
---@param row neap.SessionRow
---@return neap.Measured|nil
function Session:trial(row)
  local trainer = self.trainer
  local budget = trainer.device.budget_bytes
  if row.prediction.infeasible or budget and row.prediction.peak_bytes > budget then return nil end
  local device, rng = trainer.device.id, ffi_neap.ffi.new("neap_rng_state")
  local before = { trainer.forecast, trainer.prediction, trainer.chunks }
  local buffers = undo.copy(trainer.model:buffers(), trainer.device:computes())
  check(C.neap_rng_get(rng))
  local others = others_of(trainer)
  trainer.forecast, trainer.prediction, trainer.chunks = row.forecast, row.prediction,
    row.chunks
  local started = C.neap_now()
  local ok, err = pcall(function()
    trainer.norm:zero()
    trainer:accumulate()
    trainer.norm:measure()
  end)
  local seconds = C.neap_now() - started
  trainer.forecast, trainer.prediction, trainer.chunks = unpack(before)
  trainer.norm:zero()
  undo.put_back(buffers)
  C.neap_rng_set(rng)
  if not ok then error(err, 0) end
  keep(self, row, others, C.neap_memory_peak(device, C.NEAP_METER_STEP),
    C.neap_memory_peak(device, C.NEAP_METER_WORK), seconds)
  return self:measured_of(row)
end

local function steps(self, n)
  local trainer = self.trainer
  for i = 1, n do
    self.running = i
    local row = trainer:train_step()
    if self.stop_asked() then fail.raise("interrupted", "after a step") end
    if n <= 20 or i == 1 or i == n or i % math.ceil(n / 20) == 0 then
      self.say(trainer:step_line(row))
    end
  end
end

--- Optimizer updates. After Ctrl-C or an error everything is as before: none of them was done.
---@param n integer
---@return neap.SessionRow
function Session:step(n)
  local trainer = self:need()
  argument.whole(n, "step: its argument", 1, 1e9)
  local row = self:row(trainer.spec)
  self:check_fits(row)
  local kept, others = undo.take(trainer), others_of(trainer)
  trainer.measured_peak, trainer.activation_peak = 0, 0
  local ok, err = pcall(steps, self, n)
  if not ok then
    undo.restore(trainer, kept)
    if not fail.is(err, "interrupted") then error(err, 0) end
    fail.raise("interrupted", string.format("step: stopped by Ctrl-C in step %d of %d; the model, "
      .. "its optimizer, random numbers and position in the data are as before", self.running, n))
  end
  keep(self, row, others, trainer.measured_peak, trainer.activation_peak, trainer:median_seconds())
  return row
end

return M
