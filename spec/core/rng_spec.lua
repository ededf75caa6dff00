-- Randomness as a pure function of a key and a position.
local native = require("neap.ffi")

local C, ffi, check = native.C, native.ffi, native.check

describe("neap_permute", function()
  it("gives each of 0 .. n - 1 once, for each n of 1 to 200", function()
    for n = 1, 200 do
      local seen, count = {}, 0
      for i = 0, n - 1 do
        local at = C.neap_permute(i, n, 7, n % 3)
        assert(at >= 0 and at < n and at == math.floor(at))
        if not seen[at] then count = count + 1 end
        seen[at] = true
      end
      assert.equal(n, count)
    end
  end)

  it("gives another order for another seed and another stream, the same for the same", function()
    local function order(seed, stream)
      local out = {}
      for i = 0, 49 do out[i + 1] = C.neap_permute(i, 50, seed, stream) end
      return table.concat(out, " ")
    end
    local seen, n = {}, 0
    for seed = 0, 19 do
      for stream = -2, 2 do
        local found = order(seed, stream)
        assert.equal(found, order(seed, stream))
        if not seen[found] then n = n + 1 end
        seen[found] = true
      end
    end
    assert.equal(100, n)
    local identity = {}
    for i = 0, 49 do identity[i + 1] = i end
    assert.is_nil(seen[table.concat(identity, " ")])
  end)

  it("puts each element everywhere about equally often", function()
    local counts = {}
    for seed = 1, 3000 do
      local at = C.neap_permute(3, 10, seed, 0)
      counts[at] = (counts[at] or 0) + 1
    end
    -- 300 expected, deviation 16.4: five of them
    for at = 0, 9 do assert(math.abs(counts[at] - 300) < 82, counts[at]) end
  end)

  it("works up to n = 2^53", function()
    for _, n in ipairs({ 2 ^ 31, 2 ^ 32 + 1, 2 ^ 53 }) do
      local seen = {}
      for i = n - 20, n - 1 do
        local at = C.neap_permute(i, n, 1, 1)
        assert(at >= 0 and at < n and not seen[at])
        seen[at] = true
      end
    end
  end)

  it("refuses an index outside, and what is no whole number", function()
    for _, bad in ipairs({ { 5, 5 }, { -1, 5 }, { 0.5, 5 }, { 0, 0 }, { 0, -3 }, { 0, 2.5 },
      { 0 / 0, 5 }, { 0, 0 / 0 }, { 0, 1e300 }, { 0, math.huge } }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_permute(bad[1], bad[2], 1, 1))
    end
  end)
end)

describe("neap_uniform", function()
  it("is in [0, 1), spread evenly, the same at the same position", function()
    local sum, tenths = 0, {}
    for i = 0, 9999 do
      local u = C.neap_uniform(i, 5, 2)
      assert(u >= 0 and u < 1)
      assert.equal(u, C.neap_uniform(i, 5, 2))
      sum = sum + u
      local k = math.floor(u * 10)
      tenths[k] = (tenths[k] or 0) + 1
    end
    assert(math.abs(sum / 10000 - 0.5) < 0.015, sum)
    for k = 0, 9 do assert(math.abs(tenths[k] - 1000) < 150, tenths[k]) end
  end)

  it("differs by index, seed and stream", function()
    local seen, n = {}, 0
    for index = 0, 9 do
      for seed = -5, 4 do
        for stream = -5, 4 do
          local u = C.neap_uniform(index, seed + 0.5, stream)
          if not seen[u] then n = n + 1 end
          seen[u] = true
        end
      end
    end
    assert.equal(1000, n)
    for _, bad in ipairs({ -1, 0.5, 0 / 0, 2 ^ 54 }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_uniform(bad, 1, 1))
    end
  end)
end)

describe("the position of draws", function()
  local before = ffi.new("neap_rng_state")
  setup(function() check(C.neap_rng_get(before)) end)
  teardown(function() check(C.neap_rng_set(before)) end)

  local function state(changes)
    local s = ffi.new("neap_rng_state", 3, 4, 5, 6, 7, 8)
    for name, value in pairs(changes or {}) do s[name] = value end
    return s
  end
  local function now()
    local s = ffi.new("neap_rng_state")
    check(C.neap_rng_get(s))
    return { s.seed, s.step, s.item, s.n_items, s.stage, s.call }
  end

  it("is what was set, and a stage begins with call 0", function()
    check(C.neap_rng_set(state()))
    assert.same({ 3, 4, 5, 6, 7, 8 }, now())
    check(C.neap_rng_stage(-2))
    assert.same({ 3, 4, 5, 6, -2, 0 }, now())
  end)

  it("stays when a bad one is refused", function()
    check(C.neap_rng_set(state()))
    local n = 0
    for _, name in ipairs({ "seed", "step", "item", "n_items", "stage", "call" }) do
      for _, bad in ipairs({ 0 / 0, math.huge, -math.huge, -1, 0.5, 2 ^ 53 + 2 }) do
        local is_free = name == "seed" or name == "stage" -- any finite number
        if not (is_free and math.abs(bad) < math.huge) then
          n = n + 1
          assert.equal(C.NEAP_ERR_INVALID, C.neap_rng_set(state({ [name] = bad })))
        end
      end
    end
    assert.equal(4 * 6 + 2 * 3, n)
    assert.equal(C.NEAP_ERR_INVALID, C.neap_rng_set(nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_rng_get(nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_rng_stage(0 / 0))
    assert.same({ 3, 4, 5, 6, 7, 8 }, now())
  end)
end)
