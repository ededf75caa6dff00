-- Counted memory of a device: live, by tag, meters, budget, size, cached blocks.
local neap = require("neap")
local native = require("neap.ffi")
local failure_of = require("spec.support.failure_of")

local C, ffi, check = native.C, native.ffi, native.check

describe("memory of a device", function()
  local device
  before_each(function() device = neap.device("cpu", { budget = "1GiB" }) end)
  after_each(function()
    device:close()
    neap.device("cpu")
  end)

  local function new(bytes, tag)
    local dims = ffi.new("double[1]", bytes / 4)
    return check(C.neap_tensor_new(device.id, C.NEAP_F32, 1, dims, tag or C.NEAP_TAG_BATCH))
  end
  local function free(...)
    for _, id in ipairs({ ... }) do assert.equal(0, C.neap_tensor_free(id)) end
  end
  local function live() return device:memory().live_bytes end

  it("counts each storage rounded up to 64 bytes", function()
    for bytes, counted in pairs({ [0] = 0, [4] = 64, [60] = 64, [64] = 64, [68] = 128, [128] = 128,
      [4100] = 4160 }) do
      local id = new(bytes)
      assert.equal(counted, live())
      assert.equal(counted, C.neap_tensor_bytes(id))
      free(id)
      assert.equal(0, live())
    end
  end)

  it("counts i32 by 4 bytes and bf16 by 2", function()
    neap.scope(function()
      neap.empty({ 64 }, { dtype = "i32", device = device })
      assert.equal(256, live())
      neap.empty({ 64 }, { dtype = "bf16", device = device })
      assert.equal(256 + 128, live())
    end)
    assert.equal(0, live())
  end)

  it("counts under the tag that was given, or that is selected", function()
    local ids = {}
    for tag = 0, C.NEAP_N_TAGS - 1 do ids[#ids + 1] = new(64 * (tag + 1), tag) end
    local stats = device:memory()
    local sum = 0
    for tag = 0, C.NEAP_N_TAGS - 1 do
      assert.equal(64 * (tag + 1), stats.tags[ffi.string(C.neap_tag_name(tag))])
      sum = sum + 64 * (tag + 1)
    end
    assert.equal(sum, stats.live_bytes)
    assert.equal(10, stats.n_tensors)
    free(unpack(ids))
    assert.equal(C.NEAP_TAG_ACTIVATIONS, C.neap_tag_select(C.NEAP_TAG_CHECK))
    local id = new(64, -1)
    assert.equal(C.NEAP_TAG_CHECK, C.neap_tag_select(C.NEAP_TAG_ACTIVATIONS))
    assert.equal(64, device:memory().tags.check)
    assert.equal(C.NEAP_TAG_CHECK, C.neap_tensor_tag(id))
    free(id)
  end)

  it("refuses unknown tags and leaves the selected one", function()
    for _, tag in ipairs({ -1, 10, 1000 }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_tag_select(tag))
      assert.is_true(C.neap_tag_name(tag) == nil)
    end
    local dims = ffi.new("double[1]", 1)
    assert.equal(C.NEAP_ERR_INVALID, C.neap_tensor_new(device.id, C.NEAP_F32, 1, dims, 10))
    assert.equal(C.NEAP_TAG_ACTIVATIONS, C.neap_tag_select(C.NEAP_TAG_ACTIVATIONS))
  end)

  it("counts a parameter's gradient as gradients, another leaf's as activations", function()
    neap.scope(function()
      local p = neap.zeros({ 16 }, { device = device, tag = C.NEAP_TAG_PARAMETERS,
        requires_grad = true })
      local x = neap.zeros({ 32 }, { device = device, tag = C.NEAP_TAG_BATCH,
        requires_grad = true })
      p:zero_grad()
      x:zero_grad()
      local tags = device:memory().tags
      assert.same({ 64, 64, 128, 128 },
        { tags.parameters, tags.gradients, tags.batch, tags.activations })
    end)
  end)

  it("counts scratch while an op runs, and nothing of it afterwards", function()
    neap.scope(function()
      local x = neap.zeros({ 4096 * 20 }, { device = device, tag = C.NEAP_TAG_BATCH })
      local before = live()
      device:restart_peak("run")
      neap.op.sum(x)
      -- one double a block of 4,096 elements: 160 bytes, rounded to 192; 64 of the result
      assert.equal(before + 192 + 64, device:memory().peak.run)
      assert.equal(before + 64, live())
      assert.equal(0, device:memory().tags.scratch)
    end)
  end)

  it("keeps a peak for each meter, restarted apart from the others", function()
    local names = { "run", "step", "action", "work" }
    free(new(640), new(64, C.NEAP_TAG_ACTIVATIONS))
    assert.same({ run = 704, step = 704, action = 704, work = 64 }, device:memory().peak)
    local keep, rest = new(128, C.NEAP_TAG_RECOMPUTE), new(64)
    for i, name in ipairs(names) do
      local before = device:memory().peak
      device:restart_peak(name)
      local after = device:memory().peak
      assert.equal(name == "work" and 128 or 192, after[name])
      for k, other in ipairs(names) do
        if k ~= i then assert.equal(before[other], after[other]) end
      end
    end
    free(new(64))
    assert.same({ run = 256, step = 256, action = 256, work = 128 }, device:memory().peak)
    free(keep, rest)
    for _, meter in ipairs({ -1, 4 }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_memory_restart(device.id, meter))
      assert.equal(C.NEAP_ERR_INVALID, C.neap_memory_peak(device.id, meter))
    end
    assert(failure_of("usage", device.restart_peak, device, "steps"):find("did you mean 'step'?", 1,
      true))
  end)

  it("counts activations, recompute, scratch and workspace as work, no others", function()
    local sum = 0
    for tag = 0, C.NEAP_N_TAGS - 1 do
      local name = ffi.string(C.neap_tag_name(tag))
      local counts = ({ activations = 1, recompute = 1, scratch = 1, workspace = 1 })[name]
      device:restart_peak("work")
      free(new(64, tag))
      assert.equal(counts and 64 or 0, device:memory().peak.work)
      sum = sum + (counts or 0)
    end
    assert.equal(4, sum)
  end)

  it("keeps the tags of the moment of the step's peak", function()
    local a = new(256, C.NEAP_TAG_BATCH)
    local b = new(64, C.NEAP_TAG_CHECK)
    free(a)
    local c = new(128, C.NEAP_TAG_OPTIMIZER)
    local at_peak = device:memory().tags_at_peak
    assert.same({ 256, 64, 0 }, { at_peak.batch, at_peak.check, at_peak.optimizer })
    device:restart_peak("step")
    at_peak = device:memory().tags_at_peak
    assert.same({ 0, 64, 128 }, { at_peak.batch, at_peak.check, at_peak.optimizer })
    free(b, c)
  end)

  it("reuses free blocks: a repeated pattern asks the device for nothing more", function()
    local function pattern()
      local ids = {}
      for i = 1, 60 do ids[i] = new(64 * (i * 37 % 23 + 1)) end
      for i = 1, 60, 2 do free(ids[i]) end
      for i = 1, 60, 2 do ids[i] = new(64 * (i * 11 % 17 + 1)) end
      free(unpack(ids))
    end
    pattern()
    local first = device:memory()
    for _ = 1, 50 do pattern() end
    local last = device:memory()
    assert.equal(first.n_device_allocations, last.n_device_allocations)
    assert.equal(first.reserved_bytes, last.reserved_bytes)
    assert.equal(first.n_allocations * 51, last.n_allocations)
  end)

  it("holds free blocks as cached until they are trimmed", function()
    local id = new(2 ^ 20)
    free(new(2 ^ 23), new(64))
    local stats = device:memory()
    assert(stats.cached_bytes > 0)
    assert.equal(stats.live_bytes + stats.cached_bytes, stats.reserved_bytes)
    device:trim()
    assert(device:memory().reserved_bytes < stats.reserved_bytes)
    assert.equal(2 ^ 20, live())
    free(id)
    device:trim()
    assert.equal(0, device:memory().reserved_bytes)
  end)

  it("merges what is free: halves freed in any order serve a whole", function()
    for _, order in ipairs({ { 1, 2, 3, 4 }, { 4, 3, 2, 1 }, { 2, 4, 1, 3 }, { 1, 3, 2, 4 } }) do
      local ids = {}
      -- 64 bytes less than a quarter and than the whole: sanitized builds leave a gap
      for i = 1, 4 do ids[i] = new(2 ^ 19 - 64) end
      for _, i in ipairs(order) do free(ids[i]) end
      free(new(2 ^ 21 - 64))
    end
    assert.equal(2 ^ 21, device:memory().reserved_bytes)
  end)

  it("never gives two living tensors one place", function()
    local live_ids, seed = {}, 7
    for i = 1, 400 do
      seed = seed * 16807 % 2147483647
      local id = new(64 * (seed % 40 + 1))
      check(C.neap_tensor_fill(id, i))
      live_ids[#live_ids + 1] = { id = id, value = i, n = C.neap_tensor_n_elements(id) }
      if seed % 3 > 0 then
        local gone = table.remove(live_ids, seed % #live_ids + 1)
        local host = ffi.new("float[?]", gone.n)
        check(C.neap_tensor_read(gone.id, host, gone.n * 4))
        for k = 0, gone.n - 1 do
          if host[k] ~= gone.value then error("tensor " .. gone.value .. " was written over") end
        end
        free(gone.id)
      end
    end
    assert(#live_ids > 50)
    for _, t in ipairs(live_ids) do free(t.id) end
    assert.equal(0, live())
  end)
end)
