local N = require("neap.ffi")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local vectors = require("spec.support.vectors")

local C, ffi, check = N.C, N.ffi, N.check

-- ---- the same questions, asked of the C functions and of the Lua objects ----

local C_KINDS = {
  EveryN = C.NEAP_LAYERS_EVERY_N, SpecificLayers = C.NEAP_LAYERS_SPECIFIC,
  MemoryThreshold = C.NEAP_LAYERS_MEMORY_THRESHOLD, Optimal = C.NEAP_LAYERS_FEWEST,
  None = C.NEAP_LAYERS_NONE, Full = C.NEAP_LAYERS_ALL, EveryNthLayer = C.NEAP_LAYERS_EVERY_N,
  AttentionOnly = C.NEAP_LAYERS_BY_KIND, FfnOnly = C.NEAP_LAYERS_BY_KIND,
  LargestLayers = C.NEAP_LAYERS_LARGEST, Selective = C.NEAP_LAYERS_RATIO,
  Budget = C.NEAP_LAYERS_BUDGET,
}
local LAYER_KINDS = { Attention = C.NEAP_LAYER_ATTENTION, Ffn = C.NEAP_LAYER_FFN,
  Embedding = C.NEAP_LAYER_EMBEDDING, Norm = C.NEAP_LAYER_NORM, Other = C.NEAP_LAYER_OTHER }

