-- A chain over time: the same bits and the predicted bytes under every plan.
local C = require("neap.ffi").C
local cells = require("spec.support.reference_cells")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

local N, V, HIDDEN = 4, 7, 16
local PLANS = { "none", "all", "every_n:3", "segments:8" }

local function ids(n, time, step)
  local list = {}
  for i = 1, n * time do list[i] = i * i * step % V end
  return neap.tensor(list, { n, time }, { dtype = "i32" })
end

local function batch_of(time) return { inputs = ids(N, time, 1), targets = ids(N, time, 3) } end

local function chain(time, cell)
  neap.manual_seed(1)
  return neap.nn.Recurrent({ vocabulary = V, time = time, width = 5, hidden = HIDDEN, cell = cell })
end

-- a step from zeroed gradients, and what the meter saw of it
local function run(device, model, batch, spec, profile)
  profile = profile or neap.profile(model, batch, { cost = "flops" })
  local plan, executor = neap.plan(spec, profile), neap.executor(model)
  model:zero_grad()
  local live = C.neap_memory_live(device.id)
  C.neap_memory_restart(device.id, C.NEAP_METER_RUN)
  local loss = executor:run(batch, plan)
  local result = { loss = loss, predicted = neap.simulate(plan, profile).peak_bytes,
    measured = C.neap_memory_peak(device.id, C.NEAP_METER_RUN) - live,
    recomputed = executor.recomputed, grads = {} }
  for _, p in ipairs(model:parameters()) do result.grads[p.name] = p.tensor:grad():bits() end
  assert.equal(live, C.neap_memory_live(device.id))
  return result
end

local function same_gradients(expected, found)
  for name, bits in pairs(expected) do numbers.same("gradient of " .. name, bits, found[name]) end
end

describe("the recurrent chain of 64 steps", function()
  for _, cell in ipairs({ "lstm", "gru" }) do
    describe("of " .. cell, function()
      local device, model, batch, null, null_model, null_batch
      setup(function()
        device = neap.device("cpu")
        model, batch = chain(64, cell), batch_of(64)
        null = neap.device("null", { size = 0 })
        null_model, null_batch = chain(64, cell), batch_of(64)
        neap.device("cpu")
      end)
      teardown(function()
        model:free()
        null_model:free()
        for _, part in ipairs({ "inputs", "targets" }) do
          batch[part]:free()
          null_batch[part]:free()
        end
        null:close()
        neap.threads(1)
      end)

      for threads = 1, 2 do
        it("has the bits of keep-all under every plan on " .. threads .. " threads", function()
          neap.threads(threads)
          local base = run(device, model, batch, "none")
          assert.equal(0, base.recomputed)
          for k, spec in ipairs(PLANS) do
            local found = run(device, model, batch, spec)
            assert.equal(base.loss, found.loss)
            same_gradients(base.grads, found.grads)
            assert.equal(({ 0, 64, 22, 56 })[k], found.recomputed)
          end
        end)
      end

      it("takes exactly the predicted bytes, on cpu and null the same", function()
        neap.threads(1)
        local peaks = {}
        for k, spec in ipairs(PLANS) do
          local found = run(device, model, batch, spec)
          local counted = run(null, null_model, null_batch, spec)
          assert.equal(found.predicted, found.measured)
          assert.equal(counted.predicted, counted.measured)
          assert.equal(found.measured, counted.measured)
          peaks[k] = found.measured
        end
        assert.is_true(peaks[4] < peaks[2] and peaks[2] < peaks[3] and peaks[3] < peaks[1])
      end)

      it("has the bits of plain recording", function()
        neap.threads(1)
        local base = run(device, model, batch, "none")
        model:zero_grad()
        neap.scope(function()
          local loss = model(batch.inputs, { batch = batch })
          loss:backward()
          assert.equal(base.loss, loss:item())
        end)
        local grads = {}
        for _, p in ipairs(model:parameters()) do grads[p.name] = p.tensor:grad():bits() end
        same_gradients(base.grads, grads)
      end)

      it("evaluates to the same loss without recording", function()
        neap.threads(1)
        local base = run(device, model, batch, "none")
        neap.scope(function()
          assert.equal(base.loss, neap.executor(model):evaluate(batch):item())
        end)
      end)
    end)
  end
end)

