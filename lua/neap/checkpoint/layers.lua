-- Plans over a whole list of layers: which activations to drop, and what that saves and costs.
local N = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local layer_policy = require("neap.checkpoint.layer_policy")
local whole = require("neap.checkpoint.whole")

local C, ffi, check = N.C, N.ffi, N.check
local M = {}

local MOST_LAYERS = 2 ^ 24

---@class neap.Layer
---@field index number|nil  its number in the model, each once; its position from 0 when not given
---@field kind string|nil   attention, ffn, embedding, norm or other (when not given)
---@field bytes number|string|nil  of its activation; 0 when not given
---@field flops number|nil  of recomputing it; 0 when not given

--- Dropped (CHECKPOINTED) and stored layers, by index, in the order of the list.
---@class neap.LayerPlan
---@field policy string
---@field checkpointed number[]
---@field stored number[]
---@field exact boolean  false: the search was cut short, see neap_layers_drops
local LayerPlan = {}
LayerPlan.__index = LayerPlan
LayerPlan.__tostring = function(self)
  local stats = self:stats()
  return string.format("%s: drops %d of %d layers, %s bytes stored, %s at most while one is "
    .. "recomputed, %s FLOPs", self.policy, stats.n_dropped, stats.n_layers,
    whole.text(stats.stored_bytes), whole.text(stats.estimate_bytes),
    whole.text(stats.recompute_flops))
end

local layer_keys = { "index", "kind", "bytes", "flops" }

local function read_layers(list, who)
  argument.table(list, who .. ": the layers", "a list of layers { kind =, bytes =, flops = }")
  local n = #list
  local layers = ffi.new("neap_layer[?]", math.max(n, 1))
  for i = 1, n do
    local place = who .. ": layer " .. i
    local layer, to = argument.table(list[i], place, "a table"), layers[i - 1]
    argument.options(layer, place, layer_keys, "key")
    to.index = whole.u64(layer.index or i - 1, place .. ": index")
    to.bytes = whole.u64(layer.bytes or 0, place .. ": bytes")
    to.flops = whole.u64(layer.flops or 0, place .. ": flops")
    if layer.kind ~= nil then
      local kind = layer_policy.KINDS[layer.kind]
      if not kind then
        fail.usage("%s: %s", place, fail.unknown("kind", argument.word(layer.kind),
          layer_policy.KIND_NAMES))
      end
      to.kind = kind
    end
  end
  return layers, n
end

local function finish(fields, layers, n, drops)
  fields.layers, fields.n, fields.drops = layers, n, drops
  fields.checkpointed, fields.stored = {}, {}
  for i = 0, n - 1 do
    local list = drops[i] == 1 and fields.checkpointed or fields.stored
    list[#list + 1] = whole.number(layers[i].index)
  end
  return setmetatable(fields, LayerPlan)
end

--- The plan of a policy over layers. "does not fit" when a budget cannot be met.
---@param spec string|table  none, all, every_n:N (positions), specific:0,3 (indices),
--- memory_threshold:BYTES, fewest:BYTES, by_kind:KIND, ratio:R, largest:N, budget:BYTES
---@param layers neap.Layer[]
---@return neap.LayerPlan
function M.plan(spec, layers)
  local policy, anchor, text = layer_policy.read(spec, "layer_plan")
  local list, n = read_layers(layers, "layer_plan")
  local drops = ffi.new("uint8_t[?]", math.max(n, 1))
  local code = check(C.neap_layers_drops(policy, n, list, drops))
  return finish({ policy = text, exact = code == 0, anchor = anchor }, list, n, drops)
end

local planner_keys = { "policy", "n_layers", "sizes" }

--- The same where only sizes are known: layers 0 to n_layers - 1; missing sizes are 0, superfluous
--- ones are ignored. by_kind and budget need more than sizes; every_n with n = 0 drops none.
---@param options { policy: string|table, n_layers?: number, sizes?: number[] }
---@return neap.LayerPlan
function M.planner(options)
  argument.options(argument.table(options, "layer_planner: its argument"), "layer_planner",
    planner_keys)
  local sizes = argument.table(options.sizes or {}, "layer_planner: sizes", "a list of bytes")
  local n = argument.whole(options.n_layers or #sizes, "layer_planner: n_layers", 0, MOST_LAYERS)
  local policy, anchor, text = layer_policy.read(options.policy, "layer_planner")
  local list = ffi.new("uint64_t[?]", math.max(#sizes, 1))
  for i = 1, #sizes do list[i - 1] = whole.u64(sizes[i], "layer_planner: size " .. i) end
  local drops = ffi.new("uint8_t[?]", math.max(n, 1))
  local code = check(C.neap_layers_drops_by_size(policy, n, #sizes, list, drops))
  local layers = ffi.new("neap_layer[?]", math.max(n, 1))
  for i = 0, n - 1 do
    layers[i].index = i
    layers[i].bytes = i < #sizes and list[i] or 0
  end
  return finish({ policy = text, exact = code == 0, anchor = anchor }, layers, n, drops)
end

--- Whether the layer at a position of the list, from 0, is dropped; false outside.
---@param position number|ffi.cdata*
---@return boolean
function LayerPlan:drops_layer(position)
  argument.self(self, LayerPlan, "plan:drops_layer")
  local at = whole.u64(position, "plan:drops_layer: position")
  return at < self.n and self.drops[at] == 1
end

---@class neap.LayerStats
---@field n_layers number
---@field n_dropped number  the cost, when each layer costs the same
---@field stored_bytes number  sizes are uint64_t where a number would not be exact
---@field dropped_bytes number
---@field recompute_peak_bytes number  the largest dropped activation
---@field estimate_bytes number  stored_bytes + recompute_peak_bytes
---@field recompute_flops number
---@field dropped_fraction number  of layers, an f32
---@field freed_fraction number  of bytes
---@field reduction_percent number  100 * freed_fraction

local COUNTS = { "n_layers", "n_dropped", "stored_bytes", "dropped_bytes", "recompute_peak_bytes",
  "estimate_bytes", "recompute_flops" }

--- What the plan saves and costs.
---@return neap.LayerStats
function LayerPlan:stats()
  argument.self(self, LayerPlan, "plan:stats")
  local estimate, out = ffi.new("neap_layers_estimate"), {}
  check(C.neap_layers_estimate_drops(self.n, self.layers, self.drops, estimate))
  for _, field in ipairs(COUNTS) do out[field] = whole.number(estimate[field]) end
  out.dropped_fraction = estimate.dropped_fraction
  out.freed_fraction = estimate.freed_fraction
  out.reduction_percent = 100 * estimate.freed_fraction
  return out
end

--- FLOPs a byte of the layer at a position; 0 for one of 0 bytes.
---@param position number
---@return number
function LayerPlan:cost_ratio(position)
  argument.self(self, LayerPlan, "plan:cost_ratio")
  local at = argument.whole(position, "plan:cost_ratio: position", 0, math.max(self.n - 1, 0))
  return self.n == 0 and 0 or C.neap_layer_cost_ratio(self.layers + at)
end

return M
