-- neap.saved lists every byte that a recorded forward keeps, and why.
local neap = require("neap")
local nn = neap.nn

local function gpt_on(device, dropout)
  return neap.with_device(device, function()
    neap.manual_seed(1)
    local model = nn.GPT({ vocabulary = 17, context = 8, width = 16, n_head = 2, n_layer = 2,
      dropout = dropout })
    local options = { dtype = "i32", tag = 4 }
    local ids = {}
    for i = 1, 16 do ids[i] = i % 17 end
    return model, { inputs = neap.tensor(ids, { 2, 8 }, options),
      targets = neap.tensor(ids, { 2, 8 }, options) }
  end)
end

local function row_of(rows, stage, op, what)
  for _, row in ipairs(rows) do
    if row.stage == stage and row.op == op and row.what == what then return row end
  end
end

describe("what a forward keeps for backward", function()
  local device, model, batch, rows

  before_each(function()
    device = neap.device("null", { size = 0 })
    model, batch = gpt_on(device, 0.1)
    rows = neap.saved(model, batch)
  end)

  after_each(function()
    model:free()
    batch.inputs:free()
    batch.targets:free()
    device:close()
  end)

  it("is listed to the byte: residuals and boundaries are what the profile counts", function()
    local profile, sum = neap.profile(model, batch, { cost = "flops" }), 0
    for i, stage in ipairs(profile.stages) do
      sum = sum + stage.saved_bytes
      if stage.saves_out > 0 or (profile.stages[i + 1] or { saves_in = 0 }).saves_in > 0 then
        sum = sum + stage.out_bytes
      end
    end
    assert.equal(sum, rows:bytes())
  end)

  it("names stage, op, place, shape, dtype, bytes and the reason", function()
    local row = row_of(rows, "block.1", "attention", "output 2")
    assert.same({ 2, 2, 8 }, row.shape)
    assert.equal("f32", row.dtype)
    assert.equal(128, row.bytes)
    assert.equal("residual", row.owner)
    assert.matches("log%-sum%-exp", row.why)
  end)

  it("counts nothing for parameters and the batch", function()
    assert.equal("parameter", row_of(rows, "block.0", "linear", "input 2").owner)
    assert.equal(0, row_of(rows, "block.0", "linear", "input 2").bytes)
    assert.equal("batch", row_of(rows, "embed", "embedding", "input 1").owner)
    assert.equal(0, row_of(rows, "embed", "embedding", "input 1").bytes)
  end)

  it("counts a storage once and names who else holds it", function()
    local row = row_of(rows, "block.0", "attention", "output 1")
    assert.equal(1, #row.also)
    assert.matches("linear", row.also[1])
  end)

  it("says which tensors are boundaries of the chain", function()
    assert.equal("boundary", row_of(rows, "block.1", "layernorm", "input 1").owner)
    assert.equal("boundary", row_of(rows, "head", "layernorm", "input 1").owner)
  end)

  it("prints as a table that ends in the sum", function()
    assert.matches("kept for backward$", tostring(rows))
  end)

  it("leaves nothing behind", function()
    local before = device:memory()
    neap.saved(model, batch)
    assert.same(before.live_bytes, device:memory().live_bytes)
    assert.same(before.n_tensors, device:memory().n_tensors)
  end)

  it("refuses what is no chain or no batch", function()
    assert.has_error(function() neap.saved({}, batch) end)
    assert.has_error(function() neap.saved(model, nil) end)
    assert.has_error(function() neap.saved(model, {}) end)
  end)
end)
