-- The copy task's items: what they hold, and that they depend on position and seed alone.
local ffi = require("ffi")
local copy_task = require("neap.copy_task")
local failure_of = require("spec.support.failure_of")

local function read(task, position, n, method)
  local size = n * task.context
  local inputs, targets = ffi.new("int32_t[?]", size), ffi.new("int32_t[?]", size)
  task[method or "batch"](task, position, n, inputs, targets)
  local a, b = {}, {}
  for i = 0, size - 1 do a[i + 1], b[i + 1] = inputs[i], targets[i] end
  return a, b
end

describe("an item of the copy task", function()
  it("shows symbols, blanks, the sign at the last moment, and asks for the symbols", function()
    for _, context in ipairs({ 3, 4, 5, 20, 21, 22, 100 }) do
      local task = copy_task.open({ context = context })
      local k = task.n_symbols
      assert.equal(math.min(10, math.floor((context - 1) / 2)), k)
      local inputs, targets = read(task, 0, 1)
      for t = 1, context do
        if t <= k then
          assert.is_true(inputs[t] >= 1 and inputs[t] <= 8)
        else
          assert.equal(t == context - k and 9 or 0, inputs[t])
        end
        assert.equal(t <= context - k and 0 or inputs[t - context + k], targets[t])
      end
    end
  end)

  it("depends on its position and the seed, not on the batch it came in", function()
    local task = copy_task.open({ context = 30, seed = 4 })
    local all, one = read(task, 10, 3), read(task, 12, 1)
    assert.same(one, { unpack(all, 61, 90) })
    assert.not_same(one, (read(task, 11, 1)))
    assert.not_same(one, (read(copy_task.open({ context = 30, seed = 5 }), 12, 1)))
    assert.not_same(one, (read(task, 12, 1, "validation_batch")))
  end)

  it("draws all symbols about equally often", function()
    local counts = {}
    for i, symbol in ipairs((read(copy_task.open({ context = 21 }), 0, 400))) do
      if (i - 1) % 21 < 10 then counts[symbol] = (counts[symbol] or 0) + 1 end
    end
    for symbol = 1, 8 do assert.is_true(math.abs(counts[symbol] - 500) < 110, counts[symbol]) end
  end)
end)

describe("the copy task", function()
  it("refuses lengths that hold no symbol, and unknown options", function()
    for _, context in ipairs({ 2, 0, -1, 2.5, 0 / 0, "9", 2 ^ 30 }) do
      local message = failure_of("usage", copy_task.open, { context = context })
      assert(message:find("copy task: context must be", 1, true), message)
    end
    failure_of("usage", copy_task.open)
    failure_of("usage", copy_task.open, { context = 9, seed = 1.5 })
    assert(failure_of("usage", copy_task.open, { contxt = 9 }):find("did you mean 'context'", 1,
      true))
  end)

  it("refuses buffers that are too short, and other mistakes", function()
    local task = copy_task.open({ context = 9 })
    local short, long = ffi.new("int32_t[17]"), ffi.new("int32_t[18]")
    assert(failure_of("invalid argument", task.batch, task, 0, 2, long, short):find(
      "batch: buffer 2 must be int32_t[n] with n of 18 or more", 1, true))
    failure_of("invalid argument", task.validation_batch, task, 0, 2, short, long)
    failure_of("invalid argument", task.batch, task, 0, 2, nil, long)
    failure_of("usage", task.batch, task, -1, 2, long, long)
    failure_of("usage", task.batch, task, 0, 0.5, long, long)
    failure_of("usage", task.batch, nil, 0, 2, long, long)
  end)
end)
