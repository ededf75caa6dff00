local N = require("neap.ffi")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local vectors = require("spec.support.vectors")

local C, ffi, check = N.C, N.ffi, N.check

describe("a policy over layers", function()
  it("counts bytes beyond 2^53 exactly", function()
    local plan = neap.layer_planner({ policy = { policy = "fewest", budget = 9007199254740993ULL },
      sizes = { 9007199254740993ULL, 9007199254740994ULL } })
    assert.same({ 1 }, plan.checkpointed)
    assert.is_true(plan:stats().stored_bytes == 9007199254740993ULL)
    plan = neap.layer_planner({ policy = { policy = "memory_threshold", bytes = -1ULL },
      sizes = { -2ULL } })
    assert.is_false(plan:drops_layer(0))
    plan = neap.layer_planner({ policy = { policy = "specific", layers = { -1ULL, 0 } },
      sizes = { 1, 2 } })
    assert.same({ 0 }, plan.checkpointed)
    assert.equal("specific:18446744073709551615,0", plan.policy)
    assert.is_false(plan:drops_layer(-1ULL))
  end)

  it("refuses sums that 64 bits do not hold", function()
    local sizes = { -1ULL, 1 }
    failure_of("size overflow", neap.layer_planner, { policy = "all", sizes = sizes })
    failure_of("size overflow", neap.layer_plan, "none", { { bytes = -1ULL }, { bytes = 1 } })
    local plan = neap.layer_plan("all", { { bytes = 1, flops = -1ULL }, { flops = 1 } })
    failure_of("size overflow", plan.stats, plan)
    -- the whole range is no overflow
    plan = neap.layer_plan("largest:1", { { bytes = -2ULL }, { bytes = 1 } })
    assert.is_true(plan:stats().estimate_bytes == -1ULL)
  end)

  it("says what it saves and costs", function()
    local plan = neap.layer_plan("by_kind:attention", { { kind = "attention", bytes = 1024,
      flops = 2048 }, { kind = "ffn", bytes = 512, flops = 9 }, { kind = "norm" } })
    local stats = plan:stats()
    assert.equal(1024, stats.dropped_bytes)
    assert.equal(512, stats.stored_bytes)
    assert.equal(1536, stats.estimate_bytes)
    assert.equal(2048, stats.recompute_flops)
    assert.is_true(math.abs(stats.reduction_percent - 66.7) < 0.1)
    assert.equal(vectors.f32(1 / 3), stats.dropped_fraction)
    assert.equal(2, plan:cost_ratio(0))
    assert.equal(0, plan:cost_ratio(2))
    assert.equal("by_kind:attention: drops 1 of 3 layers, 512 bytes stored, 1536 at most while one "
      .. "is recomputed, 2048 FLOPs", tostring(plan))
    assert.equal(0, neap.layer_plan("all", {}):stats().freed_fraction)
  end)

  it("names kinds of layers", function()
    local names = {}
    for kind = 0, C.NEAP_N_LAYER_KINDS - 1 do names[#names + 1] =
      ffi.string(C.neap_layer_kind_name(kind)) end
    assert.same({ "other", "attention", "ffn", "embedding", "norm" }, names)
    assert.is_true(C.neap_layer_kind_name(5) == nil and C.neap_layer_kind_name(-1) == nil)
  end)

  it("says what is wrong in one sentence", function()
    local layers = { { bytes = 5000 }, { bytes = 7 } }
    assert.equal("memory budget 4999 bytes is smaller than the minimum required 5000 bytes",
      failure_of("does not fit", neap.layer_plan, "budget:4999", layers))
    assert.same({ 0, 1 }, neap.layer_plan("budget:5000", layers).checkpointed)
    assert.same({}, neap.layer_plan("budget:5007", layers).checkpointed)
    assert.equal("invalid policy: every_n needs n of at least 1, found 0; 'none' drops nothing",
      failure_of("invalid argument", neap.layer_plan, "every_n:0", layers))
    assert.equal("invalid policy: ratio is 1.5; allowed 0 to 1",
      failure_of("invalid argument", neap.layer_plan, "ratio:1.5", layers))
    assert.equal("invalid policy: budget is -1 MiB; allowed 0 and more", failure_of(
      "invalid argument", neap.layer_plan, { policy = "budget", budget = -2 ^ 20 }, layers))
    for _, spec in ipairs({ { policy = "ratio", ratio = 0 / 0 },
      { policy = "budget", budget = 0 / 0 } }) do
      assert.matches("is %-?nan", failure_of("invalid argument", neap.layer_plan, spec, layers))
    end
    assert.equal("layer index 3 is in the list twice", failure_of("duplicate", neap.layer_plan,
      "none", { { index = 3 }, { index = 1 }, { index = 3 } }))
    assert.equal("invalid policy: by_kind needs more than the sizes of layers", failure_of(
      "invalid argument", neap.layer_planner, { policy = "by_kind:norm", sizes = { 1 } }))
  end)

  it("refuses misuse in one sentence", function()
    local function refused(pattern, fn, ...)
      assert.matches(pattern, failure_of("usage", fn, ...), 1, true)
    end
    refused("did you mean 'largest'", neap.layer_plan, "larges:2", {})
    refused("found nil", neap.layer_plan, nil, {})
    refused("unknown policy 'nil'", neap.layer_plan, {}, {})
    refused("the policy must be", neap.layer_plan, 5, {})
    refused("'all' takes no argument", neap.layer_plan, "all:2", {})
    refused("needs 'n'", neap.layer_plan, "largest", {})
    refused("needs 'n'", neap.layer_plan, { policy = "largest" }, {})
    refused("unknown key 'k'", neap.layer_plan, { policy = "largest", k = 2 }, {})
    refused("largest is '-1'", neap.layer_plan, "largest:-1", {})
    refused("every_n is 1.5", neap.layer_plan, { policy = "every_n", n = 1.5 }, {})
    refused("unknown kind 'attn'", neap.layer_plan, "by_kind:attn", {})
    refused("'lots' is not a size", neap.layer_plan, "budget:lots", {})
    refused("ratio is 'x'", neap.layer_plan, "ratio:x", {})
    refused("index 2 is 'x'", neap.layer_plan, "specific:1,x", {})
    refused("the layers must be", neap.layer_plan, "all", nil)
    refused("layer 1 must be a table", neap.layer_plan, "all", { 5 })
    refused("unknown key 'size'", neap.layer_plan, "all", { { size = 1 } })
    refused("bytes is -1", neap.layer_plan, "all", { { bytes = -1 } })
    refused("unknown kind 'Ffn'", neap.layer_plan, "all", { { kind = "Ffn" } })
    refused("its argument must be", neap.layer_planner, nil)
    refused("n_layers must be", neap.layer_planner, { policy = "all", n_layers = 2 ^ 40 })
    refused("size 1 is 0.5", neap.layer_planner, { policy = "all", sizes = { 0.5 } })
    local plan = neap.layer_plan("all", {})
    refused("position is nil", plan.drops_layer, plan)
    refused("with a colon", plan.stats, {})
    refused("position must be", plan.cost_ratio, plan, 1)
  end)

  it("leaves the result as it was when memory fails, whichever allocation it is", function()
    local layers, drops = ffi.new("neap_layer[6]"), ffi.new("uint8_t[6]")
    local sizes, indices = ffi.new("uint64_t[6]", { 5, 9, 9, 3, 7, 1 }), ffi.new("uint64_t[1]", 2)
    for i = 0, 5 do layers[i] = { index = i, bytes = sizes[i], flops = 6 - i } end
    local policy = ffi.new("neap_layer_policy", { n = 2, bytes = 12, ratio = 0.5,
      budget_mib = 20 / 2 ^ 20, indices = indices, n_indices = 1 })
    for kind = C.NEAP_LAYERS_NONE, C.NEAP_LAYERS_BUDGET do
      policy.kind = kind
      local failures = 0
      local code
      repeat
        ffi.fill(drops, 6, 7)
        check(C.neap_memory_fail(failures + 1, 1))
        if kind == C.NEAP_LAYERS_BY_KIND or kind == C.NEAP_LAYERS_BUDGET then
          code = C.neap_layers_drops(policy, 6, layers, drops)
        else
          code = C.neap_layers_drops_by_size(policy, 6, 6, sizes, drops)
        end
        check(C.neap_memory_fail(0, 0))
        if code ~= 0 then
          assert.equal(C.NEAP_ERR_MEMORY, code)
          assert.equal(7, drops[0])
          failures = failures + 1
        end
      until code == 0 or failures > 20
      assert.is_true(failures >= 2 and failures <= 20, kind)
    end
  end)

  it("refuses NULL and what has no meaning in C", function()
    local policy, drops = ffi.new("neap_layer_policy"), ffi.new("uint8_t[2]")
    local layers, out = ffi.new("neap_layer[2]"), ffi.new("neap_layers_estimate")
    layers[1].index = 1
    local function refused(code) assert.equal(C.NEAP_ERR_INVALID, code) end
    refused(C.neap_layers_drops(nil, 2, layers, drops))
    refused(C.neap_layers_drops(policy, 2, nil, drops))
    refused(C.neap_layers_drops(policy, 2, layers, nil))
    refused(C.neap_layers_drops_by_size(policy, 2, 1, nil, drops))
    refused(C.neap_layers_drops_by_size(policy, 2, 0, nil, nil))
    refused(C.neap_layers_estimate_drops(2, layers, drops, nil))
    refused(C.neap_layers_estimate_drops(2, nil, drops, out))
    refused(C.neap_layers_estimate_drops(2, layers, nil, out))
    assert.equal(0, C.neap_layers_drops(policy, 0, nil, nil))
    assert.equal(0, C.neap_layers_drops_by_size(policy, 0, 0, nil, nil))
    assert.equal(0, C.neap_layers_estimate_drops(0, nil, nil, out))
    for kind = -1, C.NEAP_LAYERS_BUDGET + 1, C.NEAP_LAYERS_BUDGET + 2 do
      policy.kind = kind
      refused(C.neap_layers_drops(policy, 2, layers, drops))
    end
    policy.kind, policy.n_indices = C.NEAP_LAYERS_SPECIFIC, 1
    refused(C.neap_layers_drops(policy, 2, layers, drops))
    policy.kind, policy.layer_kind = C.NEAP_LAYERS_BY_KIND, 9
    refused(C.neap_layers_drops(policy, 2, layers, drops))
    layers[0].kind, policy.kind = 9, C.NEAP_LAYERS_ALL
    refused(C.neap_layers_drops(policy, 2, layers, drops))
    assert.equal(C.NEAP_ERR_MEMORY, C.neap_layers_drops_by_size(policy, -1ULL, 0, nil, drops))
    assert.equal(0, C.neap_layer_cost_ratio(nil))
  end)
end)
