-- The search for the largest chunk: exact, bounded, and only sizes that ran.
local search = require("neap.chunk_search")

-- a machine whose memory is a function of n
local function machine(bytes_of, size)
  local ran = {}
  return ran, function(n)
    ran[#ran + 1] = n
    local bytes = bytes_of(n)
    if bytes > size then return nil, string.format("out of memory at %d", n) end
    return bytes
  end
end

local function exhaustive(bytes_of, cap, size, limit)
  local best
  for n = 1, cap do
    if bytes_of(n) > math.min(size, limit) then break end
    best = n
  end
  return best
end

local shapes = {
  ["a line"] = function(n) return 1000 + 37 * n end,
  ["a line without a fixed part"] = function(n) return 64 * n end,
  ["no growth"] = function() return 500 end,
  ["steps of 8"] = function(n) return 1000 + 4096 * math.ceil(n / 8) end,
  ["growth by the square"] = function(n) return 100 + n * n end,
  ["growth by the root"] = function(n) return 100 + 3000 * math.sqrt(n) end,
  ["a jump at 33"] = function(n) return n < 33 and 10 * n or 5000 + 10 * n end,
  ["rounding to 64"] = function(n) return 64 * math.ceil((100 + 13 * n) / 64) end,
}

describe("the search for the largest chunk", function()
  for name, bytes_of in pairs(shapes) do
    it("finds what trying every size finds, within its bound, for " .. name, function()
      for _, cap in ipairs({ 1, 2, 3, 7, 33, 100, 128, 1000 }) do
        for _, size in ipairs({ 50, 600, 1500, 3000, 5200, 20000, 1e9 }) do
          local ran, trial = machine(bytes_of, size)
          local found = search.find({ cap = cap, limit = size, trial = trial })
          local about = string.format("cap %d, size %d", cap, size)
          assert.equal(exhaustive(bytes_of, cap, size, size), found.n, about)
          assert.is_true(#ran <= search.most_trials(cap), about .. ": " .. #ran .. " trials")
        end
      end
    end)
  end

  it("confirms a right guess in two trials, and corrects a wrong one", function()
    local ran, trial = machine(shapes["a line"], 2000)
    assert.equal(27, search.find({ cap = 64, limit = 2000, trial = trial, guess = 27 }).n)
    assert.same({ 27, 28 }, ran)
    for guess = 1, 64 do
      local tried, again = machine(shapes["a line"], 2000)
      assert.equal(27, search.find({ cap = 64, limit = 2000, trial = again, guess = guess }).n)
      assert.is_true(#tried <= search.most_trials(64), guess .. ": " .. #tried .. " trials")
    end
    local only, small = machine(shapes["a line"], 10)
    assert.is_nil(search.find({ cap = 64, limit = 10, trial = small, guess = 1 }).n)
    assert.same({ 1 }, only)
  end)

  it("returns only a size that ran and fitted, and tries no size twice", function()
    for size = 100, 9000, 371 do
      local ran, trial = machine(shapes["steps of 8"], size)
      local found = search.find({ cap = 77, limit = size, trial = trial })
      local seen, is_there = {}, found.n == nil
      for _, n in ipairs(ran) do
        assert.is_nil(seen[n])
        seen[n] = true
        is_there = is_there or n == found.n
      end
      assert.is_true(is_there)
    end
  end)

  it("tries the size above its answer, or the answer is the cap", function()
    local ran, trial = machine(shapes["a line"], 2000)
    local found = search.find({ cap = 64, limit = 2000, trial = trial })
    assert.equal(27, found.n)
    assert.equal(28, ran[#ran])
    assert.matches("28 does not fit", found.reason)
    assert.matches("out of memory at 28", found.failed)
    local _, all_fit = machine(shapes["a line"], 1e9)
    assert.matches("the cap fits", search.find({ cap = 64, limit = 1e9, trial = all_fit }).reason)
  end)

  it("keeps a margin: what ran but took more than the limit does not fit", function()
    local _, trial = machine(function(n) return 100 * n end, 1000)
    local found = search.find({ cap = 64, limit = 900, trial = trial })
    assert.equal(9, found.n)
    assert.equal(900, found.bytes)
  end)

  it("takes few trials where memory grows by a line", function()
    local ran, trial = machine(shapes["a line"], 3000)
    search.find({ cap = 1024, limit = 3000, trial = trial })
    assert.is_true(#ran <= 4, #ran .. " trials")
  end)

  it("says that nothing fits, with the reason, and tries nothing more", function()
    local ran, trial = machine(shapes["a line"], 10)
    local found = search.find({ cap = 64, limit = 10, trial = trial })
    assert.is_nil(found.n)
    assert.same({ 1 }, ran)
    assert.matches("out of memory at 1", found.failed)
  end)

  it("starts from a floor", function()
    local ran, trial = machine(shapes["a line"], 1e9)
    assert.equal(20, search.find({ cap = 20, floor = 16, limit = 1e9, trial = trial }).n)
    assert.equal(16, ran[1])
  end)

  it("lets other errors of a trial through", function()
    assert.has_error(function()
      search.find({ cap = 4, limit = 1, trial = function() error("shape bug", 0) end })
    end, "shape bug")
  end)

  it("logs every trial", function()
    local logged = {}
    local _, trial = machine(shapes["a line"], 2000)
    local found = search.find({ cap = 64, limit = 2000, trial = trial,
      log = function(t) logged[#logged + 1] = t end })
    assert.same(found.trials, logged)
  end)

  it("refuses wrong arguments", function()
    local function trial() return 1 end
    for _, wrong in ipairs({ { cap = 0, limit = 1, trial = trial },
      { cap = 2.5, limit = 1, trial = trial }, { cap = 4, floor = 5, limit = 1, trial = trial },
      { cap = 4, limit = 0 / 0, trial = trial }, { cap = 4, limit = 1 },
      { cap = 4, limit = 1, trial = trial, capp = 1 },
      { cap = 4, limit = 1, trial = function() return "many" end } }) do
      assert.has_error(function() search.find(wrong) end)
    end
  end)
end)
