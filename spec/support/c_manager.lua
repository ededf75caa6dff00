-- The C functions of policies and the manager behind the methods of the Lua object, so that the
-- same rows run through both. Nothing of lua/neap/checkpoint is used.
local N = require("neap.ffi")
local fail = require("neap.fail")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

local KINDS = {
  none = C.NEAP_POLICY_NONE, all = C.NEAP_POLICY_ALL, every_n = C.NEAP_POLICY_EVERY_N,
  by_name = C.NEAP_POLICY_BY_NAME, greedy = C.NEAP_POLICY_GREEDY,
}

--- { policy =, n =, names =, budget = } as a neap_policy.
---@return ffi.cdata* policy
---@return ffi.cdata* anchor  has to live as long
function M.policy(options)
  local names = options.names or {}
  local prefixes = ffi.new("const char *[?]", #names + 1)
  for i, name in ipairs(names) do prefixes[i - 1] = name end
  return ffi.new("neap_policy", { kind = KINDS[options.policy], n = options.n or 0,
    budget_bytes = options.budget or 0, n_prefixes = #names, prefixes = prefixes }), prefixes
end

local Manager = {}
Manager.__index = Manager

function M.new(options)
  local policy, anchor = M.policy(options)
  local out = ffi.new("neap_manager *[1]")
  check(C.neap_manager_new(policy, out))
  return setmetatable({ c = ffi.gc(out[0], C.neap_manager_free), anchor = anchor }, Manager)
end

function Manager:set_policy(options)
  local policy, anchor = M.policy(options)
  check(C.neap_manager_set_policy(self.c, policy))
  self.anchor = anchor
end

local function dims_of(shape)
  local dims = ffi.new("uint64_t[?]", #shape + 1)
  for i, dim in ipairs(shape) do dims[i - 1] = dim end
  return dims
end

function Manager:record_data(name, idx, numbers, shape, cost)
  local data = ffi.new("float[?]", #numbers + 1, numbers)
  check(C.neap_manager_record(self.c, name, idx, #shape, dims_of(shape), data, #numbers, cost))
  return C.neap_manager_get(self.c, name, ffi.new("neap_snapshot")) == 0 and "stored"
    or "checkpointed"
end

function Manager:record_size(name, idx, shape, cost)
  check(C.neap_manager_record(self.c, name, idx, #shape, dims_of(shape), nil, -1ULL, cost))
end

-- the protocol of the header: get; recompute when asked to; deliver
function Manager:get(name, closure)
  local snapshot = ffi.new("neap_snapshot")
  if check(C.neap_manager_get(self.c, name, snapshot)) == C.NEAP_NEED_RECOMPUTE then
    local ok, data = pcall(closure)
    if not ok then
      local message = fail.message(data):gsub("^recomputation failed: ", "")
      fail.raise(data.kind, "recomputation failed: " .. message)
    end
    check(C.neap_manager_deliver(self.c, name, #data))
    return data
  end
  local data = {}
  for i = 1, tonumber(snapshot.n_data) do data[i] = snapshot.data[i - 1] end
  return data
end

function Manager:clear() check(C.neap_manager_clear(self.c)) end

local COUNTS = { "stored_bytes", "checkpointed_bytes", "recomputed_bytes", "current_bytes" }

function Manager:stats()
  local stats, out = ffi.new("neap_manager_stats"), {}
  check(C.neap_manager_get_stats(self.c, stats))
  for _, field in ipairs(COUNTS) do out[field] = stats[field] end
  for _, field in ipairs({ "n_stored", "n_checkpointed", "n_snapshots", "n_log" }) do
    out[field] = tonumber(stats[field])
  end
  out.savings_ratio = stats.savings_ratio
  return out
end

function Manager:log()
  local names, i = {}, 0
  while C.neap_manager_log(self.c, i) ~= nil do
    names[i + 1] = ffi.string(C.neap_manager_log(self.c, i))
    i = i + 1
  end
  return names
end

function Manager:snapshots()
  local list, s = {}, ffi.new("neap_snapshot")
  for i = 1, self:stats().n_snapshots do
    check(C.neap_manager_snapshot(self.c, i - 1, s))
    local shape = {}
    for d = 1, s.n_dims do
      local dim = s.dims[d - 1]
      shape[d] = dim < 2ULL ^ 53 and tonumber(dim) or dim
    end
    list[i] = { name = ffi.string(s.name), is_checkpointed = s.is_checkpointed == 1,
      is_stored = s.is_checkpointed == 0, n_data = tonumber(s.n_data), cost = s.cost,
      n_elements = tonumber(s.n_elements), logical_bytes = tonumber(s.logical_bytes),
      shape = shape }
  end
  return list
end

return M
