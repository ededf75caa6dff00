-- ResNet: its chain, its size, the same bits under every plan, and its state.
local neap = require("neap")
local numbers = require("spec.support.numbers")
local failure_of = require("spec.support.failure_of")
local state = require("neap.state")

local C = require("neap.ffi").C
local nn = neap.nn

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("ResNet", function()
  local device, null
  before_each(function()
    null = neap.device("null", { size = "1TiB" })
    device = neap.device("cpu", { budget = "1GiB" })
    neap.manual_seed(1)
    neap.threads(1)
  end)
  after_each(function()
    jit.flush() -- compiled code may hold on to handles
    collectgarbage()
    collectgarbage()
    device:close()
    null:close()
    neap.device("cpu")
  end)

  -- n images of one channel whose waves are longer or shorter by class
  local function images(n, side, classes)
    local x, t = {}, {}
    for i = 0, n - 1 do
      t[i + 1] = i % classes
      for p = 0, side * side - 1 do
        x[#x + 1] = math.sin(0.7 * p * (1 + i % classes)) + 0.2 * math.sin(7 * i + 1.3 * p)
      end
    end
    return { inputs = neap.tensor(x, { n, 1, side, side }),
      targets = neap.tensor(t, { n }, { dtype = "i32" }) }
  end

  alone("is a chain of stem, blocks and head with as many parameters as the formula", function()
    for _, c in ipairs({ { 8, 4, 3, 1 }, { 20, 6, 10, 3 }, { 10, 2, 2, 1 } }) do
      local depth, w, classes, channels = unpack(c)
      for _, block in ipairs({ "pre", "basic" }) do
        local model = nn.ResNet({ depth = depth, width = w, classes = classes,
          channels = channels, block = block })
        local blocks, basic = (depth - 2) / 2, block == "basic"
        local expected, width = channels * w * 9 + (basic and 2 * w or 0), w
        for i = 0, blocks - 1 do
          local out = w * 2 ^ math.floor(3 * i / blocks)
          expected = expected + 9 * width * out + 9 * out * out
            + (basic and 4 * out or 2 * width + 2 * out)
          if out ~= width then expected = expected + width * out + (basic and 2 * out or 0) end
          width = out
        end
        expected = expected + (basic and 0 or 2 * width) + width * classes + classes
        assert.equal(expected, model:n_parameters())
        assert.equal(blocks + 2, #model.stages)
        assert.equal("stem", model.stages[1].name)
        assert.equal("block.0", model.stages[2].name)
        assert.equal("head", model.stages[#model.stages].name)
        model:free()
      end
    end
  end)

  alone("of each block gives logits, or the loss of guessing, and keeps to its classes", function()
    for _, block in ipairs({ "pre", "basic" }) do
      local model = nn.ResNet({ depth = 14, width = 4, classes = 7, block = block })
      neap.scope(function()
        local batch = images(6, 9, 7)
        assert.same({ 6, 7 }, model(batch.inputs):dims())
        local loss = model(batch.inputs, { batch = batch })
        assert.same({}, loss:dims())
        assert(loss:item() > 1 and loss:item() < 4, loss:item())
      end)
      model:free()
    end
  end)

  alone("keeps the size of what passes through many blocks", function()
    for _, block in ipairs({ "pre", "basic" }) do
      local model = nn.ResNet({ depth = 110, width = 4, classes = 4, block = block })
      neap.scope(function()
        local x, sizes = images(6, 8, 4).inputs, {}
        for i = 1, #model.stages - 1 do
          x = model.stages[i].module(x)
          local sum = 0
          for _, v in ipairs(x:table()) do sum = sum + v * v end
          sizes[i] = math.sqrt(sum / x:numel())
        end
        assert(sizes[#sizes] < 4 * sizes[1] and sizes[#sizes] > sizes[1] / 4, sizes[#sizes])
      end)
      model:free()
    end
  end)

  alone("of 1,000 layers is profiled and planned on null", function()
    neap.with_device(null, function()
      local model = nn.ResNet({ depth = 1000, width = 16, classes = 10, channels = 3 })
      assert.equal(501, #model.stages)
      neap.scope(function()
        local batch = { inputs = neap.empty({ 8, 3, 32, 32 }),
          targets = neap.empty({ 8 }, { dtype = "i32" }) }
        local profile = neap.profile(model, batch)
        local function peak(spec)
          return neap.simulate(neap.plan(spec, profile), profile).peak_bytes
        end
        assert(peak("segments:22") * 6 < peak("none"))
      end)
      model:free()
    end)
  end)

  -- loss, gradients and buffers after two steps, and the peak beside the predicted one
  local function train(on, depth, spec)
    return neap.with_device(on, function()
      neap.manual_seed(3)
      local model = nn.ResNet({ depth = depth, width = 4, classes = 4 })
      local result = neap.scope(function()
        local batch = images(6, 8, 4)
        model:zero_grad()
        local profile = neap.profile(model, batch, { cost = "flops" })
        local plan, executor = neap.plan(spec, profile), neap.executor(model)
        local loss, bits, peaks = nil, {}, {}
        for step = 1, 2 do
          local live = on:memory().live_bytes
          C.neap_memory_restart(on.id, C.NEAP_METER_STEP)
          loss = executor:run(batch, plan)
          peaks[step] = on:memory().peak.step - live
        end
        for _, p in ipairs(model:parameters()) do bits[p.name] = p.tensor:grad():bits() end
        for _, b in ipairs(model:buffers()) do bits[b.name] = b.tensor:bits() end
        return { loss = loss, bits = bits, peaks = peaks,
          predicted = neap.simulate(plan, profile).peak_bytes }
      end)
      model:free()
      return result
    end)
  end

  alone("has the same bits and buffers under every plan, and the predicted peak", function()
    local expected = train(device, 20, "none")
    assert.equal(expected.bits["head.norm.batches_tracked"][1], 0x40000000) -- 2
    for _, spec in ipairs({ "none", "all", "segments:4" }) do
      local found = train(device, 20, spec)
      assert.equal(expected.loss, found.loss)
      assert.same(expected.bits, found.bits)
      assert.same({ found.predicted, found.predicted }, found.peaks, spec)
      local counted = train(null, 20, spec)
      assert.same(found.peaks, counted.peaks)
      assert.equal(found.predicted, counted.predicted)
    end
  end)

  alone("saves its buffers with its state, and loads them", function()
    local path = os.tmpname()
    local function new(seed)
      neap.manual_seed(seed)
      local model = nn.ResNet({ depth = 6, width = 2, classes = 2 })
      return model, neap.optim.SGD(model:parameters())
    end
    local model, optimizer = new(1)
    neap.scope(function() model(images(4, 6, 2).inputs) end)
    state.save(path, { model = model, optimizer = optimizer,
      counts = { step = 1, position = 4, seed = 1 } })
    local other, its = new(2)
    assert(other:buffers()[1].tensor:table()[1] == 0)
    state.load(path, { model = other, optimizer = its })
    for i, entry in ipairs(model:buffers()) do
      numbers.same(entry.name, entry.tensor:bits(), other:buffers()[i].tensor:bits())
    end
    model:eval()
    other:eval()
    neap.scope(function()
      local x = images(3, 6, 2).inputs
      numbers.same("evaluation", model(x):bits(), other(x):bits())
    end)
    os.remove(path)
    for _, part in ipairs({ model, optimizer, other, its }) do part:free() end
  end)

  alone("refuses depths, widths and blocks that are none", function()
    local function refused(key, value)
      local options = { depth = 8, width = 4, classes = 2 }
      options[key] = value
      return failure_of("usage", nn.ResNet, options)
    end
    assert.matches("take 8 or 10", refused("depth", 9))
    for _, depth in ipairs({ 2, 1002, 8.5, 0 / 0, "8" }) do refused("depth", depth) end
    for _, key in ipairs({ "width", "classes", "channels" }) do refused(key, 0) end
    assert.matches("did you mean 'basic'", refused("block", "basik"))
    refused("block", 5)
    refused("wdth", 4)
    failure_of("usage", nn.ResNet)
  end)
end)
