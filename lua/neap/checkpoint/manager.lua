-- The checkpoint manager: activations by name, stored or dropped by a policy, recomputed on demand.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local held = require("neap.checkpoint.held")
local policies = require("neap.checkpoint.policy")
local recompute = require("neap.checkpoint.recompute")
local view = require("neap.checkpoint.manager_view")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

--- CHECKPOINTED means dropped: its data is gone and will be recomputed. STORED means held. Names
--- are unique until released. A manager's by_name compares bytes: "layer1" takes "layer10" too.
---@class neap.Manager
---@field policy neap.Policy
local Manager = {}
Manager.__index = Manager
Manager.__tostring = function(self)
  local stats = view.stats(self.c)
  return string.format("checkpoint manager %s: %d stored (%s bytes), %d checkpointed (%s bytes)",
    self.policy.text, stats.n_stored, whole.text(stats.stored_bytes), stats.n_checkpointed,
    whole.text(stats.checkpointed_bytes))
end

local pointer, snapshot_type = ffi.typeof("neap_manager *[1]"), ffi.typeof("neap_snapshot")
local ONLY_SIZE = -1ULL

---@param options string|table|neap.Policy  { policy = "every_n", n = 2 }; none, all, every_n,
--- by_name or greedy
---@return neap.Manager
function M.new(options)
  local policy = policies.parse(options)
  local c_policy, anchor = policies.to_c(policy)
  local out = pointer()
  check(C.neap_manager_new(c_policy, out))
  return setmetatable({
    c = ffi.gc(out[0], C.neap_manager_free),
    policy = policy,
    anchor = anchor,
    tensors = {}, -- name -> the tensor held for it
    dims = {}, -- name -> dims, of what was recorded as a tensor
    nodes = {}, -- name -> { name, stored, released, before }
    newest = nil,
    recomputing = recompute.new(),
  }, Manager)
end

--- Another policy for later records.
---@param options string|table|neap.Policy
function Manager:set_policy(options)
  argument.self(self, Manager, "manager:set_policy")
  local policy = policies.parse(options)
  local c_policy, anchor = policies.to_c(policy)
  check(C.neap_manager_set_policy(self.c, c_policy))
  self.policy, self.anchor = policy, anchor
end

local function checked_name(name, what)
  if type(name) ~= "string" or name:find("%z") then
    fail.usage("%s: name is %s; expected text without zero bytes", what, argument.shown(name))
  end
  return name
end

local function checked_cost(cost, what)
  if cost ~= nil and type(cost) ~= "number" then
    fail.usage("%s: cost is %s; expected a number", what, argument.shown(cost))
  end
  return cost or 0
end

