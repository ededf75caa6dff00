local N = require("neap.ffi")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local numbers = require("spec.support.numbers")
local vectors = require("spec.support.vectors")

local C, ffi = N.C, N.ffi

local function fraction(row)
  local u = ffi.new("union { uint32_t u; float f; }")
  u.u = tonumber(row.target_frac_bits)
  return tonumber(u.f)
end

-- the same question, by C and by Lua
local ASK = {
  C = function(row, target)
    local n = ffi.new("uint64_t[1]", 77)
    local code = C.neap_chunk_from_measurements(row.free, row.per_item, row.cap, row.floor, target,
      n)
    return code >= 0 and n[0] or nil, code == 1, code < 0 and
      ffi.string(C.neap_error_name(code)), n[0]
  end,
  Lua = function(row, target)
    local ok, n, fits = pcall(neap.chunk_from_measurements, row.free, row.per_item, row.cap,
      row.floor, target)
    if ok then return n, fits end
    return nil, false, n.kind
  end,
}

for side, ask in pairs(ASK) do
  describe("a chunk from measurements, by the " .. side .. " API,", function()
    for name, count in pairs({ seed_chunk_from_measurements = 59,
      seed_chunk_from_measurements_32bit = 4 }) do
      it("is right for each row of " .. name .. ".json", function()
        local n = 0
        for _, row in ipairs(vectors.load(name).rows) do
          for _, target in ipairs({ fraction(row), type(row.target_frac) == "number"
            and row.target_frac or nil }) do
            local found, fits, kind = ask(row, target)
            if type(row.right) == "table" then
              assert.equal("InvalidParameter", row.right.error)
              assert.equal("invalid argument", kind, row.id)
            else
              assert.is_true(vectors.same(row.right, found), row.id)
              local budget = ffi.new("uint64_t[1]")
              assert.equal(0, C.neap_chunk_budget(row.free, target, budget))
              assert.is_true(vectors.same(row.budget, budget[0]), row.id)
              -- "fits" as anyone would reckon it, in doubles
              local bytes = tonumber(found) * math.max(tonumber(row.per_item), 1)
              assert.equal(bytes <= tonumber(row.budget), fits, row.id)
            end
          end
          n = n + 1
        end
        assert.equal(count, n)
      end)
    end
  end)
end

describe("a chunk from measurements", function()
  local function ask(free, item, cap, floor, target)
    return tonumber((neap.chunk_from_measurements(free, item, cap, floor, target)))
  end

  it("rises with free memory and target, falls with bytes an item, stays within its bounds",
    function()
      local random = numbers.random(7)
      for _ = 1, 3000 do
        local free, item = 2 ^ (40 * random.uniform()), 2 ^ (30 * random.uniform())
        free, item = math.floor(free), math.floor(item)
        local cap, floor = random.int(1, 5000), random.int(0, 64)
        local target = random.uniform()
        local n = ask(free, item, cap, floor, target)
        local least = math.max(1, math.min(floor, cap))
        assert(n >= least and n <= cap)
        assert(ask(free + random.int(0, free), item, cap, floor, target) >= n)
        assert(ask(free, item + random.int(0, item), cap, floor, target) <= n)
        assert(ask(free, item, cap, floor, target + random.uniform()) >= n)
        -- a rung is the floor doubled, or the cap
        local doublings = math.log(n / least) / math.log(2)
        assert(n == cap or math.abs(doublings - math.floor(doublings + 0.5)) < 1e-9)
      end
    end)

  it("never passes the cap and gives the floor where nothing fits, saying so", function()
    local n, fits = neap.chunk_from_measurements(1000, 2000, 64, 4)
    assert.equal(4, n)
    assert.is_false(fits)
    n, fits = neap.chunk_from_measurements(2 ^ 40, 1, 64, 4)
    assert.equal(64, n)
    assert.is_true(fits)
  end)

  it("takes floor min(16, cap) and target 0.6 when not told", function()
    assert.equal(16, (neap.chunk_from_measurements(0, 1, 100)))
    assert.equal(5, (neap.chunk_from_measurements(0, 1, 5)))
    assert.equal(256, (neap.chunk_from_measurements(2 ^ 30, 2 ^ 20, 2048, 16)))
  end)

  it("counts in 64 bits and gives uint64_t where a number would not do", function()
    local most = -1ULL
    assert.is_true((neap.chunk_from_measurements(most, 1, most, 1, 0.95)) == 2ULL ^ 62)
    assert.is_true((neap.chunk_from_measurements(0, 1, most, most, 0.95)) == most)
    local n, fits = neap.chunk_from_measurements(most, most, most, 1)
    assert.equal(1, n)
    assert.is_false(fits)
  end)

  it("clamps the target as a float and refuses NaN", function()
    local out = ffi.new("float[1]")
    for target, expected in pairs({ [0] = 0.05, [-math.huge] = 0.05, [0.6] = 0.6, [1] = 0.95,
      [math.huge] = 0.95, [1e300] = 0.95 }) do
      assert.equal(0, C.neap_chunk_target(target, out))
      assert.equal(vectors.bits(expected), vectors.bits(out[0]))
    end
    assert.equal("the target fraction of memory is NaN; expected a number, 0.05 to 0.95",
      failure_of("invalid argument", neap.chunk_from_measurements, 1, 1, 1, 1, 0 / 0))
    local n = ffi.new("uint64_t[1]", 77)
    assert.equal(C.NEAP_ERR_INVALID, C.neap_chunk_from_measurements(1, 1, 1, 1, 0 / 0, n))
    assert.is_true(n[0] == 77)
  end)

  it("refuses misuse in one sentence", function()
    local function refused(pattern, ...)
      assert.matches(pattern, failure_of("usage", neap.chunk_from_measurements, ...), 1, true)
    end
    refused("free is nil")
    refused("free is -1", -1, 1, 1)
    refused("item_bytes is 0.5", 1, 0.5, 1)
    refused("cap is 'x'", 1, 1, "x")
    refused("cap is nan", 1, 1, 0 / 0)
    refused("floor is inf", 1, 1, 1, math.huge)
    refused("target must be a number, found '0.5'", 1, 1, 1, 1, "0.5")
    assert.equal(C.NEAP_ERR_INVALID, C.neap_chunk_from_measurements(1, 1, 1, 1, 0.5, nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_chunk_budget(1, 0.5, nil))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_chunk_target(0.5, nil))
  end)
end)