describe("the recurrent chain", function()
  local device
  setup(function()
    device = neap.device("cpu")
    neap.threads(1)
  end)

  -- the chain's loss in f64, one step after another
  local function expected_loss(model, batch, time, cell)
    local function value(t) return { dims = t:dims(), data = t:table() } end
    local function linear(x, layer)
      local y = reference.matmul(x, value(layer.weight), false, true)
      local bias = rawget(layer, "bias")
      return bias and reference.add(y, value(bias)) or y
    end
    local h, c, loss = reference.value({ N, HIDDEN }), reference.value({ N, HIDDEN }), 0
    for t = 1, time do
      local x = reference.embedding(cells.select(value(batch.inputs), 2, t),
        value(model.embed.weight))
      local from_x, from_h = linear(x, model.cell.input), linear(h, model.cell.hidden)
      if cell == "lstm" then
        h, c = cells.lstm_cell(reference.add(from_x, from_h), c)
      else
        h = cells.gru_cell(from_x, from_h, h)
      end
      local here = reference.cross_entropy(linear(h, model.head),
        cells.select(value(batch.targets), 2, t))
      loss = loss + here.data[1] / time
    end
    return loss
  end

  for _, cell in ipairs({ "lstm", "gru" }) do
    for _, time in ipairs({ 1, 2, 9 }) do
      it(("of %d steps of %s has the mean loss of its steps"):format(time, cell), function()
        local model, batch = chain(time, cell), batch_of(time)
        local found = run(device, model, batch, "none").loss
        numbers.close("loss", { expected_loss(model, batch, time, cell) }, { found }, 1e-6)
        model:free()
      end)
    end
  end

  it("has stages t.0 .. t.T-1 over one set of parameters", function()
    local model, names = chain(3), {}
    for i, p in ipairs(model:parameters()) do names[i] = p.name end
    assert.same({ "embed.weight", "cell.input.weight", "cell.input.bias", "cell.hidden.weight",
      "head.weight", "head.bias" }, names)
    for t = 0, 2 do assert.equal("t." .. t, model.stages[t + 1].name) end
    assert.equal(3, #model.stages)
    -- embedding of the hidden width where none is named; an LSTM where no cell is
    assert.equal(7 * 5 + 64 * 5 + 64 + 64 * 16 + 7 * 16 + 7, model:n_parameters())
    local other = neap.nn.Recurrent({ vocabulary = 7, time = 2, hidden = 16 })
    assert.same({ 7, 16 }, other.embed.weight:dims())
    assert.equal("LSTMCell", other.cell.kind)
    other:free()
    model:free()
  end)

  it("of 10,000 steps is built, trains a step and recomputes", function()
    local time = 10000
    local model, batch = chain(time), batch_of(time)
    local optimizer = neap.optim.AdamW(model:parameters())
    local profile = neap.profile(model, batch, { cost = "flops" })
    local base = run(device, model, batch, "none", profile)
    local found = run(device, model, batch, "segments:100", profile)
    assert.equal(found.predicted, found.measured)
    assert.equal(9900, found.recomputed)
    assert.is_true(found.measured < base.measured / 40)
    assert.equal(base.loss, found.loss)
    same_gradients(base.grads, found.grads)
    optimizer:step(1e-2)
    assert.is_true(run(device, model, batch, "none", profile).loss < base.loss)
    optimizer:free()
    model:free()
  end)

  it("holds no tensor a step longer than it has to: 1,000 steps in 32 segments take a twelfth",
    function()
      local model, batch = chain(1000), batch_of(1000)
      local none, segments = run(device, model, batch, "none"), run(device, model, batch,
        "segments:32")
      assert.is_true(segments.measured * 12 < none.measured)
      model:free()
    end)

  it("refuses a batch of another length, or without targets, naming the stage", function()
    local model = chain(5)
    local executor = neap.executor(model)
    local good = batch_of(5)
    local plan = neap.plan("none", neap.profile(model, good, { cost = "flops" }))
    local function refused(kind, words, batch)
      local message = failure_of(kind, executor.run, executor, batch, plan)
      for _, word in ipairs({ "stage 't.0': Recurrent: ", unpack(words) }) do
        assert(message:find(word, 1, true), message)
      end
    end
    refused("shape mismatch", { "inputs are (4, 6), expected (N, 5)" },
      { inputs = ids(N, 6, 1), targets = good.targets })
    refused("shape mismatch", { "targets are (4, 4), expected (N, 5)" },
      { inputs = good.inputs, targets = ids(N, 4, 1) })
    refused("usage", { "targets is missing" }, { inputs = good.inputs })
    refused("invalid argument", { "targets", "found string" },
      { inputs = good.inputs, targets = "text" })
    local message = failure_of("shape mismatch", executor.run, executor,
      { inputs = good.inputs, targets = ids(N - 1, 5, 1) }, plan)
    assert(message:find("stage 't.0': cross_entropy: ", 1, true), message)
    message = failure_of("dtype", executor.run, executor,
      { inputs = neap.zeros({ N, 5 }), targets = good.targets }, plan)
    assert(message:find("stage 't.0': embedding: ", 1, true), message)
    model:free()
  end)

  it("refuses a cell that is not there, naming the nearest", function()
    assert.equal("Recurrent: unknown cell 'gur', did you mean 'gru'?; allowed: lstm, gru",
      failure_of("usage", neap.nn.Recurrent,
        { vocabulary = 3, time = 2, hidden = 4, cell = "gur" }))
  end)
end)
