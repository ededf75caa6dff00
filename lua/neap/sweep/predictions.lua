-- What every trial will take, from one process: its model is counted on the null device, nothing is
-- computed. Raises what a trial would say before its first step.
local bytes = require("neap.bytes")
local data_module = require("neap.data")
local fail = require("neap.fail")
local main_job = require("neap.main_job")
local trainer_module = require("neap.trainer")

local M = {}

---@class neap.sweep.Prediction
---@field peak_bytes number
---@field activation_bytes number  of forward and backward beyond what is always there
---@field keep_all_bytes number    the same step's peak where nothing is dropped
---@field extra_cost number   FLOPs beside keep-all's, as a fraction
---@field verdict string      "fits", "does not fit", "no budget"
---@field why string|nil      of "does not fit"

-- the same text is read and counted once
local function cached_data()
  local known = {}
  return function(config)
    local key = table.concat({ tostring(config.data), config.context, config.seed }, "\0")
    known[key] = known[key]
      or data_module.open(config.data, { context = config.context, seed = config.seed })
    return known[key]
  end
end

-- opening a trainer resolves the checkpoint and chunk in the config it is given
local function copy_of(config)
  local copy = {}
  for key, value in pairs(config) do copy[key] = value end
  return copy
end

local function judge(trainer)
  local p = trainer.prediction
  local none = trainer.forecast:predict("none")
  local ok, err = pcall(trainer.check_budget, trainer)
  if not ok and not fail.is(err, "does not fit") then error(err, 0) end
  return {
    peak_bytes = p.peak_bytes, activation_bytes = p.plan_bytes, keep_all_bytes = none.peak_bytes,
    extra_cost = none.cost > 0 and p.cost / none.cost - 1 or 0,
    verdict = not ok and "does not fit" or trainer.device.budget_bytes and "fits" or "no budget",
    why = not ok and err.message or nil,
  }
end

--- Predicts trials. Raises "usage" where only the model can tell that a value is wrong.
---@param trials neap.sweep.Trial[]
---@param tell fun(line: string)
---@return table<string, neap.sweep.Prediction>  by id
function M.of(trials, tell)
  local out, open_data, told = {}, cached_data(), {}
  -- the device's line is the same for all
  local function tell_once(line)
    if not told[line] then tell(line) end
    told[line] = true
  end
  for _, trial in ipairs(trials) do
    local ok, err = pcall(function()
      local trainer = trainer_module.new(copy_of(trial.config), { build = main_job.build,
        tell = tell_once, open_data = open_data })
      out[trial.id] = judge(trainer)
      -- an open GPU would hold memory that the trials need
      if trial.config.budget or trainer.device.name:find("^cuda") then trainer.device:close() end
    end)
    if not ok and fail.is(err) then err = fail.with_place("trial " .. trial.text, err) end
    if not ok then error(err, 0) end
  end
  return out
end

--- A row a trial, as text.
---@param trials neap.sweep.Trial[]
---@param predictions table<string, neap.sweep.Prediction>
---@return string
function M.table(trials, predictions)
  local width = 8
  for _, trial in ipairs(trials) do width = math.max(width, math.min(#trial.text, 60)) end
  local name = "  %5s  %-" .. width .. "s"
  local lines = { string.format(name .. " %14s %14s %14s %12s  %s", "trial", "grid",
    "peak of a step", "in bytes", "activations", "extra FLOPs", "verdict") }
  for _, trial in ipairs(trials) do
    local p = predictions[trial.id]
    lines[#lines + 1] = string.format(name .. " %14s %14.0f %14s %11.1f%%  %s", trial.index,
      trial.text, bytes.format(p.peak_bytes), p.peak_bytes, bytes.format(p.activation_bytes),
      100 * p.extra_cost, p.verdict)
  end
  return table.concat(lines, "\n")
end

return M
