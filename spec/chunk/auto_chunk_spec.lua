local N = require("neap.ffi")
local fail = require("neap.fail")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")

local C, ffi, check = N.C, N.ffi, N.check
local MIB = 2 ^ 20

-- A model that draws, whose tape keeps a few times 4 KiB an item, and that counts its forwards in a
-- buffer.
local Counting = neap.nn.class("Counting")
function Counting:init()
  self.linear = neap.nn.Linear(1024, 1024)
  self.calls = neap.full({ 4 }, 0, { tag = C.NEAP_TAG_BUFFERS })
  C.neap_scope_leave(self.calls.id)
end
function Counting:forward(x)
  self.calls:fill(self.calls:table()[1] + 1)
  return neap.op.mean(neap.op.gelu(self.linear(neap.op.dropout(x, 0.5))))
end

describe("auto_chunk on a device with a budget", function()
  local device, model, lines

  setup(function() device = neap.device("cpu", { budget = 64 * MIB }) end)
  teardown(function()
    model = nil
    collectgarbage()
    collectgarbage()
    pcall(device.close, device)
    neap.device("cpu")
  end)
  before_each(function()
    model = nil
    collectgarbage()
    collectgarbage()
    neap.manual_seed(1)
    model, lines = Counting(), {}
  end)
  after_each(function() device:set_budget(64 * MIB) end)

  local function live() return device:memory().live_bytes end

  local function probe(fields)
    local tried = {}
    local options = { cap = 64, log = function(line) lines[#lines + 1] = line end,
      forward_at = function(n)
        tried[#tried + 1] = n
        return model(neap.full({ n, 1024 }, 0.5))
      end }
    for key, value in pairs(fields or {}) do options[key] = value end
    local n, outcome = neap.auto_chunk(options)
    return n, outcome, tried
  end

  it("tries the cap itself where everything fits", function()
    local before = live()
    local n, outcome, tried = probe({ floor = 1 })
    assert.equal(64, n)
    assert.same({ 1, 2, 4, 8, 16, 32, 64 }, tried)
    assert.equal("chosen", outcome.kind)
    assert.is_true(outcome.within_budget)
    assert.is_false(outcome.unmeasured)
    assert.equal("reached cap", outcome.stop)
    assert.equal(64 * MIB - before, outcome.free_bytes)
    assert.equal(64 * MIB, outcome.total_bytes)
    assert.equal(before, live())
  end)

  it("measures what a forward holds for its backward, to the byte", function()
    local _, outcome = probe({ cap = 32, floor = 32 })
    -- the loss, and what the tape saves: the input of linear and that of gelu
    local saved
    neap.scope(function()
      local x = neap.full({ 32, 1024 }, 0.5)
      local before = live() - x:bytes()
      local loss = model(x)
      saved = live() - before
      neap.backward(loss)
    end)
    for _, p in ipairs(model:parameters()) do p.tensor:zero_grad() end
    assert.equal(saved, outcome.used_bytes)
    assert.equal(math.floor(saved / 32), outcome.item_bytes)
  end)

  it("stops where the next rung would not fit, with the answer of the arithmetic", function()
    device:set_budget(live() + 2 * MIB)
    local n, outcome, tried = probe({ cap = 4096, floor = 1, target = 0.9 })
    assert.is_true(outcome.within_budget)
    assert.is_true(outcome.used_bytes <= outcome.budget_bytes)
    assert.is_true(n < 4096 and n > 1)
    assert.equal(n, tried[#tried])
    assert.matches("^next rung " .. 2 * n .. " predicted %d+ bytes > budget %d+$", outcome.stop)
    assert.equal(neap.chunk_from_measurements(outcome.free_bytes, outcome.item_bytes, 4096, 1, 0.9),
      n)
  end)

  it("takes floor min(16, cap) and target 0.6 when not told", function()
    local _, outcome, tried = probe({ cap = 20 })
    assert.same({ 16, 20 }, tried)
    assert.equal(16, outcome.floor)
    assert.equal(ffi.new("float[1]", 0.6)[0], outcome.target)
    _, outcome, tried = probe({ cap = 5 })
    assert.same({ 5 }, tried)
    assert.equal(5, outcome.floor)
  end)

  it("says that nothing fits, what it needs and what is free, where one item does not", function()
    device:set_budget(live() + 4096 + 64)
    local free = device:memory().budget_bytes - live()
    local n, outcome, tried = probe({ floor = 1 })
    assert.is_nil(n)
    assert.same({ 1 }, tried)
    assert.equal("nothing_fits", outcome.kind)
    assert.is_nil(outcome.n)
    assert.equal("forward_at(1) failed", outcome.stop)
    assert.equal(free, outcome.free_bytes)
    assert.is_true(outcome.needed_bytes > free)
    assert.matches("out of memory on cpu: .* asked %d+ bytes", outcome.reason)
    assert.equal(1, #lines)
    assert.matches("auto_chunk: nothing fits; " .. free .. " bytes free of .*; stopped: "
      .. "forward_at%(1%) failed: .*out of memory on cpu", lines[1])
  end)

  it("keeps the rung before the one that ran out of memory", function()
    local n, outcome = probe({ floor = 16, forward_at = function(k)
      if k > 40 then fail.raise("out of memory", "full") end
      return neap.full({ k }, 1)
    end })
    assert.equal(32, n)
    assert.equal("forward_at(64) failed", outcome.stop)
    assert.is_nil(outcome.reason)
  end)

  it("answers the floor over budget and says so", function()
    device:set_budget(live() + MIB)
    local n, outcome = probe({ floor = 32, cap = 32 })
    assert.equal(32, n)
    assert.is_false(outcome.within_budget)
    assert.equal("floor over budget", outcome.stop)
    assert.matches("%(over budget%)", lines[1])
  end)

  it("raises any other error at once, with everything as before", function()
    local before, rng = live(), require("neap.rng").get()
    for _, kind in ipairs({ "shape mismatch", "usage", "stale handle" }) do
      local runs = 0
      assert.equal("a bug", failure_of(kind, probe, { floor = 1, forward_at = function(n)
        runs = runs + 1
        neap.full({ 1024 }, 1)
        model(neap.full({ n, 1024 }, 1))
        C.neap_tape_select(0)
        if n > 1 then fail.raise(kind, "a bug") end
        return neap.full({ 1 }, 1)
      end }))
      assert.equal(2, runs)
    end
    local ok, err = pcall(probe, { forward_at = function() error("interrupted", 0) end })
    assert.is_false(ok)
    assert.equal("interrupted", err)
    assert.equal(before, live())
    assert.same(rng, require("neap.rng").get())
    assert.equal(0, C.neap_scope_depth())
    assert.equal(require("neap.autograd").ambient, C.neap_tape_selected())
    assert.is_nil(require("neap.autograd").before_walk)
    assert.same({}, lines)
  end)

  it("leaves randomness, buffers, gradients and memory as they were", function()
    neap.rng({ seed = 9, step = 4, call = 3 })
    local parameters = model:parameters()
    for _, p in ipairs(parameters) do p.tensor:grad():fill(0.25) end
    model.calls:fill(7)
    local before, rng, losses = live(), require("neap.rng").get(), {}
    local n = probe({ floor = 4, cap = 8, forward_at = function(k)
      local loss = model(neap.full({ k, 1024 }, 1))
      losses[#losses + 1] = loss:item()
      neap.backward(loss)
      return loss
    end })
    assert.equal(8, n)
    assert.equal(before, live())
    assert.same(rng, require("neap.rng").get())
    assert.same({ 7, 7, 7, 7 }, model.calls:table())
    for _, p in ipairs(parameters) do
      assert.equal(0.25, neap.op.mean(p.tensor:grad()):item())
    end
    -- each rung draws the same masks: twice in a row gives the same losses
    local again = {}
    probe({ floor = 4, cap = 8, forward_at = function(k)
      local loss = model(neap.full({ k, 1024 }, 1))
      again[#again + 1] = loss:item()
      return loss
    end })
    assert.same(losses, again)
  end)

  it("holds nothing when memory fails, whichever allocation it is", function()
    probe({ cap = 1 })
    collectgarbage()
    local before, n = live(), 0
    repeat
      n = n + 1
      -- two in a row: the second try after a collection fails too
      check(C.neap_memory_fail(n, 2))
      local ok, found, outcome = pcall(probe, { cap = 2, floor = 1 })
      local attempts = C.neap_memory_n_attempts()
      check(C.neap_memory_fail(0, 0))
      if not ok then
        assert.equal("out of memory", found.kind)
      elseif found ~= 2 then
        assert.matches("failed$", outcome.stop)
      end
      assert.equal(before, live())
      assert.equal(0, C.neap_scope_depth())
      assert.equal(require("neap.autograd").ambient, C.neap_tape_selected())
    until attempts < n or n > 400
    assert.is_true(n > 10 and n <= 400)
  end)

  it("writes one line with all of it", function()
    local _, outcome = probe({ floor = 16, cap = 16, target = 7 })
    assert.equal(1, #lines)
    assert.equal(outcome.line, lines[1])
    assert.equal(string.format("auto_chunk: 16 items: %.0f bytes an item, %.0f of a budget of "
      .. "%.0f; %.0f bytes free of 67108864; cap 16, floor 16, target 95.0%%; stopped: reached cap",
      outcome.item_bytes, outcome.used_bytes, outcome.budget_bytes, outcome.free_bytes), lines[1])
    probe({ cap = 1, log = false })
    assert.equal(1, #lines)
  end)
end)
