-- Learning rates by step: through the warm-up, in the middle, at the end, after it.
local neap = require("neap")
local schedule = neap.optim.schedule

local function values(rate, steps)
  local out = {}
  for i, step in ipairs(steps) do out[i] = rate(step) end
  return out
end

local function close(expected, found)
  assert.equal(#expected, #found)
  for i = 1, #expected do
    assert(math.abs(expected[i] - found[i]) < 1e-12, ("value %d is %.17g"):format(i, found[i]))
  end
end

describe("a schedule", function()
  local steps = { 1, 5, 10, 11, 60, 110, 111, 1000 }
  local o = { lr = 2, min_lr = 0.5, warmup = 10, steps = 110 }

  it("cosine rises in a line, falls along half a cosine to min_lr, and stays there", function()
    local eleventh = 0.5 + 1.5 * 0.5 * (1 + math.cos(math.pi / 100))
    close({ 0.2, 1, 2, eleventh, 1.25, 0.5, 0.5, 0.5 }, values(schedule.cosine(o), steps))
    -- a quarter of the way: (1 + cos(pi / 4)) / 2
    close({ 0.5 + 1.5 * 0.85355339059327 }, values(schedule.cosine(o), { 35 }))
  end)

  it("linear rises and falls in lines", function()
    close({ 0.2, 1, 2, 1.985, 1.25, 0.5, 0.5, 0.5 }, values(schedule.linear(o), steps))
  end)

  it("constant rises and stays", function()
    close({ 0.2, 1, 2, 2, 2, 2, 2, 2 }, values(schedule.constant(o), steps))
  end)

  it("falls to 0 without min_lr, begins at lr without a warm-up", function()
    for _, name in ipairs({ "cosine", "linear" }) do
      local rate = schedule[name]({ lr = 3, steps = 4 })
      close({ 1.5, 0, 0 }, values(rate, { 2, 4, 9 }))
      assert(rate(1) < 3 and rate(1) > 2)
    end
    close({ 3, 3 }, values(schedule.constant({ lr = 3 }), { 1, 100 }))
  end)

  it("never rises after the warm-up, never falls in it, and is always finite", function()
    for _, name in ipairs({ "cosine", "linear", "constant" }) do
      for _, warmup in ipairs({ 0, 1, 7, 20, 30 }) do
        local rate = schedule[name]({ lr = 1, min_lr = 0.1, warmup = warmup, steps = 20 })
        local before = 0
        for step = 1, 40 do
          local now = rate(step)
          assert(now == now and now > 0 and now <= 1)
          if step <= warmup then assert(now >= before) end
          if step > warmup + 1 then assert(now <= before) end
          before = now
        end
      end
    end
  end)
end)
