-- The traces of a chain's stages: one each, made when a plan first drops the stage, used again
-- every step.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local mode_module = require("neap.checkpoint.mode")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.StageTraces
local Traces = {}
Traces.__index = Traces

local CHECKS = { none = C.NEAP_CHECK_NONE, shape = C.NEAP_CHECK_SHAPE, value = C.NEAP_CHECK_VALUE }

--- The number of a check's name; nil is "shape".
---@param name "shape"|"value"|"none"|nil
---@return integer
function M.check_kind(name, who)
  if name == nil then return CHECKS.shape end
  local kind = type(name) == "string" and CHECKS[name]
  if not kind then
    fail.usage("%s: %s", who, fail.unknown("check", argument.word(name),
      { "shape", "value", "none" }))
  end
  return kind
end

---@param n integer  stages
---@param check_name "shape"|"value"|"none"|nil
---@return neap.StageTraces
function M.new(n, check_name)
  local self = setmetatable({ n = n, kind = M.check_kind(check_name, "executor"), id = {},
    mode = {}, ready = {}, modes = {}, positions = {} }, Traces)
  local id = self.id
  self.guard = ffi.gc(ffi.new("int[1]"), function()
    for i = 0, n - 1 do
      if id[i] then C.neap_trace_free(id[i]) end
    end
  end)
  return self
end

--- Where modes with a function keep what, by stage.
---@param profile neap.Profile
function Traces:use_profile(profile)
  self.positions = {}
  for i, stage in ipairs(profile.stages) do
    for _, mode in ipairs(stage.modes or {}) do
      if mode.keep_at then
        self.positions[i - 1] = self.positions[i - 1] or {}
        self.positions[i - 1][mode.name] = mode.keep_at
      end
    end
  end
  self:clear_all(true)
end

--- Whether stage i has a trace of its first forward to follow.
function Traces:is_ready(i)
  return self.id[i] ~= nil and self.id[i] ~= false and self.ready[i]
end

-- what a mode keeps, by its name
local function mode_named(self, name)
  if not self.modes[name] then
    local ok, mode = pcall(mode_module.read, name)
    if not ok then
      fail.raise("invalid plan", string.format("what mode '%s' keeps is not known here; tell the "
        .. "executor the profile that was measured with it: executor:use_profile(profile)", name))
    end
    self.modes[name] = mode
  end
  return self.modes[name]
end

--- The trace of stage i; another mode gets a new one.
---@param i integer
---@param mode string|nil
---@return integer
function Traces:get(i, mode)
  mode = mode or false
  if self.id[i] and self.mode[i] == mode then
    self.ready[i] = true
    return self.id[i]
  end
  if self.id[i] then C.neap_trace_free(self.id[i]) end
  self.id[i] = false
  local positions = mode and self.positions[i] and self.positions[i][mode]
  local parsed = mode and not positions and mode_named(self, mode) or nil
  self.id[i], self.mode[i] = mode_module.trace(parsed, positions or nil, self.kind), mode
  self.ready[i] = true
  return self.id[i]
end

--- A new micro-batch: no stage has run.
function Traces:restart()
  for i = 0, self.n - 1 do self.ready[i] = false end
end

--- Gives back what the trace of stage i holds.
function Traces:clear(i)
  self.ready[i] = false
  if self.id[i] then check(C.neap_trace_clear(self.id[i])) end
end

--- All of them, after an error; also the traces themselves when they are not good any more.
function Traces:clear_all(also_free)
  for i = 0, self.n - 1 do
    self.ready[i] = false
    if self.id[i] then
      if also_free then
        C.neap_trace_free(self.id[i])
        self.id[i] = false
      else
        C.neap_trace_clear(self.id[i])
      end
    end
  end
end

--- Copies for the value check that are alive, in bytes.
---@return number
function Traces:check_bytes()
  local sum = 0
  for i = 0, self.n - 1 do
    if self.id[i] then sum = sum + check(C.neap_trace_check_bytes(self.id[i])) end
  end
  return sum
end

return M
