-- dropout: elements zeroed with probability p, the others divided by 1 - p; the mask is a function
-- of seed, step, stage, call and the item's index in the global batch.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.dropout", function()
  setup(gradcheck.cpu)

  local function position(changes)
    local state = { seed = 5, step = 3, item = 0, n_items = 0, stage = 2 }
    for k, v in pairs(changes or {}) do state[k] = v end
    neap.rng(state)
  end

  -- 0 and 1 at the given position, as drawn for ones
  local function mask(dims, p, changes)
    position(changes)
    return neap.scope(function()
      local kept = neap.op.dropout(neap.full(dims, 1), p):table()
      for i, v in ipairs(kept) do
        assert(v == 0 or math.abs(v * (1 - p) - 1) < 1e-6)
        kept[i] = v > 0 and 1 or 0
      end
      return kept
    end)
  end

  local function kept_of(list)
    local n = 0
    for _, v in ipairs(list) do n = n + v end
    return n
  end

  it("agrees with its mask in values and gradients, drawing the same in backward", function()
    gradcheck.many(120, function(r, i)
      local dims, p = r.dims(r.int(0, 4), 4), ({ 0.1, 0.5, 0.9 })[i % 3 + 1]
      local kept = reference.value(dims, mask(dims, p, { step = i }))
      return {
        name = "dropout",
        run = function(t)
          position({ step = i })
          return neap.op.dropout(t, p)
        end,
        reference = function(x) return reference.dropout(x, kept, p) end,
        inputs = { r.value(dims) },
      }
    end)
  end)

  it("takes dimensions of 0 and 1", function()
    for _, dims in ipairs(numbers.shapes(3)) do
      local kept = reference.value(dims, mask(dims, 0.5))
      gradcheck.check({
        name = "dropout",
        run = function(t)
          position()
          return neap.op.dropout(t, 0.5)
        end,
        reference = function(x) return reference.dropout(x, kept, 0.5) end,
        inputs = { numbers.wave(dims, 1) },
      })
    end
  end)

  it("changes no bit for p = 0, there and back", function()
    neap.scope(function()
      local x = gradcheck.tensor(numbers.wave({ 5, 7 }, 1), true)
      local y = neap.op.dropout(x, 0)
      numbers.same("output", x:bits(), y:bits())
      neap.op.sum(y):backward()
      for _, g in ipairs(x:grad():table()) do assert.equal(1, g) end
    end)
  end)

  it("keeps about 1 - p of the elements", function()
    for _, p in ipairs({ 0.1, 0.5, 0.9 }) do
      local n = 100003
      local kept = kept_of(mask({ n }, p))
      -- five standard deviations of a binomial
      assert(math.abs(kept - n * (1 - p)) < 5 * math.sqrt(n * p * (1 - p)), kept)
    end
  end)

  it("keeps neighbours independently of each other", function()
    local n, both = 100000, 0
    local kept = mask({ n + 1 }, 0.5)
    for i = 1, n do both = both + kept[i] * kept[i + 1] end
    assert(math.abs(both - n / 4) < 5 * math.sqrt(n * 3 / 16 * 2), both)
  end)

  it("draws the same mask for items 2 and 3 alone as inside a batch of 4", function()
    for _, width in ipairs({ 1, 3, 4, 5, 8, 33 }) do
      local all = mask({ 4, width, 3 }, 0.4, { item = 0, n_items = 4 })
      local part = mask({ 2, width, 3 }, 0.4, { item = 2, n_items = 2 })
      local alone = mask({ 1, width, 3 }, 0.4, { item = 3, n_items = 1 })
      local size = width * 3
      assert.same({ unpack(all, 2 * size + 1) }, part)
      assert.same({ unpack(all, 3 * size + 1) }, alone)
    end
  end)

  it("draws another mask for another seed, step, stage, item and call", function()
    local base = mask({ 64 }, 0.5, { n_items = 1 })
    assert.same(base, mask({ 64 }, 0.5, { n_items = 1 }))
    for name, number in pairs({ seed = 6, step = 4, stage = 1, item = 1 }) do
      local other = mask({ 64 }, 0.5, { n_items = 1, [name] = number })
      assert.not_same(base, other)
      local equal = 0
      for i = 1, 64 do equal = equal + (base[i] == other[i] and 1 or 0) end
      assert(equal > 12 and equal < 52, name .. ": " .. equal .. " of 64 equal")
    end
    position({ n_items = 1 })
    neap.scope(function()
      local x = neap.full({ 64 }, 1)
      local first = neap.op.dropout(x, 0.5):table()
      assert.not_same(first, neap.op.dropout(x, 0.5):table())
    end)
  end)

  it("draws backward's mask at forward's position, wherever the generator is by then", function()
    neap.scope(function()
      position()
      local x = neap.full({ 40 }, 1)
      local leaf = neap.tensor(x:table(), { 40 }, { requires_grad = true })
      local y = neap.op.dropout(leaf, 0.5)
      position({ seed = 99, step = 77, item = 5 })
      neap.op.dropout(x, 0.5)
      neap.op.sum(y):backward()
      assert.same(y:table(), leaf:grad():table())
    end)
  end)

  it("draws the same bits on two threads", function()
    local one = mask({ 300000 }, 0.3)
    neap.threads(2)
    local two = mask({ 300000 }, 0.3)
    neap.threads(1)
    numbers.same("mask", one, two)
  end)

  it("saves nothing for backward", function()
    local C = require("neap.ffi").C
    neap.scope(function()
      local x = neap.op.scale(gradcheck.tensor(numbers.wave({ 1000 }, 1), true), 2)
      local before = C.neap_tape_saved_bytes(C.neap_tape_selected())
      local y = neap.op.dropout(x, 0.5)
      assert.equal(before, C.neap_tape_saved_bytes(C.neap_tape_selected()))
      neap.op.sum(y):backward()
    end)
  end)

  it("refuses a p outside [0, 1)", function()
    for _, p in ipairs({ 1, -0.1, 2, 0 / 0, 1 / 0 }) do
      gradcheck.fails("dropout", "invalid argument", function()
        return neap.op.dropout(neap.zeros({ 2 }), p)
      end, "p must be")
    end
  end)

  it("refuses integers, and a call without p", function()
    gradcheck.fails("dropout", "dtype", function()
      return neap.op.dropout(neap.tensor({ 1 }, { 1 }, { dtype = "i32" }), 0.5)
    end, "i32")
    gradcheck.fails("dropout", "invalid argument", function()
      return neap.op.dropout(neap.zeros({ 2 }))
    end)
  end)
end)
