-- neap.rng: where ops draw.
local neap = require("neap")
local rng = require("neap.rng")
local native = require("neap.ffi")
local failure_of = require("spec.support.failure_of")

local C = native.C

describe("neap.rng", function()
  local before
  setup(function()
    neap.device("cpu")
    before = rng.get()
  end)
  teardown(function() rng.set(before) end)

  local function masks(n)
    return neap.scope(function()
      local out = {}
      for i = 1, n do
        out[i] = table.concat(neap.op.dropout(neap.full({ 64 }, 1), 0.5):table(), " ")
      end
      return out
    end)
  end

  it("sets what is named, the rest to 0, the seed to 1", function()
    neap.rng({ step = 3, call = 2 })
    assert.same({ seed = 1, step = 3, item = 0, n_items = 0, stage = 0, call = 2 }, rng.get())
    rng.place(9, 8, 7, 6)
    assert.same({ seed = 9, step = 8, item = 7, n_items = 6, stage = 0, call = 0 }, rng.get())
    local position = { seed = 5, step = 4, item = 3, n_items = 2, stage = 1, call = 7 }
    rng.set(position)
    assert.same(position, rng.get())
  end)

  it("names the nearest key for an unknown one, and refuses numbers that are none", function()
    local message = failure_of("usage", neap.rng, { sed = 1 })
    assert(message:find("rng: unknown key 'sed', did you mean 'seed'?", 1, true), message)
    neap.rng({ seed = 4 })
    failure_of("invalid argument", neap.rng, { seed = 0 / 0 })
    failure_of("invalid argument", neap.rng, { step = -1 })
    assert.has_error(function() neap.rng({ seed = "four" }) end)
    assert.equal(4, rng.get().seed)
  end)

  it("counts the calls of ops that draw, and no others", function()
    neap.rng({ seed = 2 })
    masks(3)
    assert.equal(3, rng.get().call)
    neap.scope(function() neap.op.gelu(neap.zeros({ 3 })) end)
    failure_of("invalid argument", neap.scope, function() neap.op.dropout(neap.zeros({ 3 }), 2) end)
    assert.equal(3, rng.get().call)
    C.neap_memory_fail(1, -1)
    local ok = pcall(neap.scope, function() neap.op.dropout(neap.zeros({ 3 }), 0.5) end)
    C.neap_memory_fail(0, 0)
    assert.is_false(ok)
    assert.equal(3, rng.get().call)
  end)

  it("gives the same masks at the same position, others at each other one", function()
    local seen, n = {}, 0
    for _, position in ipairs({ {}, { seed = 2 }, { step = 1 }, { item = 1 }, { stage = 1 },
      { call = 5 }, { item = 1, n_items = 2 } }) do
      rng.set(position)
      local first = masks(2)
      rng.set(position)
      assert.same(first, masks(2))
      for _, mask in ipairs(first) do
        if not seen[mask] then n = n + 1 end
        seen[mask] = true
      end
    end
    assert.equal(14, n)
  end)

  it("keys a mask by the item's number in the global batch, not by the chunk", function()
    local function rows(item, n)
      return neap.scope(function()
        rng.set({ seed = 6, item = item, n_items = n })
        return neap.op.dropout(neap.full({ n, 40 }, 1), 0.5):table()
      end)
    end
    local whole, parts = rows(10, 4), {}
    for _, part in ipairs({ { 10, 1 }, { 11, 2 }, { 13, 1 } }) do
      for _, v in ipairs(rows(part[1], part[2])) do parts[#parts + 1] = v end
    end
    assert.same(whole, parts)
    assert.are_not.same({ unpack(whole, 1, 40) }, { unpack(whole, 41, 80) })
  end)
end)
