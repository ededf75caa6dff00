-- checkpoint(fn, ...): what fn makes on the way is dropped and made again in backward.
--
-- 1. The first call runs fn on the arguments themselves and records nothing but the region.
-- 2. Backward runs fn again, on copies of the argument tables as they were at the call, with the
--    same random numbers and the buffers as they were; is_recomputing() is then true. What backward
--    does not need is left out.
-- 3. Both runs must do the same to tensors that need gradients. Tensors with a history must be
--    arguments, because handles from outside may be freed by then.
-- 4. Results may be anything; tensors made by fn, also inside plain tables, carry gradients.
-- 5. Without a tape (no_grad), or when nothing inside needs a gradient, it is a plain call.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local mode_module = require("neap.checkpoint.mode")
local region_again = require("neap.checkpoint.region_again")
local scope = require("neap.scope")
local stage_traces = require("neap.checkpoint.stage_traces")
local values = require("neap.checkpoint.values")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

local MOST = 255
local inputs, outputs = ffi.new("double[?]", MOST), ffi.new("double[?]", MOST)
local rng_t = ffi.typeof("neap_rng_state")

---@class neap.CheckpointOptions
---@field name string|nil           for messages; where fn was written, when nil
---@field preserve_rng boolean|nil  true; false is an error in a region that draws
---@field check "shape"|"value"|"none"|nil  how the recomputation is compared; "value" keeps a copy
--- of each tensor that would be saved (tag check) and names the largest difference
---@field keep string|nil           ops whose outputs are kept instead of recomputed: "matmul"

local pack = region_again.pack
local option_names = { "name", "preserve_rng", "check", "keep" }
local regions = region_again.regions
local n_made = 0

-- records of regions whose node is gone without backward
local function sweep()
  n_made = 0
  for trace in pairs(regions) do
    if C.neap_trace_alive(trace) == 0 then regions[trace] = nil end
  end
end

local names = setmetatable({}, { __mode = "k" })

local function name_of(fn, options)
  if options.name then return options.name end
  local name = names[fn]
  if not name then
    name = type(fn) == "table" and rawget(fn, "_name") or type(fn) == "table" and fn.kind
    if type(name) ~= "string" then
      local info = type(fn) == "function" and debug.getinfo(fn, "S") or {}
      name = string.format("%s:%s", tostring(info.short_src):match("[^/]*$"),
        tostring(info.linedefined))
    end
    names[fn] = name
  end
  return name
end

local function read_options(options)
  argument.options(options, "checkpoint", option_names)
  if options.name ~= nil then argument.text(options.name, "checkpoint: name") end
  argument.flag(options.preserve_rng, "checkpoint: preserve_rng", true)
  return options
end

-- ---- the first forward ----

