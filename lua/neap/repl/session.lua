-- A training that is tuned live: the trainer, what policies would take, what was measured.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local config_module = require("neap.config")
local device_module = require("neap.device")
local fail = require("neap.fail")
local forecast_module = require("neap.forecast")
local keeping = require("neap.checkpoint.keeping")
local main_job = require("neap.main_job")
local policy = require("neap.checkpoint.policy")
local session_runs = require("neap.repl.session_runs")
local trainer_module = require("neap.trainer")
local C = ffi_neap.C

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
  local before, trainer = device_module.current(), nil
  local ok, err = pcall(function()
    trainer = trainer_module.new(read_config(self, config),
      { build = main_job.build, tell = self.tell })
    trainer:prepare()
  end)
  if not ok then
    if trainer and trainer.model then trainer.model:free() end
    local opened = device_module.current()
    if opened ~= before then
      pcall(opened.close, opened) -- the one of another model stays
      device_module.make_current(before)
    end
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

--- What a policy takes in a step.
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

--- The row of a policy that somebody asks for; "does not fit" where no plan keeps its budget.
function Session:wanted(spec, o)
  local row = self:row(spec, o)
  if row.prediction.infeasible then fail.raise("does not fit", row.prediction.infeasible) end
  return row
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

-- what runs and measures: trial, step, measured_of
for name, fn in pairs(session_runs) do Session[name] = fn end

return M
