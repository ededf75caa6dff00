-- What ops count: how often they ran, FLOPs, and bytes of the tensors that they read and wrote.
local N = require("neap.ffi")
local neap = require("neap")
local C, ffi, op = N.C, N.ffi, neap.op

local function counted(name)
  local counters = ffi.new("neap_counters")
  assert.equal(0, C.neap_counters_of(C.neap_op_find(name), counters))
  return { forwards = counters.n_forwards, backwards = counters.n_backwards,
    forward_bytes = counters.forward_bytes, backward_bytes = counters.backward_bytes,
    forward_flops = counters.forward_flops }
end

-- what fn adds to the counts of an op
local function added(name, fn)
  local before = counted(name)
  neap.scope(fn)
  local after = counted(name)
  for key, value in pairs(after) do after[key] = value - before[key] end
  return after
end

describe("counters", function()
  it("count what a product reads and writes, forward and backward", function()
    local found = added("linear", function()
      local x = neap.full({ 2, 3 }, 1, { requires_grad = true })
      local w = neap.full({ 4, 3 }, 1, { requires_grad = true })
      op.sum(op.linear(x, w)):backward()
    end)
    -- x 6, w 12, y 8 numbers; backward reads x, w and dy and writes dx and dw
    assert.same({ forwards = 1, backwards = 1, forward_bytes = 4 * (6 + 12 + 8),
      backward_bytes = 4 * (6 + 12 + 8 + 6 + 12), forward_flops = 2 * 2 * 3 * 4 }, found)
  end)

  it("count nothing for views, and for gradients that are only passed on", function()
    local found = added("reshape", function() op.reshape(neap.full({ 2, 3 }, 1), { 6 }) end)
    assert.equal(0, found.forward_bytes)
    found = added("add", function()
      local x = neap.full({ 5 }, 1, { requires_grad = true })
      op.sum(op.add(x, op.scale(x, 2))):backward()
    end)
    assert.equal(4 * 15, found.forward_bytes)
    assert.equal(0, found.backward_bytes)
  end)

  it("count the rows of an embedding that are looked up, not its table", function()
    local found = added("embedding", function()
      op.embedding(neap.full({ 3 }, 1, { dtype = "i32" }), neap.full({ 1000, 2 }, 1))
    end)
    assert.equal(4 * (3 + 6 + 6), found.forward_bytes)
  end)

  it("count in all what the ops count", function()
    local before, after = ffi.new("neap_counters"), ffi.new("neap_counters")
    C.neap_counters_get(before)
    local of_scale = added("scale", function() op.scale(neap.full({ 7 }, 1), 2) end)
    C.neap_counters_get(after)
    assert.equal(of_scale.forward_bytes, after.forward_bytes - before.forward_bytes)
    assert.equal(4 * 14, of_scale.forward_bytes)
  end)

  it("refuse an op that is none, and no place for the result", function()
    assert.equal(C.NEAP_ERR_NOT_FOUND, C.neap_counters_of(-1, ffi.new("neap_counters")))
    assert.equal(C.NEAP_ERR_NOT_FOUND, C.neap_counters_of(9999, ffi.new("neap_counters")))
    assert.equal(C.NEAP_ERR_NOT_FOUND, C.neap_counters_of(0, nil))
  end)
end)