local function u64_list(list)
  local out = ffi.new("uint64_t[?]", math.max(#list, 1))
  for i, value in ipairs(list) do out[i - 1] = value end
  return out, #list
end

local function c_policy(row)
  local list, n = u64_list(row.layers or {})
  return ffi.new("neap_layer_policy", {
    kind = assert(C_KINDS[row.kind], row.kind),
    layer_kind = row.kind == "FfnOnly" and C.NEAP_LAYER_FFN or C.NEAP_LAYER_ATTENTION,
    n = row.n or row.top_k or 0, bytes = row.bytes or row.target or 0, ratio = row.ratio or 0,
    budget_mib = row.max_memory_mb or 0, indices = list, n_indices = n,
  }), list
end

local function lua_policy(row)
  return ({
    EveryN = { policy = "every_n", n = row.n },
    EveryNthLayer = { policy = "every_n", n = row.n },
    SpecificLayers = { policy = "specific", layers = row.layers },
    MemoryThreshold = { policy = "memory_threshold", bytes = row.bytes },
    Optimal = { policy = "fewest", budget = row.target },
    None = "none", Full = { policy = "all" },
    AttentionOnly = "by_kind:attention", FfnOnly = { policy = "by_kind", kind = "ffn" },
    LargestLayers = { policy = "largest", n = row.top_k },
    Selective = { policy = "ratio", ratio = row.ratio },
    Budget = { policy = "budget", budget = row.max_memory_mb and row.max_memory_mb * 2 ^ 20 },
  })[row.kind]
end

local function drops_list(n, drops)
  local list = {}
  for i = 1, n do list[i] = drops[i - 1] == 1 end
  return list
end

-- planner: drops of positions 0 .. n + 1, bytes saved, number dropped
local by_size = {}
function by_size.C(row, n, sizes)
  local policy, anchor = c_policy(row)
  local list, n_sizes = u64_list(sizes)
  local drops, layers = ffi.new("uint8_t[?]", n + 2), ffi.new("neap_layer[?]", n + 1)
  assert.equal(0, check(C.neap_layers_drops_by_size(policy, n, n_sizes, list, drops)), anchor)
  for i = 0, n - 1 do layers[i].bytes = i < n_sizes and list[i] or 0 end
  local estimate = ffi.new("neap_layers_estimate")
  check(C.neap_layers_estimate_drops(n, layers, drops, estimate))
  return drops_list(n + 2, drops), estimate.dropped_bytes, estimate.n_dropped
end
function by_size.Lua(row, n, sizes)
  local plan = neap.layer_planner({ policy = lua_policy(row), n_layers = n, sizes = sizes })
  local drops, stats = {}, plan:stats()
  for i = 0, n + 1 do drops[i + 1] = plan:drops_layer(i) end
  assert.is_true(plan.exact)
  return drops, stats.dropped_bytes, stats.n_dropped
end

local FIELDS = { recompute_peak_bytes = "recompute_peak_bytes", estimate_memory = "estimate_bytes",
  total_recompute_flops = "recompute_flops" }
local ERRORS = { InvalidParameter = "invalid argument", BudgetTooSmall = "does not fit",
  DuplicateLayer = "duplicate" }

-- selective: indices dropped and stored, and the estimate; raises like the Lua object
local by_layer = {}
function by_layer.C(row)
  local policy, anchor = c_policy(row.strategy)
  local n = #row.profiles
  local layers, drops = ffi.new("neap_layer[?]", n + 1), ffi.new("uint8_t[?]", n + 1)
  for i, p in ipairs(row.profiles) do
    layers[i - 1] = { index = p[1], kind = LAYER_KINDS[p[2]], bytes = p[3], flops = p[4] }
  end
  assert.equal(0, check(C.neap_layers_drops(policy, n, layers, drops)), anchor)
  local estimate, checkpointed, stored = ffi.new("neap_layers_estimate"), {}, {}
  check(C.neap_layers_estimate_drops(n, layers, drops, estimate))
  for i = 0, n - 1 do
    local list = drops[i] == 1 and checkpointed or stored
    list[#list + 1] = tonumber(layers[i].index)
  end
  return checkpointed, stored, estimate
end
function by_layer.Lua(row)
  local layers = {}
  for i, p in ipairs(row.profiles) do
    layers[i] = { index = p[1], kind = p[2]:lower(), bytes = p[3], flops = p[4] }
  end
  local plan = neap.layer_plan(lua_policy(row.strategy), layers)
  assert.is_true(plan.exact)
  return plan.checkpointed, plan.stored, plan:stats()
end

for _, side in ipairs({ "C", "Lua" }) do
  describe("policies over layers, by the " .. side .. " API,", function()
    it("plan each row of seed_sibling_planner.json as they should", function()
      local rows, n = vectors.load("seed_sibling_planner").rows, 0
      for _, row in ipairs(rows.should_checkpoint_layer) do
        local drops, saved, cost = by_size[side](row.policy, row.num_layers, row.sizes)
        assert.same(row.right or row.seed, drops, row.id)
        assert.is_true(vectors.same(row.right_saved or row.total_memory_saved, saved), row.id)
        assert.is_true(vectors.same(row.right_cost or row.recompute_cost, cost), row.id)
        n = n + 1
      end
      assert.equal(13, n)
      for _, row in ipairs(rows.compute_optimal_checkpoints) do
        local policy = { kind = "Optimal", target = row.budget }
        local drops, found = by_size[side](policy, #row.sizes, row.sizes), {}
        for i, drop in ipairs(drops) do
          if drop then found[#found + 1] = i - 1 end
        end
        assert.same(row.right, found, row.id)
        n = n + 1
      end
      assert.equal(24, n)
    end)

    it("plan each row of seed_sibling_selective.json as they should", function()
      local n = 0
      for _, row in ipairs(vectors.load("seed_sibling_selective").rows) do
        local right = row.right
        if right.error then
          failure_of(assert(ERRORS[right.error]), by_layer[side], row)
        else
          local checkpointed, stored, estimate = by_layer[side](row)
          assert.same(right.checkpointed, checkpointed, row.id)
          assert.same(right.saved, stored, row.id)
          for field, name in pairs(FIELDS) do
            assert.is_true(vectors.same(right[field], estimate[name]), row.id .. ": " .. field)
          end
          assert.equal(right.bytes_freed_fraction, estimate.freed_fraction, row.id)
          if #row.seed.checkpointed == #right.checkpointed then
            assert.equal(row.checkpoint_ratio_bits, vectors.bits(estimate.dropped_fraction), row.id)
          end
        end
        n = n + 1
      end
      assert.equal(26, n)
    end)
  end)
end
