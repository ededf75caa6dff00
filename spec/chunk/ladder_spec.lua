local N = require("neap.ffi")
local fail = require("neap.fail")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local vectors = require("spec.support.vectors")

local C, ffi, check = N.C, N.ffi, N.check

-- The device of a row, as the file's conventions describe it. query() gives nil where it tells
-- nothing; forward(n) says whether it succeeds.
local function device_of(row)
  local d, self = row.device, { k = 0, alive = nil, probes = {} }
  -- a memory source that counts the pool's unused reserve as free sees no reserve
  local aware = row.right.needs == "allocator-aware measurement"
  local reserve = d.pool_reserved or 0
  local free0 = d.free0 + (aware and reserve or 0)
  local hidden = aware and 0 or reserve
  local function need(n)
    return math.max(0, (d.fixed or 0) + (d.per_item or 0) * n + (d.quad or 0) * n * n - hidden)
  end
  function self.query()
    local k, drift = self.k, d.drift or { 0 }
    self.k = k + 1
    if d.query == "unsupported" then return nil end
    if type(d.query) == "table" and d.query.fails_at_query == k then return nil end
    local used = self.alive and need(self.alive) or 0
    return math.max(0, free0 - used + drift[math.min(k + 1, #drift)]), d.total
  end
  function self.forward(n)
    self.probes[#self.probes + 1] = n
    if n > (d.fail_above or math.huge) or need(n) > free0 then return false end
    self.alive = n
    return true
  end
  return self
end

local KINDS = { [C.NEAP_CHUNK_CHOSEN] = "chosen", [C.NEAP_CHUNK_NOTHING_FITS] = "nothing_fits",
  [C.NEAP_CHUNK_UNSUPPORTED] = "unsupported" }
local WITHIN = { [0] = false, [1] = true }

local function fraction(row)
  return row.target_frac == "NaN" and 0 / 0 or row.target_frac
end

-- each side: the outcome and the probes
local SIDES = {}

function SIDES.C(row, device)
  local out, n = ffi.new("neap_prober *[1]"), ffi.new("uint64_t[1]")
  check(C.neap_prober_new(row.cap, row.floor, fraction(row), out))
  local prober = ffi.gc(out[0], C.neap_prober_free)
  local free, total = device.query()
  check(free and C.neap_prober_start(prober, free, total) or C.neap_prober_start_unseen(prober))
  while check(C.neap_prober_next(prober, n)) == 1 do
    if not device.forward(tonumber(n[0])) then
      check(C.neap_prober_failed(prober))
    else
      free = device.query()
      check(free and C.neap_prober_ran(prober, free) or C.neap_prober_ran_unseen(prober))
      device.alive = nil
    end
  end
  local c = ffi.new("neap_chunk_outcome")
  check(C.neap_prober_outcome(prober, c))
  return { kind = KINDS[c.kind], n = c.n > 0 and tonumber(c.n) or nil, stop = ffi.string(c.stop),
    within_budget = WITHIN[c.within_budget], budget_bytes = tonumber(c.budget_bytes),
    used_bytes = tonumber(c.used_bytes), cap = tonumber(c.cap), floor = tonumber(c.floor) }
end

function SIDES.Lua(row, device)
  local line
  local n, outcome = neap.auto_chunk({ cap = row.cap, floor = row.floor, target = fraction(row),
    memory = device.query, log = function(text) line = text end,
    settle = function() end, forward_at = function(k)
      if not device.forward(k) then fail.raise("out of memory", "out of memory: no more") end
      return {}
    end })
  assert.equal(n, outcome.n)
  assert.equal(line, outcome.line)
  return outcome
end

for side, run in pairs(SIDES) do
  describe("the auto-chunk ladder, by the " .. side .. " API,", function()
    it("climbs each row of seed_auto_chunk_ladder.json as it should", function()
      local rows = 0
      for _, row in ipairs(vectors.load("seed_auto_chunk_ladder").rows) do
        local right, device = row.right, device_of(row)
        rows = rows + 1
        -- the result of a rung is dropped before the next one
        local forward = device.forward
        function device.forward(n)
          device.alive = nil
          return forward(n)
        end
        if right.error then
          assert.equal("InvalidParameter", right.error)
          failure_of("invalid argument", run, row, device)
        else
          local found = run(row, device)
          assert.equal(right.outcome, found.kind, row.id)
          assert.equal(right.result, found.n, row.id)
          assert.equal(right.within_budget, found.within_budget, row.id)
          assert.equal(right.stop, found.stop, row.id)
          if row.expected.budget and not right.needs then
            assert.equal(row.expected.budget, found.budget_bytes, row.id)
            assert.equal(row.expected.clamped_cap, found.cap, row.id)
            assert.equal(row.expected.clamped_floor, found.floor, row.id)
          end
          for _, step in ipairs(row.expected.trace or {}) do
            if step.n == found.n and not right.needs and found.within_budget ~= nil then
              assert.equal(step.used, found.used_bytes, row.id)
            end
          end
        end
        assert.same(right.probes, device.probes, row.id)
      end
      assert.equal(40, rows)
    end)
  end)
end

describe("the chunk prober", function()
  local n = ffi.new("uint64_t[1]")

  local function new(cap, floor, target)
    local out = ffi.new("neap_prober *[1]")
    check(C.neap_prober_new(cap, floor, target or 0.6, out))
    return ffi.gc(out[0], C.neap_prober_free)
  end

  local function outcome(prober)
    local c = ffi.new("neap_chunk_outcome")
    check(C.neap_prober_outcome(prober, c))
    return c
  end

  it("counts in 64 bits, where nothing wraps", function()
    local prober = new(-1ULL, 2ULL ^ 63)
    check(C.neap_prober_start(prober, -1ULL, -1ULL))
    assert.equal(1, C.neap_prober_next(prober, n))
    assert.is_true(n[0] == 2ULL ^ 63)
    check(C.neap_prober_ran(prober, -3ULL))
    assert.equal(1, C.neap_prober_next(prober, n))
    assert.is_true(n[0] == -1ULL)
    check(C.neap_prober_failed(prober))
    local found = outcome(prober)
    assert.is_true(found.n == 2ULL ^ 63 and found.used_bytes == 2)
    assert.equal("forward_at(18446744073709551615) failed", ffi.string(found.stop))
    -- a forecast beyond 64 bits does not fit
    prober = new(-1ULL, 2ULL ^ 40, 0.95)
    check(C.neap_prober_start(prober, -1ULL, -1ULL))
    check(C.neap_prober_ran(prober, -1ULL - 1ULL))
    check(C.neap_prober_ran(prober, -1ULL - 2ULL ^ 62))
    check(C.neap_prober_next(prober, n))
    assert.is_true(outcome(prober).n == 2ULL ^ 41)
    assert.matches("^next rung 4398046511104 predicted 9223372036854775808 bytes > budget 87622",
      ffi.string(outcome(prober).stop))
  end)

  it("runs fewer than three times the cap's items in all", function()
    for _, cap in ipairs({ 1, 2, 17, 100, 1023, 1024, 1025 }) do
      local prober, items, rungs = new(cap, 1), 0, 0
      check(C.neap_prober_start(prober, 2 ^ 40, 2 ^ 40))
      while C.neap_prober_next(prober, n) == 1 do
        items, rungs = items + tonumber(n[0]), rungs + 1
        check(C.neap_prober_ran(prober, 2 ^ 40 - tonumber(n[0])))
      end
      assert.is_true(outcome(prober).n == cap)
      assert.is_true(items < 3 * cap)
      assert.is_true(rungs <= 1 + math.ceil(math.log(cap) / math.log(2) - 1e-9))
    end
  end)

  it("refuses calls out of order and stays as it was", function()
    local prober, c = new(4, 2), ffi.new("neap_chunk_outcome")
    local function refused(code, pattern)
      assert.equal(C.NEAP_ERR_STATE, code)
      assert.matches(pattern, ffi.string(C.neap_last_error()))
    end
    refused(C.neap_prober_next(prober, n), "was not started")
    refused(C.neap_prober_ran(prober, 1), "was not started")
    refused(C.neap_prober_ran_unseen(prober), "was not started")
    refused(C.neap_prober_failed(prober), "was not started")
    refused(C.neap_prober_outcome(prober, c), "was not started")
    check(C.neap_prober_start(prober, 1000, 1000))
    refused(C.neap_prober_start(prober, 1000, 1000), "still climbing")
    refused(C.neap_prober_start_unseen(prober), "still climbing")
    refused(C.neap_prober_outcome(prober, c), "still climbing")
    check(C.neap_prober_failed(prober))
    refused(C.neap_prober_ran(prober, 1), "is done")
    refused(C.neap_prober_failed(prober), "is done")
    assert.equal(0, C.neap_prober_next(prober, n))
    assert.equal(C.NEAP_CHUNK_NOTHING_FITS, outcome(prober).kind)
    assert.is_true(outcome(prober).n == 0)
  end)

  it("refuses NULL and NaN", function()
    local out = ffi.new("neap_prober *[1]")
    for _, code in ipairs({ C.neap_prober_new(1, 1, 0.5, nil), C.neap_prober_new(1, 1, 0 / 0, out),
      C.neap_prober_start(nil, 1, 1), C.neap_prober_start_unseen(nil), C.neap_prober_next(nil, n),
      C.neap_prober_next(new(1, 1), nil), C.neap_prober_ran(nil, 1), C.neap_prober_ran_unseen(nil),
      C.neap_prober_failed(nil), C.neap_prober_outcome(new(1, 1), nil),
      C.neap_prober_outcome(nil, ffi.new("neap_chunk_outcome")) }) do
      assert.equal(C.NEAP_ERR_INVALID, code)
    end
    assert.is_true(out[0] == nil)
    C.neap_prober_free(nil)
  end)

  it("says so when there is no memory for it", function()
    local out = ffi.new("neap_prober *[1]")
    check(C.neap_memory_fail(1, 1))
    local code = C.neap_prober_new(1, 1, 0.5, out)
    check(C.neap_memory_fail(0, 0))
    assert.equal(C.NEAP_ERR_MEMORY, code)
    assert.is_true(out[0] == nil)
  end)
end)
