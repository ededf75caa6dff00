-- Runs checkpointed regions again: the backward walk meets the region's node and asks for it.
local ffi_neap = require("neap.ffi")
local autograd = require("neap.autograd")
local fail = require("neap.fail")
local scope = require("neap.scope")
local values = require("neap.checkpoint.values")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.Region
---@field fn function
---@field args table            the arguments, a mark in place of every tensor
---@field n_args integer
---@field marks table<table, integer>  mark -> number of the input, of a leaf negative
---@field leaves neap.Tensor[]
---@field n_inputs integer
---@field places table<integer, integer>  which tensors of the results carry gradients
---@field n_out integer
---@field rng ffi.cdata*        where random numbers were
---@field trace integer
---@field name string
---@field place integer         its name's number

---@type table<integer, neap.Region>  by trace: how to run it again
M.regions = {}
local regions = M.regions

local rng_t = ffi.typeof("neap_rng_state")
local tensor_t = ffi.typeof("neap_tensor")
local ACTIVATIONS, RECOMPUTE = C.NEAP_TAG_ACTIVATIONS, C.NEAP_TAG_RECOMPUTE

--- The number of values, and a list of them.
function M.pack(...) return select("#", ...), { ... } end
local pack = M.pack

-- runs fn again on the region's own tape; its tensors are gone afterwards, the tape holds what
-- backward needs
local function again(self, made, tape, node)
  local handles = {}
  local function input(k)
    if k < 0 then return self.leaves[-k] end
    if not handles[k] then
      local id = check(C.neap_tape_region_input(tape, node, k - 1))
      local wants = check(C.neap_tape_node_wants(tape, node, k - 1))
      local own = C.neap_tape_input(made, id, wants)
      C.neap_tensor_free(id)
      handles[k] = tensor_t(check(own))
    end
    return handles[k]
  end
  for k = 1, self.n_inputs do input(k) end
  local args = values.fill(self.args, self.n_args, self.marks, input)
  check(C.neap_tape_select(made))
  check(C.neap_trace_follow(self.trace, made, 1))
  local n, results = pack(self.fn(unpack(args, 1, self.n_args)))
  check(C.neap_trace_unfollow(self.trace, 1))
  for k = 1, self.n_inputs do check(C.neap_tape_input_intact(made, k - 1, handles[k].id)) end
  local at, found = 0, 0
  values.each(results, n, function(t)
    at = at + 1
    if self.places[at] and C.neap_tensor_tape(t.id) == made then
      check(C.neap_tape_output(made, t.id))
      found = found + 1
    end
  end)
  if found ~= self.n_out then
    fail.raise("recomputation failed", string.format("recomputation failed: it returned %d of its "
      .. "%d tensors that need a gradient", found, self.n_out))
  end
end

local rng_now = rng_t()

-- runs fn again as if it were then; everything is as before afterwards, whatever happens
local function recompute(self, made, tape, node)
  check(C.neap_rng_get(rng_now))
  check(C.neap_rng_set(self.rng))
  local now = rng_t(rng_now)
  local before, tag = C.neap_tape_selected(), C.neap_tag_select(RECOMPUTE)
  local recomputing = C.neap_recomputing_set(1)
  local place = C.neap_place_select(self.place)
  local ok, err = pcall(scope.run, again, self, made, tape, node)
  if not ok then C.neap_trace_unfollow(self.trace, 0) end
  C.neap_place_select(place)
  C.neap_recomputing_set(recomputing)
  C.neap_tag_select(tag)
  C.neap_tape_select(before)
  C.neap_rng_set(now)
  if not ok then error(err, 0) end
end

local function walk(self, made, tape, node)
  recompute(self, made, tape, node)
  local tag = C.neap_tag_select(ACTIVATIONS)
  for k = 0, self.n_out - 1 do
    local grad = check(C.neap_tape_node_grad(tape, node, k))
    if grad > 0 then check(C.neap_tape_seed(made, k, grad)) end
  end
  for k = 0, self.n_inputs - 1 do
    local grad = check(C.neap_tape_node_take(tape, node, k))
    if grad > 0 then check(C.neap_tape_input_start(made, k, grad)) end
  end
  autograd.backward_tape(made)
  C.neap_tag_select(tag)
  for k = 0, self.n_inputs - 1 do
    local grad = check(C.neap_tape_input_grad(made, k))
    if grad > 0 then check(C.neap_tape_node_give(tape, node, k, grad)) end
  end
  check(C.neap_tape_node_done(tape, node))
end

local function with_hint(err)
  if fail.is(err, "stale handle") then
    return fail.with_place("a tensor that fn uses from outside was freed before backward; make it "
      .. "an argument", err)
  end
  return err
end

--- Serves a region that the backward walk met.
function autograd.serve_region(tape, node)
  local trace = check(C.neap_tape_region_trace(tape, node))
  local self = regions[trace]
  if not self then
    fail.raise("recomputation failed", "recomputation failed: nobody knows how to run the region "
      .. "again")
  end
  local made = check(C.neap_tape_new())
  local ok, err = pcall(walk, self, made, tape, node)
  C.neap_tape_free(made)
  regions[trace] = nil
  if not ok then
    error(fail.with_place("region '" .. self.name .. "'", with_hint(err)), 0)
  end
end

return M