-- Numbers the tensors among the arguments, each once. A leaf is not an input of the region (its
-- number is negative): the recomputation uses the leaf itself, so that its gradient is summed up in
-- the order in which it would be without the region.
local function collect_arguments(args, n, trace)
  local number, list, leaves = {}, {}, {}
  values.each(args, n, function(t)
    if number[t.id] then return end
    check(C.neap_trace_argument(trace, t.id))
    if #list == MOST then fail.usage("checkpoint: at most %d tensors are arguments", MOST) end
    if C.neap_tensor_tape(t.id) == 0 and C.neap_tensor_needs_grad(t.id) == 1 then
      leaves[#leaves + 1] = t
      number[t.id] = -#leaves
    else
      list[#list + 1] = t
      number[t.id] = #list
    end
  end)
  return number, list, leaves
end

-- which tensors of the results fn made with a history: their places in the order of values.each
local function collect_results(results, n, weak)
  local at, places, seen, n_out = 0, {}, {}, 0
  values.each(results, n, function(t)
    at = at + 1
    if not seen[t.id] and C.neap_tensor_tape(t.id) == weak then
      if n_out == MOST then fail.usage("checkpoint: at most %d tensors are results", MOST) end
      outputs[n_out] = t.id
      n_out = n_out + 1
      places[at] = n_out
    end
    seen[t.id] = true
  end)
  return places, n_out
end

local function new_trace(options)
  local kind = stage_traces.check_kind(options.check, "checkpoint")
  if options.keep == nil then return check(C.neap_trace_new(kind, 1)) end
  argument.text(options.keep, "checkpoint: keep")
  local mode = mode_module.read(options.keep, "checkpoint: keep")
  local trace = check(C.neap_trace_new(kind, 1))
  for _, op in ipairs(mode.ops) do check(C.neap_trace_keep(trace, op)) end
  return trace
end

local function check_draws(self, trace)
  if self.preserve_rng == false and check(C.neap_trace_draws(trace)) > 0 then
    fail.raise("wrong state", "it draws random numbers, and preserve_rng = false would draw others "
      .. "in the recomputation; leave the option out")
  end
end

-- puts the region on the tape, when anything in it needs a gradient
local function record(self, tape, trace, list, places, n_out)
  if n_out == 0 then return end
  for k = 1, #list do inputs[k - 1] = list[k].id end
  check(C.neap_tape_record_region(tape, #list, inputs, n_out, outputs, trace))
  if C.neap_tape_is_weak(tape) == 1 then return end
  self.places, self.n_out, self.trace, self.n_inputs = places, n_out, trace, #list
  regions[trace] = self
  n_made = n_made + 1
  if n_made == 256 then sweep() end
end

local function first(self, tape, trace, args, n_args)
  local number, list, leaves = collect_arguments(args, n_args, trace)
  local marks = {}
  self.marks, self.leaves = marks, leaves
  self.args = values.map(args, n_args, function(t)
    local mark = {}
    marks[mark] = number[t.id]
    return mark
  end)
  local weak = check(C.neap_trace_begin(trace))
  check(C.neap_tape_select(weak))
  local n, results = pack(self.fn(unpack(args, 1, n_args)))
  local places, n_out = collect_results(results, n, weak)
  check(C.neap_tape_select(tape))
  check(C.neap_trace_end(trace))
  check_draws(self, trace)
  record(self, tape, trace, list, places, n_out)
  return n, results
end

local function run(options, fn, n_args, args)
  local tape = C.neap_tape_selected()
  if tape == 0 then return scope.run(fn, unpack(args, 1, n_args)) end
  local self = { fn = fn, n_args = n_args, rng = rng_t(), name = name_of(fn, options),
    preserve_rng = options.preserve_rng }
  check(C.neap_rng_get(self.rng))
  self.place = check(C.neap_place_find("region '" .. self.name .. "'"))
  local trace = new_trace(options)
  local place = C.neap_place_select(self.place)
  local ok, n, results = pcall(scope.run, first, self, tape, trace, args, n_args)
  C.neap_place_select(place)
  if not self.trace then C.neap_trace_free(trace) end
  if ok then return unpack(results, 1, n) end
  C.neap_tape_select(tape)
  C.neap_rng_set(self.rng)
  error(fail.with_place("region '" .. self.name .. "'", n), 0)
end

--- Runs fn(...) as a checkpointed region: checkpoint(fn, ...) or checkpoint(options, fn, ...).
---@param fn function|neap.CheckpointOptions
---@return any ...  what fn returns
function M.checkpoint(fn, ...)
  if values.is_plain(fn) then
    return run(read_options(fn), argument.fn((...), "checkpoint: its function"),
      select("#", ...) - 1, { select(2, ...) })
  end
  return run({}, argument.fn(fn, "checkpoint: its function"), select("#", ...), { ... })
end

--- How many regions wait for their backward; for tests.
---@return integer
function M.n_waiting()
  sweep()
  local n = 0
  for _ in pairs(regions) do n = n + 1 end
  return n
end

return M
