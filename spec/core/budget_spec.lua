-- Where memory ends: the hard budget, the null device's size, and null counting as the cpu does.
local neap = require("neap")
local native = require("neap.ffi")
local failure_of = require("spec.support.failure_of")

local C, check = native.C, native.check

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("a device with little memory", function()
  teardown(function() neap.device("cpu") end)

  local function fill_up(device)
    return neap.scope(function()
      local kept = neap.zeros({ 16 }, { device = device, tag = C.NEAP_TAG_PARAMETERS })
      neap.zeros({ 256 }, { device = device, tag = C.NEAP_TAG_BATCH })
      local big = neap.zeros({ 100 }, { device = device })
      return kept, big
    end)
  end

  alone("gives what fits exactly, and refuses one byte more with all numbers", function()
    local device = neap.device("cpu", { budget = 64 + 1024 + 448 })
    local kept, big = fill_up(device)
    big:free()
    assert.equal(64 + 1024 + 448, device:memory().peak.run)
    device:set_budget(64 + 1024 + 448 - 1)
    kept:free()
    local message = failure_of("out of memory", fill_up, device)
    for _, part in ipairs({ "out of memory on cpu", "the budget is exceeded", "asked 448 bytes",
      "live 1088", "parameters 64", "batch 1024", "peak 1536", "budget 1535", "reserved " }) do
      assert(message:find(part, 1, true), ("'%s' does not say '%s'"):format(message, part))
    end
    assert.equal(0, device:memory().live_bytes)
    device:set_budget(nil)
    kept, big = fill_up(device)
    kept:free()
    big:free()
    device:close()
  end)

  alone("goes on after a refusal: the next allocation that fits succeeds", function()
    local device = neap.device("cpu", { budget = 128 })
    neap.scope(function()
      local x = neap.full({ 16 }, 3)
      failure_of("out of memory", neap.zeros, { 17 })
      assert.equal(64, device:memory().live_bytes)
      local y = neap.op.scale(x, 2)
      failure_of("out of memory", neap.op.scale, y, 2)
      assert.equal(128, device:memory().live_bytes)
      x:free()
      assert.equal(12, neap.op.scale(y, 2):table()[16])
    end)
    device:close()
  end)

  alone("collects tensors that nobody holds before it refuses", function()
    local device = neap.device("cpu", { budget = 64 * 10 })
    for i = 1, 200 do assert.equal(i, neap.full({ 1 }, i):item()) end
    local x = neap.full({ 1 }, 1)
    for _ = 1, 100 do x = neap.op.scale(x, 1) end
    assert.equal(1, x:item())
    x:free()
    collectgarbage()
    collectgarbage()
    device:close()
  end)

  alone("takes budgets as text and shares, and refuses others", function()
    local device = neap.device("null", { size = "1MiB", budget = "50%" })
    assert.equal(2 ^ 19, device:memory().budget_bytes)
    device:set_budget("1KiB")
    assert.equal(1024, device:memory().budget_bytes)
    for _, bad in ipairs({ -1, 0 / 0, "much", {}, true, "101%", 1e300 }) do
      failure_of("usage", device.set_budget, device, bad)
      assert.equal(1024, device:memory().budget_bytes)
    end
    for _, bad in ipairs({ 0 / 0, 1e16, math.huge }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_memory_budget(device.id, bad))
    end
    check(C.neap_memory_budget(device.id, -1))
    assert.is_nil(device:memory().budget_bytes)
    device:close()
  end)

  alone("has the size null was opened with", function()
    local device = neap.device("null", { size = 1024 })
    assert.equal(1024, device:memory().size_bytes)
    assert.equal(1024, C.neap_memory_available(device.id))
    neap.scope(function()
      neap.zeros({ 240 })
      assert.equal(64, C.neap_memory_available(device.id))
      neap.zeros({ 16 })
      local message = failure_of("out of memory", neap.zeros, { 1 })
      assert(message:find("out of memory on null: the device is full", 1, true), message)
      assert(message:find("size 1024", 1, true), message)
    end)
    assert.is_nil(neap.device("null"):memory().size_bytes)
    device:close()
    for _, bad in ipairs({ "rubbish", "80%", -5, true, {} }) do
      failure_of("usage", neap.device, "null", { size = bad })
    end
  end)

  alone("can be null, which counts what the cpu counts, for every op", function()
    local function program(device)
      neap.manual_seed(5)
      device:restart_peak("run")
      local model = neap.nn.GPT({ vocabulary = 11, context = 6, width = 12, n_layer = 2, n_head = 3,
        dropout = 0.1 })
      local norm, optimizer = neap.nn.RMSNorm(12), neap.optim.AdamW(model:parameters())
      local trace = {}
      for _ = 1, 2 do
        neap.scope(function()
          local ids = neap.full({ 2, 6 }, 1, { dtype = "i32" })
          local x = norm(model.stages[1].module(ids))
          local y = neap.op.silu(neap.op.relu(neap.op.matmul(x, neap.op.transpose(x))))
          local z = neap.op.mean(neap.op.reshape(y, { 72 }))
          local loss = model(ids, { batch = { targets = ids } })
          trace[#trace + 1] = device:memory().live_bytes
          neap.op.add(loss, neap.op.add(z, neap.op.sum(neap.op.sum(y, 1)))):backward()
          trace[#trace + 1] = device:memory().live_bytes
          optimizer:step(1e-3)
        end)
        trace[#trace + 1] = device:memory().live_bytes
        trace[#trace + 1] = device:memory().peak.run
        trace[#trace + 1] = device:memory().peak.work
      end
      model:free()
      norm:free()
      optimizer:free()
      trace[#trace + 1] = device:memory().live_bytes
      trace[#trace + 1] = device:memory().n_allocations
      return trace
    end
    local cpu = neap.device("cpu", { budget = "1GiB" })
    local expected = program(cpu)
    local null = neap.device("null", { budget = "1GiB" })
    assert.same(expected, program(null))
    assert(expected[4] > 20000)
    assert.equal(0, expected[11])
    cpu:close()
    null:close()
  end)

  alone("can be null, whose tensors read as zeros", function()
    neap.with_device(neap.device("null"), function()
      neap.scope(function()
        assert.same({ 0, 0, 0 }, neap.tensor({ 1, 2, 3 }):table())
        assert.equal(0, neap.op.sum(neap.full({ 5 }, 3)):item())
      end)
    end)
    neap.device("cpu")
  end)
end)
