-- Layers on images compute what their ops compute; BatchNorm keeps running statistics, which move
-- in training only.
local neap = require("neap")
local numbers = require("spec.support.numbers")
local failure_of = require("spec.support.failure_of")

local nn, o = neap.nn, neap.op

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

local function x_of(...)
  local wave = numbers.wave({ ... }, 1)
  return neap.tensor(wave.data, wave.dims)
end

local function same(expected, found)
  assert.same(expected:dims(), found:dims())
  numbers.same("output", expected:bits(), found:bits())
end

describe("the layer", function()
  setup(function()
    neap.device("cpu")
    neap.manual_seed(1)
  end)

  alone("Conv2d has a weight (out, in, height, width), a stride, a padding and perhaps a bias",
    function()
      neap.scope(function()
        local x, layer = x_of(2, 3, 6, 5), nn.Conv2d(3, 4, 3)
        layer.bias:fill(0.5)
        assert.same({ 4, 3, 3, 3 }, layer.weight:dims())
        same(o.conv2d(x, layer.weight, layer.bias), layer(x))
        local wide = nn.Conv2d(3, 2, { 1, 3 }, { stride = 2, padding = 1, bias = false })
        assert.same({ 2, 3, 1, 3 }, wide.weight:dims())
        assert.equal(1, #wide:parameters())
        same(o.conv2d(x, wide.weight, nil, 2, 1), wide(x))
        local sum, weight = 0, nn.Conv2d(40, 50, 3).weight
        for _, v in ipairs(weight:table()) do sum = sum + v * v end
        assert(math.abs(math.sqrt(sum / weight:numel()) * math.sqrt(360) - 1) < 0.03)
      end)
    end)

  alone("MaxPool2d, AvgPool2d, GlobalAvgPool2d and Flatten are their ops", function()
    neap.scope(function()
      local x = x_of(2, 3, 6, 7)
      for kind, op in pairs({ MaxPool2d = o.maxpool2d, AvgPool2d = o.avgpool2d }) do
        same(op(x, 2, 2, 0), nn[kind](2)(x))
        same(op(x, 3, 2, 1), nn[kind](3, { stride = 2, padding = 1 })(x))
        failure_of("usage", nn[kind], 3, { padding = 2 })
      end
      same(o.global_avgpool2d(x), nn.GlobalAvgPool2d()(x))
      same(o.flatten(x), nn.Flatten()(x))
    end)
  end)

  alone("Residual adds what it is given, or what a shortcut makes of it", function()
    neap.scope(function()
      local x, body = x_of(2, 3, 4, 4), nn.Conv2d(3, 3, 3, { padding = 1 })
      same(o.add(body(x), x), nn.Residual(body)(x))
      local down, shortcut = nn.Conv2d(3, 5, 2), nn.Conv2d(3, 5, 2, { bias = false })
      local layer = nn.Residual(down, shortcut)
      same(o.add(down(x), shortcut(x)), layer(x))
      local names = {}
      for i, p in ipairs(layer:parameters()) do names[i] = p.name end
      assert.same({ "body.weight", "body.bias", "shortcut.weight" }, names)
      for _, bad in ipairs({ 5, "x", {}, nn.Conv2d }) do
        failure_of("usage", nn.Residual, bad)
        failure_of("usage", nn.Residual, body, bad)
      end
      failure_of("usage", nn.Residual)
    end)
  end)
end)

describe("BatchNorm", function()
  local device
  setup(function() device = neap.device("cpu") end)

  -- each channel c of 4 numbers has the mean c and the variance 2 (8/3 of the population)
  local function batch()
    return neap.tensor({ 1 - 2, 2 - 2, 1 + 2, 2 + 2, 1, 2, 1, 2 }, { 4, 2 })
  end

  alone("trains on the batch's statistics and moves the running ones towards them", function()
    neap.scope(function()
      local layer, x = nn.BatchNorm(2), batch()
      same((o.batchnorm(x, layer.gain, layer.bias, 1e-5)), layer(x))
      numbers.close("mean", { 0.1, 0.2 }, layer.running_mean:table(), 1e-6)
      numbers.close("variance", { 0.9 + 0.8 / 3, 0.9 + 0.8 / 3 }, layer.running_variance:table(),
        1e-6)
      assert.equal(1, layer.batches_tracked:item())
      layer(x)
      numbers.close("mean", { 0.19, 0.38 }, layer.running_mean:table(), 1e-6)
      assert.equal(2, layer.batches_tracked:item())
    end)
  end)

  alone("uses the running statistics in evaluation, and moves them no more", function()
    neap.scope(function()
      local layer = nn.BatchNorm(2, { momentum = 0.3, eps = 1e-3 })
      layer(batch())
      layer:eval()
      local y = layer(batch())
      -- mean 0.3 and 0.6; variance 0.7 + 0.3 * 8 / 3 = 1.5
      local rstd = 1 / math.sqrt(1.501)
      numbers.close("output", { -1.3 * rstd, -0.6 * rstd, 2.7 * rstd, 3.4 * rstd, 0.7 * rstd,
        1.4 * rstd, 0.7 * rstd, 1.4 * rstd }, y:table(), 1e-6)
      assert.equal(1, layer.batches_tracked:item())
    end)
  end)

  alone("lists its statistics as buffers, counted as such and no parameters", function()
    local before = device:memory().tags.buffers
    local layer, names = nn.BatchNorm(3), {}
    for i, b in ipairs(layer:buffers()) do names[i] = b.name end
    assert.same({ "running_mean", "running_variance", "batches_tracked" }, names)
    assert.equal(2, #layer:parameters())
    assert.equal(3 * 64, device:memory().tags.buffers - before)
    layer:free()
    assert.equal(before, device:memory().tags.buffers)
  end)

  alone("refuses single numbers in training, wrong options and shapes", function()
    neap.scope(function()
      local layer = nn.BatchNorm(2)
      assert.matches("2 or more", failure_of("shape mismatch", layer, neap.zeros({ 1, 2 })))
      assert.same({ 0, 0 }, layer.running_mean:table())
      assert.equal(0, layer.batches_tracked:item())
      failure_of("shape mismatch", layer, neap.zeros({ 4, 3 }))
      layer:eval()
      assert.same({ 1, 2 }, layer(neap.zeros({ 1, 2 })):dims())
      for _, momentum in ipairs({ -0.1, 1.1, 0 / 0, "0.1", true }) do
        failure_of("usage", nn.BatchNorm, 2, { momentum = momentum })
      end
      failure_of("usage", nn.BatchNorm, 2, { eps = 0 })
      assert.matches("did you mean 'momentum'",
        failure_of("usage", nn.BatchNorm, 2, { momentm = 0.1 }))
      failure_of("usage", nn.BatchNorm, 0)
    end)
  end)
end)
