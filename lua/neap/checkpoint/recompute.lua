-- Recomputation of what a checkpoint manager dropped: closures, what they give, and what is held
-- meanwhile.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local guard = require("neap.checkpoint.guard")
local held = require("neap.checkpoint.held")
local whole = require("neap.checkpoint.whole")

local C, check = N.C, N.check
local M = {}

local ONLY_SIZE = -1ULL
local FAILED = "recomputation failed"

--- What the manager keeps of its recomputations.
---@class neap.Recomputing
---@field depth number  closures and holds that are running, one inside the other
---@field kept table<string, any>  recomputed since the outermost one began
---@field running table<string, boolean>
function M.new() return { depth = 0, kept = {}, running = {} } end

local function let_go(value)
  if held.is_handle(value) then held.let_go(value) end
end

--- Gives up what is kept of one name, or of all.
---@param self neap.Manager
---@param name string|nil
function M.forget(self, name)
  local kept = self.recomputing.kept
  if name then
    let_go(kept[name])
    kept[name] = nil
    return
  end
  self.recomputing.kept = {}
  for _, value in pairs(kept) do let_go(value) end
end

local function enter(self) self.recomputing.depth = self.recomputing.depth + 1 end

local function leave(self)
  local state = self.recomputing
  state.depth = state.depth - 1
  if state.depth == 0 then M.forget(self) end
end

local function shape_text(dims) return "[" .. table.concat(dims, ", ") .. "]" end

-- what the closure gave, compared with what was recorded; the number of elements for the C side
local function delivered_length(self, name, value)
  local id = held.id(value)
  local dims = id and held.dims(id) or type(value) == "table" and { #value }
  if not dims then
    fail.raise(FAILED, string.format("%s: the closure of '%s' returned %s; expected a tensor or an "
      .. "array of numbers", FAILED, name, argument.shown(value)))
  end
  local n, expected, n_expected = 1, self.dims[name], 1
  for _, dim in ipairs(dims) do n = n * dim end
  if not expected then return whole.u64(n, "delivered elements") end
  for _, dim in ipairs(expected) do n_expected = n_expected * dim end
  if n ~= n_expected or (id and shape_text(dims) ~= shape_text(expected)) then
    fail.raise("shape mismatch", string.format("shape mismatch: expected %s, got %s",
      shape_text(expected), shape_text(dims)))
  end
  return ONLY_SIZE
end

local function run(self, name, closure, previous)
  if type(closure) ~= "function" then
    fail.usage("manager:get: '%s' was dropped; expected a closure that recomputes it, found %s",
      name, argument.shown(closure))
  end
  local running = self.recomputing.running
  if running[name] then
    fail.raise(FAILED, string.format("%s: the closure of '%s' asks for '%s' itself", FAILED, name,
      name))
  end
  running[name] = true
  local ok, value = guard.recompute(closure, self, previous)
  running[name] = nil
  if not ok then
    local message = fail.message(value)
    if message:sub(1, #FAILED + 2) ~= FAILED .. ": " then message = FAILED .. ": " .. message end
    fail.raise(fail.is(value) and value.kind or FAILED, message)
  end
  check(C.neap_manager_deliver(self.c, name, delivered_length(self, name, value)))
  return value
end

--- The dropped activation: from what is kept, or by its closure. Kept while a closure or a hold
--- around it runs, so that closures which ask for earlier ones run once each.
---@param self neap.Manager
---@param name string
---@param closure function
---@param previous string|nil
---@return any
function M.get(self, name, closure, previous)
  local kept = self.recomputing.kept[name]
  if kept ~= nil then return kept end
  enter(self)
  local ok, value = pcall(run, self, name, closure, previous)
  if ok and self.recomputing.depth > 1 then
    local id = held.id(value)
    ok, kept = pcall(function() return id and held.hold(id) or value end)
    if ok then self.recomputing.kept[name] = kept else value = kept end
  end
  leave(self)
  if not ok then error(value, 0) end
  return value
end

local function finish(self, ok, ...)
  leave(self)
  if not ok then error((...), 0) end
  return ...
end

--- Runs fn(manager) and keeps what is recomputed meanwhile.
---@param self neap.Manager
---@param fn function
function M.hold(self, fn)
  enter(self)
  return finish(self, pcall(fn, self))
end

return M
