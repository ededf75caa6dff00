-- Each layer computes what its op computes with the layer's parameters; GPT is made of them.
local neap = require("neap")
local numbers = require("spec.support.numbers")
local failure_of = require("spec.support.failure_of")

local nn, o = neap.nn, neap.op

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("the layer", function()
  setup(function()
    neap.device("cpu")
    neap.manual_seed(1)
  end)

  local function x_of(...)
    local wave = numbers.wave({ ... }, 1)
    return neap.tensor(wave.data, wave.dims)
  end
  local function same(expected, found)
    assert.same(expected:dims(), found:dims())
    numbers.same("output", expected:bits(), found:bits())
  end
  local function deviation(t)
    local sum = 0
    for _, v in ipairs(t:table()) do sum = sum + v * v end
    return math.sqrt(sum / t:numel())
  end

  alone("Linear is x weight^T + bias, or without a bias", function()
    neap.scope(function()
      local x, layer = x_of(2, 3, 4), nn.Linear(4, 5)
      layer.bias:fill(0.5)
      assert.same({ { 5, 4 }, { 5 } }, { layer.weight:dims(), layer.bias:dims() })
      same(o.linear(x, layer.weight, layer.bias), layer(x))
      local plain = nn.Linear(4, 5, { bias = false })
      assert.equal(1, #plain:parameters())
      same(o.linear(x, plain.weight), plain(x))
      local wide = nn.Linear(400, 50)
      assert(math.abs(deviation(wide.weight) - 1 / 20) < 0.002)
      assert(math.abs(deviation(nn.Linear(400, 50, { std = 2 }).weight) - 2) < 0.08)
      assert.equal(0, deviation(wide.bias))
    end)
  end)

  alone("LayerNorm and RMSNorm start with gain 1 and bias 0, and take an eps", function()
    neap.scope(function()
      local x = x_of(3, 4)
      local layer, rms = nn.LayerNorm(4), nn.RMSNorm(4)
      same(o.layernorm(x, neap.full({ 4 }, 1), neap.zeros({ 4 }), 1e-5), layer(x))
      same(o.rmsnorm(x, neap.full({ 4 }, 1), 1e-5), rms(x))
      layer.gain:copy_from(neap.tensor({ 1, 2, 3, 4 }))
      layer.bias:fill(0.5)
      rms.gain:fill(3)
      same(o.layernorm(x, layer.gain, layer.bias, 1e-5), layer(x))
      same(o.rmsnorm(x, rms.gain, 1e-5), rms(x))
      local rough = nn.LayerNorm(4, { eps = 0.5 })
      same(o.layernorm(x, rough.gain, rough.bias, 0.5), rough(x))
      same(o.rmsnorm(x, neap.full({ 4 }, 1), 0.5), nn.RMSNorm(4, { eps = 0.5 })(x))
    end)
  end)

  alone("Embedding looks rows up", function()
    neap.scope(function()
      local layer = nn.Embedding(300, 40)
      local ids = neap.tensor({ 3, 0, 299, 3 }, { 2, 2 }, { dtype = "i32" })
      same(o.embedding(ids, layer.weight), layer(ids))
      assert.same({ 2, 2, 40 }, layer(ids):dims())
      assert(math.abs(deviation(layer.weight) - 0.02) < 0.001)
    end)
  end)

  alone("Attention is a projection, the op, a projection; causal unless told otherwise", function()
    neap.scope(function()
      local x = x_of(2, 3, 8)
      for _, causal in ipairs({ true, false }) do
        local layer = nn.Attention(8, 2, { causal = causal })
        assert.same({ { 24, 8 }, { 8, 8 } }, { layer.qkv.weight:dims(), layer.out.weight:dims() })
        local inner = o.attention(o.linear(x, layer.qkv.weight, layer.qkv.bias), 2, causal)
        same(o.linear(inner, layer.out.weight, layer.out.bias), layer(x))
      end
    end)
    for _, heads in ipairs({ 3, 0, -2, "2", 16, 0.5, 0 / 0 }) do
      failure_of("usage", nn.Attention, 8, heads)
    end
    failure_of("usage", nn.Attention, 8)
  end)

  alone("Dropout drops in training only; p = 0 gives x itself", function()
    neap.scope(function()
      local x, layer = x_of(100), nn.Dropout(0.3)
      neap.rng({ seed = 2 })
      local expected = o.dropout(x, 0.3)
      neap.rng({ seed = 2 })
      same(expected, layer(x))
      layer:eval()
      assert.equal(x, layer(x))
      assert.equal(x, nn.Dropout(0)(x))
    end)
    for _, p in ipairs({ -0.1, 1, 1.5, 0 / 0, "0.5", true }) do
      failure_of("usage", nn.Dropout, p)
    end
    failure_of("usage", nn.Dropout)
  end)

  alone("GELU, ReLU and SiLU are their ops", function()
    neap.scope(function()
      local x = x_of(20)
      for kind, op in pairs({ GELU = o.gelu, ReLU = o.relu, SiLU = o.silu }) do
        same(op(x), nn[kind]()(x))
        assert.equal(kind, tostring(nn[kind]()))
      end
    end)
  end)
end)

describe("GPT", function()
  local device
  before_each(function()
    device = neap.device("cpu", { budget = "1GiB" })
    neap.manual_seed(1)
  end)
  after_each(function()
    jit.flush() -- compiled code may hold on to handles
    collectgarbage()
    collectgarbage()
    device:close()
    neap.device("cpu")
  end)

  alone("has as many parameters as the formula, the tied embedding once", function()
    for _, c in ipairs({ { 65, 64, 128, 4, 4 }, { 11, 5, 12, 1, 3 }, { 7, 3, 8, 3, 1 } }) do
      local vocabulary, context, width, n_layer, n_head = unpack(c)
      local model = nn.GPT({ vocabulary = vocabulary, context = context, width = width,
        n_layer = n_layer, n_head = n_head })
      -- a block: two norms 4 C; attention 3 C C + 3 C + C C + C; mlp 4 C C + 4 C + 4 C C + C
      local block = 12 * width * width + 13 * width
      local expected = (vocabulary + context) * width + n_layer * block + 2 * width
      assert.equal(expected, model:n_parameters())
      model:free()
    end
    -- the first config by hand
    assert.equal(809856, (65 + 64) * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128)
  end)

  alone("is a chain of embed, blocks and head, which starts at the loss of guessing", function()
    local model = nn.GPT({ vocabulary = 50, context = 8, width = 16, n_layer = 2, n_head = 2 })
    local stage_names = {}
    for i, stage in ipairs(model.stages) do stage_names[i] = stage.name end
    assert.same({ "embed", "block.0", "block.1", "head" }, stage_names)
    assert.equal("embed.tokens", model:parameters()[1].name)
    neap.scope(function()
      local ids = neap.tensor({ 1, 2, 3, 4, 5, 6, 7, 8 }, { 2, 4 }, { dtype = "i32" })
      assert.same({ 2, 4, 50 }, model(ids):dims())
      local targets = neap.tensor({ 11, 12, 13, 14, 15, 16, 17, 18 }, { 2, 4 }, { dtype = "i32" })
      local loss = model(ids, { batch = { targets = targets } })
      assert.same({}, loss:dims())
      assert(math.abs(loss:item() - math.log(50)) < 0.1, loss:item())
    end)
    model:free()
  end)

  alone("looks at no later token", function()
    local model = nn.GPT({ vocabulary = 9, context = 6, width = 8, n_layer = 2, n_head = 2 })
    neap.scope(function()
      local function logits(...)
        return model(neap.tensor({ ... }, { 1, 5 }, { dtype = "i32" })):table()
      end
      local a, b = logits(1, 2, 3, 4, 5), logits(1, 2, 3, 8, 0)
      for i = 1, 27 do assert(math.abs(a[i] - b[i]) < 1e-6) end
      local moved = 0
      for i = 28, 45 do moved = moved + math.abs(a[i] - b[i]) end
      assert(moved > 0.01)
    end)
    model:free()
  end)

  alone("learns a line by heart in a few steps", function()
    local model = nn.GPT({ vocabulary = 6, context = 6, width = 24, n_layer = 1, n_head = 2 })
    local optimizer, first, last = neap.optim.AdamW(model:parameters()), nil, nil
    for _ = 1, 60 do
      neap.scope(function()
        local ids = neap.tensor({ 0, 1, 2, 3, 4, 5 }, { 1, 6 }, { dtype = "i32" })
        local targets = neap.tensor({ 1, 2, 3, 4, 5, 0 }, { 1, 6 }, { dtype = "i32" })
        local loss = model(ids, { batch = { targets = targets } })
        model:zero_grad()
        loss:backward()
        optimizer:step(1e-2)
        last = loss:item()
        first = first or last
      end)
    end
    assert(first > 1.5 and last < 0.1, last)
    model:free()
    optimizer:free()
  end)

  alone("names the place where ids do not fit", function()
    local model = nn.GPT({ vocabulary = 6, context = 4, width = 8, n_layer = 1, n_head = 2 })
    local ids = neap.zeros({ 1, 5 }, { dtype = "i32" })
    local message = failure_of("shape mismatch", model, ids)
    assert(message:find("embed (Embed): narrow: ", 1, true), message)
    model:free()
  end)
end)
