-- Devices: opening, the default one, closing, threads.
local neap = require("neap")
local native = require("neap.ffi")
local device_module = require("neap.device")
local failure_of = require("spec.support.failure_of")

local C, ffi = native.C, native.ffi

describe("neap.device", function()
  teardown(function() neap.device("cpu") end)

  local function sentence(message, ...)
    for _, part in ipairs({ ... }) do
      assert(message:find(part, 1, true), ("'%s' does not say '%s'"):format(message, part))
    end
  end

  it("opens cpu and null; auto takes the best and says why", function()
    local cpu, null = neap.device("cpu"), neap.device("null")
    assert.same({ "cpu", "null" }, { cpu.name, null.name })
    assert.same({ true, false }, { cpu:computes(), null:computes() })
    assert.equal("device null", tostring(null))
    assert.equal("asked for", null.reason)
    local auto = neap.device("auto")
    sentence(auto.reason, "auto: ", "CPU")
    assert.equal("cpu", auto.name)
    assert.equal("cpu", ffi.string(C.neap_device_name(auto.id)))
  end)

  it("gives the same one again, a new one with options", function()
    local cpu = neap.device("cpu")
    assert.equal(cpu, neap.device("cpu"))
    local other = neap.device("cpu", { budget = 4096 })
    assert.are_not.equal(cpu.id, other.id)
    assert.equal(4096, other:memory().budget_bytes)
    neap.scope(function()
      local before = cpu:memory().live_bytes
      neap.zeros({ 16 })
      assert.same({ before, 64 }, { cpu:memory().live_bytes, other:memory().live_bytes })
    end)
    other:close()
  end)

  it("is the default of tensors and layers made afterwards", function()
    local null = neap.device("null", { size = "1GiB" })
    local layer = neap.nn.Linear(2, 3)
    assert.equal(null.id, C.neap_tensor_device(layer.weight.id))
    layer:free()
    local cpu = neap.device("cpu")
    assert.equal(cpu, device_module.current())
    assert.equal(cpu.id, C.neap_tensor_device(neap.zeros({ 1 }).id))
    local first, second = neap.with_device(null, function(x)
      assert.equal(null, device_module.current())
      return x, 2
    end, 1)
    assert.same({ 1, 2 }, { first, second })
    assert.is_false(pcall(neap.with_device, null, function() error("no") end))
    assert.equal(cpu, device_module.current())
    null:close()
  end)

  it("names the nearest for unknown devices and options", function()
    sentence(failure_of("usage", neap.device, "cpus"), "did you mean 'cpu'?", "allowed: ", "auto")
    sentence(failure_of("device", neap.device, "cuda"), "no CUDA backend is built", "cpu or null")
    sentence(failure_of("device", neap.device, "cuda:1"), "cuda:1")
    sentence(failure_of("usage", neap.device, "cpu", { bugdet = 1 }), "did you mean 'budget'?")
    for _, bad in ipairs({ 5, true, {} }) do failure_of("usage", neap.device, bad) end
    local before = device_module.current()
    failure_of("usage", neap.device, "cpu", { budget = "lots" })
    assert.equal(before, device_module.current())
  end)

  it("does not close while tensors on it are alive", function()
    local device = neap.device("cpu", { budget = "1MiB" })
    local x, empty = neap.zeros({ 3 }), neap.zeros({ 0 })
    sentence(failure_of("wrong state", device.close, device), "2 tensors (64 bytes) are alive")
    x:free()
    sentence(failure_of("wrong state", device.close, device), "1 tensors (0 bytes) are alive")
    empty:free()
    device:close()
    neap.device("cpu")
  end)

  it("is refused once it is closed, though its place is used again", function()
    local device = neap.device("null", { size = 4096 })
    device:close()
    local next_one = neap.device("null", { size = 4096 })
    assert.are_not.equal(device.id, next_one.id)
    for _, call in ipairs({
      function() device:close() end,
      function() device:memory() end,
      function() device:trim() end,
      function() device:restart_peak("run") end,
      function() device:set_budget(1) end,
      function() neap.zeros({ 1 }, { device = device }) end,
    }) do
      sentence(failure_of("device", call), "device " .. device.id .. " is not open")
    end
    assert.is_false(device:computes())
    assert.is_true(C.neap_device_name(device.id) == nil)
    assert.equal(C.NEAP_ERR_DEVICE, C.neap_memory_live(device.id))
    assert.equal(C.NEAP_ERR_DEVICE, C.neap_memory_available(device.id))
    next_one:close()
    neap.device("cpu")
  end)

  it("may be opened again and again, 64 at once", function()
    for _ = 1, 300 do neap.device("null", { size = 64 }):close() end
    local open, message = {}, nil
    for _ = 1, 65 do
      local ok, device = pcall(neap.device, "null", { size = 64 })
      if not ok then
        message = device.message
        break
      end
      open[#open + 1] = device
    end
    for _, device in ipairs(open) do device:close() end
    neap.device("cpu")
    sentence(message, "64 devices are open already")
    assert(#open >= 1)
  end)

  it("of C is refused without a name, with an unknown one and a size that is none", function()
    local out = ffi.new("int[1]", -7)
    assert.equal(C.NEAP_ERR_INVALID, C.neap_device_open(nil, 0, out))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_device_open("cpu", 0, nil))
    for _, size in ipairs({ -1, 0 / 0, math.huge, 1e16 }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_device_open("null", size, out))
    end
    assert.equal(C.NEAP_ERR_DEVICE, C.neap_device_open("tpu", 0, out))
    assert.equal(-7, out[0])
    for _, bad in ipairs({ -1, 2 ^ 31 - 1, -2 ^ 31 }) do
      assert.equal(C.NEAP_ERR_DEVICE, C.neap_device_close(bad))
      assert.equal(C.NEAP_ERR_DEVICE, C.neap_device_computes(bad))
    end
    assert.is_true(C.neap_backend_name(-1) == nil)
  end)

  it("tells the threads of the kernels, and sets them", function()
    local before = neap.threads()
    assert.equal(2, neap.threads(2))
    assert.equal(2, neap.threads())
    for _, bad in ipairs({ 0, -1, 1025, 1e9, math.huge, 0 / 0 }) do
      assert.is_false(pcall(neap.threads, bad))
    end
    for _, bad in ipairs({ "2", 1.5, true, {} }) do failure_of("usage", neap.threads, bad) end
    assert.equal(2, neap.threads())
    assert(C.neap_cores_physical() >= 1)
    neap.threads(before)
  end)

  it("knows the memory that is free", function()
    local cpu = neap.device("cpu")
    local free, size = C.neap_memory_available(cpu.id), cpu:memory().size_bytes
    assert(free > 2 ^ 20 and free <= size)
    assert.equal(C.NEAP_ERR_UNSUPPORTED, C.neap_memory_available(neap.device("null").id))
    neap.device("cpu")
  end)
end)
