-- The two searches of policies over layers against trying everything.
local neap = require("neap")
local numbers = require("spec.support.numbers")

local function each_choice(n, fn)
  for mask = 0, 2 ^ n - 1 do
    local drops = {}
    for i = 1, n do drops[i] = math.floor(mask / 2 ^ (i - 1)) % 2 == 1 end
    fn(drops)
  end
end

-- least by the keys in order, then the smallest positions
local function better(a, b)
  if not b then return true end
  for i = 1, #a.keys do
    if a.keys[i] ~= b.keys[i] then return a.keys[i] < b.keys[i] end
  end
  for i = 1, #a.drops do
    if a.drops[i] ~= b.drops[i] then return a.drops[i] end
  end
  return false
end

local function sums(layers, drops)
  local s = { stored = 0, dropped = 0, peak = 0, flops = 0, n = 0 }
  for i, layer in ipairs(layers) do
    if drops[i] then
      s.dropped, s.flops, s.n = s.dropped + layer.bytes, s.flops + layer.flops, s.n + 1
      s.peak = math.max(s.peak, layer.bytes)
    else
      s.stored = s.stored + layer.bytes
    end
  end
  return s
end

local RULES = {
  fewest = function(s, budget)
    return s.stored <= budget and { s.n, s.dropped }
  end,
  budget = function(s, budget)
    return s.stored + s.peak <= budget and { s.flops, s.n }
  end,
}

local function least(rule, layers, budget)
  local best
  each_choice(#layers, function(drops)
    local keys = RULES[rule](sums(layers, drops), budget)
    local choice = keys and { keys = keys, drops = drops }
    if choice and better(choice, best) then best = choice end
  end)
  return best and best.drops
end

describe("a policy over layers", function()
  it("finds the least of all choices, for both rules that search", function()
    local random, infeasible = numbers.random(11), 0
    for round = 1, 300 do
      local layers, total = {}, 0
      -- few sizes give ties, many give none
      local sizes, costs = random.int(1, 30), random.int(0, 6)
      for i = 1, random.int(0, 8) do
        layers[i] = { bytes = random.int(0, sizes), flops = random.int(0, costs) }
        total = total + layers[i].bytes
      end
      local budget = random.int(0, total + 1)
      for _, rule in ipairs({ "fewest", "budget" }) do
        local place = rule .. " in round " .. round
        local expected = least(rule, layers, budget)
        local ok, plan = pcall(neap.layer_plan, { policy = rule, budget = budget }, layers)
        assert.equal(expected ~= nil, ok, place)
        if ok then
          assert.is_true(plan.exact)
          for i = 1, #layers do assert.equal(expected[i], plan:drops_layer(i - 1), place) end
        else
          infeasible = infeasible + 1
          assert.equal("does not fit", plan.kind)
        end
      end
    end
    assert.is_true(infeasible > 10)
  end)

  it("ends also where a search through all choices would not", function()
    local random, layers = numbers.random(5), {}
    for i = 1, 300 do
      layers[i] = { bytes = 2 ^ 40 + random.int(0, 2 ^ 30), flops = random.int(0, 2 ^ 30) }
    end
    local cut = 0
    for _, rule in ipairs({ "fewest", "budget" }) do
      local budget = 2 ^ 40 * 150
      local plan = neap.layer_plan({ policy = rule, budget = budget }, layers)
      local stats = plan:stats()
      if not plan.exact then cut = cut + 1 end
      if rule == "fewest" then
        assert.is_true(stats.stored_bytes <= budget)
        assert.equal(151, stats.n_dropped)
      else
        assert.is_true(stats.estimate_bytes <= budget)
      end
    end
    assert.is_true(cut > 0)
  end)
end)
