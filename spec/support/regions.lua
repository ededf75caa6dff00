-- What specs of checkpointed regions run: one backward pass with regions or without, and what is
-- the same afterwards.
local assert = require("luassert")
local N = require("neap.ffi")
local fail = require("neap.fail")
local neap = require("neap")
local region = require("neap.checkpoint.region")

local C, ffi = N.C, N.ffi
local M = {}

--- neap.checkpoint's signature without a checkpoint, for the run that it is compared with.
function M.plain(options, fn, ...)
  if type(options) == "table" and getmetatable(options) == nil then return fn(...) end
  return options(fn, ...)
end

--- A tensor with numbers that look random and are always the same.
function M.tensor(dims, seed, options)
  local n, data = 1, {}
  for _, d in ipairs(dims) do n = n * d end
  for i = 1, n do data[i] = math.sin(0.37 * i + (seed or 0)) end
  return neap.tensor(data, dims, options)
end

--- How often an op ran forward so far, and its FLOPs.
function M.count(name)
  local out = ffi.new("neap_counters")
  N.check(C.neap_counters_of(N.check(C.neap_op_find(name)), out))
  return out.n_forwards, out.forward_flops
end

--- How often an op runs forward in fn.
function M.counted(name, fn)
  local before, flops = M.count(name)
  fn()
  local after, flops_after = M.count(name)
  return after - before, flops_after - flops
end

--- Forward and backward of loss(x, checkpoint) from zeroed gradients: all bits that come out.
---@param loss function  of an input that needs a gradient and of a checkpoint function
---@param o { parameters: neap.Tensor[]|nil, dims: integer[]|nil, checkpoint: function|nil }
function M.run(loss, o)
  o = o or {}
  return neap.scope(function()
    neap.rng({ seed = 5, step = 1, n_items = 4 })
    for _, p in ipairs(o.parameters or {}) do p:zero_grad() end
    local x = M.tensor(o.dims or { 4, 8 }, 1, { requires_grad = true })
    local y = loss(x, o.checkpoint or neap.checkpoint)
    local out = { loss = y:bits()[1] }
    y:backward()
    out.x = x:grad():bits()
    for k, p in ipairs(o.parameters or {}) do out[k] = p:grad():bits() end
    assert.equal(0, M.place())
    out.random = neap.op.dropout(neap.full({ 32 }, 1), 0.5):bits()
    return out
  end)
end

--- The same bits with regions and without; gives them.
function M.same(loss, o)
  o = o or {}
  local expected = M.run(loss, { parameters = o.parameters, dims = o.dims, checkpoint = M.plain })
  local found = M.run(loss, o)
  assert.same(expected, found)
  return found
end

--- What has to be as before, whatever happened.
function M.state(device)
  local position = ffi.new("neap_rng_state")
  C.neap_rng_get(position)
  local tag = C.neap_tag_select(C.NEAP_TAG_ACTIVATIONS)
  C.neap_tag_select(tag)
  return { rng = ffi.string(position, ffi.sizeof(position)), tape = C.neap_tape_selected(),
    nodes = C.neap_tape_n_nodes(C.neap_tape_selected()), recomputing = C.neap_recomputing(),
    tag = tag, depth = C.neap_scope_depth(), live = device:memory().live_bytes,
    tags = device:memory().tags, waiting = region.n_waiting(), place = M.place() }
end

function M.place()
  local place = C.neap_place_select(0)
  C.neap_place_select(place)
  return place
end

--- The failure of fn, of this kind.
function M.failure(kind, fn, ...)
  local ok, err = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_true(fail.is(err), "no Failure: " .. tostring(err))
  assert.equal(kind, err.kind, err.message)
  return err.message
end

return M