local function checked_shape(shape, what)
  if type(shape) ~= "table" then
    fail.usage("%s: shape is %s; expected an array of dimensions", what, argument.shown(shape))
  end
  local dims = ffi.new("uint64_t[?]", math.max(#shape, 1))
  for i, dim in ipairs(shape) do dims[i - 1] = whole.u64(dim, what .. ": dimension " .. i) end
  return dims, #shape
end

-- a chain of what was recorded, each pointing at the nearest one before it that was stored
local function remember(self, name, stored)
  local before = self.newest
  while before and (before.released or not before.stored) do before = before.before end
  self.newest = { name = name, stored = stored, before = before }
  self.nodes[name] = self.newest
  return stored and "stored" or "checkpointed"
end

local function nearest_stored(node)
  local before = node and node.before
  while before and before.released do before = before.before end
  -- what was released is not walked again
  if node then node.before = before end
  return before and before.name
end

local function record_host(self, what, name, idx, data, n_data, shape, cost)
  checked_name(name, what)
  local index = whole.u64(idx, what .. ": idx")
  local dims, n_dims = checked_shape(shape, what)
  check(C.neap_manager_record(self.c, name, index, n_dims, dims, data, n_data,
    checked_cost(cost, what)))
  return remember(self, name, C.neap_manager_get(self.c, name, snapshot_type()) == 0)
end

--- Records plain numbers (as f32); their number is checked against the shape, also when they are
--- dropped. On an error nothing has changed.
---@param name string
---@param idx number  position in the chain, what every_n counts
---@param numbers number[]
---@param shape number[]
---@param cost number|nil  of recomputing it; kept while it is dropped
---@return "stored"|"checkpointed"
function Manager:record_data(name, idx, numbers, shape, cost)
  argument.self(self, Manager, "manager:record_data")
  local data, n = whole.floats(numbers, "manager:record_data")
  return record_host(self, "manager:record_data", name, idx, data, n, shape, cost)
end

--- Records the size alone: counted like data, but get gives nothing for a stored one.
---@return "stored"|"checkpointed"
function Manager:record_size(name, idx, shape, cost)
  argument.self(self, Manager, "manager:record_size")
  return record_host(self, "manager:record_size", name, idx, nil, ONLY_SIZE, shape, cost)
end

--- Records a tensor: a stored one is held without a copy until release or clear.
---@param name string
---@param idx number
---@param tensor table|ffi.cdata*
---@param cost number|nil
---@return "stored"|"checkpointed"
function Manager:record(name, idx, tensor, cost)
  argument.self(self, Manager, "manager:record")
  local what = "manager:record"
  checked_name(name, what)
  local index = whole.u64(idx, what .. ": idx")
  cost = checked_cost(cost, what)
  local id = held.id(tensor)
  if not id then
    fail.usage("%s: '%s' is %s; expected a tensor", what, name, argument.shown(tensor))
  end
  local dims, n_bytes = held.dims(id), check(C.neap_tensor_bytes(id))
  local handle = held.hold(id)
  local code = C.neap_manager_record_payload(self.c, name, index, n_bytes, handle.id, cost, -1)
  if code ~= 0 then held.let_go(handle) end
  check(code)
  self.dims[name] = dims
  if code == 0 then self.tensors[name] = handle end
  return remember(self, name, code == 0)
end

--- What is stored under the name, as it was recorded: a tensor (the manager's own handle, good
--- until release or clear), an array of numbers, or nil for a size. A dropped one is recomputed by
--- the closure, counted and logged, and not kept: the next get recomputes again. A closure may get
--- earlier ones in turn; what they give is kept until the outermost closure or hold ends, so that
--- each closure runs once, however many ask.
---@param name string
---@param closure (fun(manager: neap.Manager, previous: string|nil): any)|nil  gets the name of the
--- nearest stored activation before this one; an error in it keeps its kind, and leaves manager,
--- randomness, scopes and tape as they were
---@return any
function Manager:get(name, closure)
  argument.self(self, Manager, "manager:get")
  local snapshot = snapshot_type()
  local code = check(C.neap_manager_get(self.c, checked_name(name, "manager:get"), snapshot))
  if code == C.NEAP_NEED_RECOMPUTE then
    return recompute.get(self, name, closure, nearest_stored(self.nodes[name]))
  end
  if self.tensors[name] then return self.tensors[name] end
  if snapshot.data == nil then return nil end
  return whole.numbers(snapshot.data, tonumber(snapshot.n_data))
end

--- Runs fn(manager) and gives back what it returns. What is recomputed inside is kept until fn
--- ends and given again (a tensor as the manager's own handle): a backward pass over a segment
--- inside one hold runs each closure once, and holds the segment meanwhile.
---@param fn fun(manager: neap.Manager): any
---@return any
function Manager:hold(fn)
  argument.self(self, Manager, "manager:hold")
  return recompute.hold(self, argument.fn(fn, "manager:hold: its argument"))
end

--- Forgets one activation; its bytes leave the statistics and a tensor held for it is freed.
---@param name string
function Manager:release(name)
  argument.self(self, Manager, "manager:release")
  check(C.neap_manager_release(self.c, checked_name(name, "manager:release")))
  if self.tensors[name] then held.let_go(self.tensors[name]) end
  recompute.forget(self, name)
  self.nodes[name].released = true
  self.tensors[name], self.dims[name], self.nodes[name] = nil, nil, nil
end

--- Forgets all activations, statistics and the log; the policy stays.
function Manager:clear()
  argument.self(self, Manager, "manager:clear")
  check(C.neap_manager_clear(self.c))
  recompute.forget(self)
  for _, tensor in pairs(self.tensors) do held.let_go(tensor) end
  self.tensors, self.dims, self.nodes, self.newest = {}, {}, {}, nil
end

--- Sums over what is recorded now, and what was recomputed since the last clear.
---@return neap.ManagerStats
function Manager:stats()
  argument.self(self, Manager, "manager:stats")
  return view.stats(self.c)
end

---@return number  bytes held now
function Manager:current_bytes()
  argument.self(self, Manager, "manager:current_bytes")
  return view.stats(self.c).current_bytes
end

---@return neap.Snapshot[]  in the order of the records
function Manager:snapshots()
  argument.self(self, Manager, "manager:snapshots")
  return view.snapshots(self.c)
end

---@return string[]  names in the order of their recomputations
function Manager:log()
  argument.self(self, Manager, "manager:log")
  return view.log(self.c)
end

return M
