-- Tapes at the C level: inputs, outputs, seeds, gradients of inputs, and what a tape holds.
local neap = require("neap")
local native = require("neap.ffi")
local scope = require("neap.scope")

local C, ffi, check = native.C, native.ffi, native.check

describe("a tape", function()
  local device, tape, ambient
  before_each(function()
    device = neap.device("cpu", { budget = "1GiB" })
    scope.begin()
    tape = check(C.neap_tape_new())
    ambient = check(C.neap_tape_select(tape))
  end)
  after_each(function()
    C.neap_tape_select(ambient)
    check(C.neap_tape_free(tape))
    scope.stop(1)
    assert.equal(0, device:memory().live_bytes)
    device:close()
    neap.device("cpu")
  end)

  local function new(...) return neap.tensor({ ... }, nil, { device = device }).id end
  local function one(op, a, p)
    return check(C.neap_apply1(C["NEAP_OP_" .. op], a, p or 0, 0, 0, 0))
  end
  local function two(op, a, b)
    return check(C.neap_apply2(C["NEAP_OP_" .. op], a, b, 0, 0, 0, 0))
  end
  local function read(id)
    local n = check(C.neap_tensor_n_elements(id))
    local host, out = ffi.new("float[?]", n), {}
    check(C.neap_tensor_read(id, host, n * 4))
    for i = 1, n do out[i] = host[i - 1] end
    return out
  end
  local function input(id, grad) return check(C.neap_tape_input(tape, id, grad or 1)) end
  local function grad_id(k) return check(C.neap_tape_input_grad(tape, k)) end
  local function grad(k) return read(grad_id(k)) end
  local function message() return ffi.string(C.neap_last_error()) end

  it("gives each input its gradient, from the seeds of all outputs", function()
    local a, b = input(new(1, 2)), input(new(3, 4))
    assert.equal(0, check(C.neap_tape_output(tape, two("MULTIPLY", a, b))))
    assert.equal(1, check(C.neap_tape_output(tape, two("ADD", a, b))))
    assert.same({ 2, 2, 2 },
      { C.neap_tape_n_inputs(tape), C.neap_tape_n_outputs(tape), C.neap_tape_n_nodes(tape) })
    check(C.neap_tape_seed(tape, 0, new(1, 10)))
    check(C.neap_tape_seed(tape, 1, new(100, 1000)))
    assert.equal(0, C.neap_tape_backward(tape))
    assert.same({ 103, 1040 }, grad(0))
    assert.same({ 101, 1020 }, grad(1))
    assert.equal(0, C.neap_tape_input_grad(tape, 0))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_tape_input_grad(tape, 2))
    assert.equal(C.NEAP_ERR_INVALID, C.neap_tape_input_grad(tape, -1))
  end)

  it("adds two seeds of one output, and gives nothing where no seed leads", function()
    local a, b = input(new(1, 2)), input(new(3, 4))
    check(C.neap_tape_output(tape, one("SCALE", a, 3)))
    check(C.neap_tape_output(tape, one("SCALE", b, 5)))
    check(C.neap_tape_seed(tape, 0, new(1, 2)))
    check(C.neap_tape_seed(tape, 0, new(10, 20)))
    assert.equal(0, C.neap_tape_backward(tape))
    assert.same({ 33, 66 }, grad(0))
    assert.equal(0, C.neap_tape_input_grad(tape, 1))
  end)

  it("passes a seed through an output that is an input", function()
    local a, b = input(new(1, 2)), input(new(3, 4))
    check(C.neap_tape_output(tape, a))
    check(C.neap_tape_output(tape, one("SCALE", a, 2)))
    check(C.neap_tape_output(tape, b))
    for k, seed in pairs({ [0] = new(1, 1), new(10, 10), new(7, 8) }) do
      check(C.neap_tape_seed(tape, k, seed))
    end
    assert.equal(0, C.neap_tape_backward(tape))
    local first, second = grad_id(0), grad_id(1)
    assert.same({ 21, 21 }, read(first))
    assert.same({ 7, 8 }, read(second))
    assert.are_not.equal(C.neap_tensor_storage(first), C.neap_tensor_storage(second))
  end)

  it("gives gradients that share no memory, though add passes one on to both", function()
    local a, b = input(new(1, 2)), input(new(3, 4))
    check(C.neap_tape_output(tape, two("ADD", a, b)))
    check(C.neap_tape_seed(tape, 0, new(5, 6)))
    assert.equal(0, C.neap_tape_backward(tape))
    local first, second = grad_id(0), grad_id(1)
    check(C.neap_tensor_fill(first, 0))
    assert.same({ 5, 6 }, read(second))
  end)

  it("takes outputs without history, and inputs that want no gradient", function()
    local a = input(new(1, 2), 0)
    local y = one("GELU", a)
    assert.equal(0, C.neap_tape_n_nodes(tape))
    assert.equal(0, C.neap_tensor_needs_grad(y))
    check(C.neap_tape_output(tape, y))
    check(C.neap_tape_output(tape, new(9)))
    local seed = new(1, 1)
    check(C.neap_tape_seed(tape, 0, seed))
    assert.equal(0, C.neap_tensor_alive(seed))
    assert.equal(0, C.neap_tape_backward(tape))
    assert.equal(0, C.neap_tape_input_grad(tape, 0))
  end)

  it("takes a seed only when its shape, dtype, device and number are right", function()
    local a = input(new(1, 2))
    check(C.neap_tape_output(tape, one("GELU", a)))
    local null = neap.device("null", { budget = 4096 })
    local bad = {
      { C.NEAP_ERR_SHAPE, 0, new(1) },
      { C.NEAP_ERR_SHAPE, 0, neap.zeros({ 1, 2 }, { device = device }).id },
      { C.NEAP_ERR_SHAPE, 0, neap.zeros({ 2 }, { device = device, dtype = "i32" }).id },
      { C.NEAP_ERR_INVALID, 1, new(1, 2) },
      { C.NEAP_ERR_INVALID, -1, new(1, 2) },
      { C.NEAP_ERR_DEVICE, 0, neap.zeros({ 2 }, { device = null }).id },
    }
    for _, case in ipairs(bad) do
      assert.equal(case[1], C.neap_tape_seed(tape, case[2], case[3]))
      assert.equal(1, C.neap_tensor_alive(case[3]))
    end
    assert.equal(C.NEAP_ERR_STALE, C.neap_tape_seed(tape, 0, 5))
    C.neap_tensor_free(bad[6][3])
    null:close()
    check(C.neap_tape_seed(tape, 0, new(1, 1)))
    assert.equal(0, C.neap_tape_backward(tape))
    assert.equal(2, #grad(0))
  end)

  it("holds what backward needs, once each, until it is freed", function()
    local x = new(1, 2, 3, 4)
    local w = neap.zeros({ 4 }, { device = device, tag = C.NEAP_TAG_PARAMETERS })
    w:requires_grad()
    local a = input(x)
    local y = two("MULTIPLY", one("GELU", a), w.id)
    local z = two("MULTIPLY", y, w.id)
    check(C.neap_tape_output(tape, z))
    -- x for gelu, its output and w for the first product, y for the second
    assert.equal(4 * 64, C.neap_tape_saved_bytes(tape))
    assert.same({ 1, 1, 1, 0 }, { C.neap_tape_saves(tape, x), C.neap_tape_saves(tape, w.id),
      C.neap_tape_saves(tape, y), C.neap_tape_saves(tape, z) })
    local storages, bytes, tags = ffi.new("double[8]"), ffi.new("double[8]"), ffi.new("int[8]")
    assert.equal(4, C.neap_tape_saved(tape, 8, storages, bytes, tags))
    local sum, parameters = 0, 0
    for i = 0, 3 do
      sum = sum + bytes[i]
      if tags[i] == C.NEAP_TAG_PARAMETERS then
        parameters = parameters + 1
        assert.equal(C.neap_tensor_storage(w.id), storages[i])
      end
    end
    assert.same({ 256, 1 }, { sum, parameters })
    assert.equal(4, C.neap_tape_saved(tape, 0, nil, nil, nil))
    for _, id in ipairs({ x, a, y }) do C.neap_tensor_free(id) end
    -- x, gelu's output, y, z, w: a tape needs no handles
    assert.equal(5 * 64, device:memory().live_bytes)
    check(C.neap_tape_free(tape))
    check(C.neap_tape_free(tape))
    assert.equal(3 * 64, device:memory().live_bytes)
    assert.equal(0, C.neap_tape_selected())
    assert.equal(C.NEAP_ERR_GRAPH, C.neap_tape_saved_bytes(tape))
  end)

  it("refuses tensors that another tape made", function()
    local y = one("GELU", input(new(1, 2)))
    local other = check(C.neap_tape_new())
    check(C.neap_tape_select(other))
    local ids = ffi.new("double[1]", y)
    assert.equal(C.NEAP_ERR_GRAPH, C.neap_apply(C.NEAP_OP_GELU, 1, ids, 0, nil))
    assert(message():find("made outside this checkpointed region", 1, true), message())
    assert.equal(C.NEAP_ERR_GRAPH, C.neap_tape_output(other, y))
    assert.equal(0, C.neap_tape_n_nodes(other))
    local inside = check(C.neap_tape_input(other, y, 1))
    assert.equal(2, #read(one("GELU", inside)))
    C.neap_tape_free(other)
  end)

  it("is refused everywhere once it is freed or was never made", function()
    local gone = check(C.neap_tape_new())
    check(C.neap_tape_free(gone))
    local x = new(1)
    for _, bad in ipairs({ gone, 0, -1, 12345678, 2 ^ 31 - 1, -2 ^ 31 }) do
      for _, code in ipairs({ C.neap_tape_input(bad, x, 1), C.neap_tape_output(bad, x),
        C.neap_tape_seed(bad, 0, x), C.neap_tape_backward(bad), C.neap_tape_input_grad(bad, 0),
        C.neap_tape_n_nodes(bad), C.neap_tape_n_inputs(bad), C.neap_tape_n_outputs(bad),
        C.neap_tape_saves(bad, x), C.neap_tape_saved(bad, 0, nil, nil, nil) }) do
        assert.equal(C.NEAP_ERR_GRAPH, code)
      end
      for _, code in ipairs({ C.neap_tape_node_op(bad, 0), C.neap_tape_node_n_saved(bad, 0),
        C.neap_tape_node_saved(bad, 0, 0), C.neap_tape_node_grad(bad, 0, 0),
        C.neap_tape_node_wants(bad, 0, 0), C.neap_tape_node_give(bad, 0, 0, x),
        C.neap_tape_node_done(bad, 0) }) do
        assert(code < 0)
      end
      if bad ~= 0 then assert.equal(C.NEAP_ERR_GRAPH, C.neap_tape_select(bad)) end
      assert.equal(0, C.neap_tape_free(bad))
    end
    assert.equal(tape, C.neap_tape_selected())
  end)

  it("is made again from the pool without what it held", function()
    for _ = 1, 2000 do
      local again = check(C.neap_tape_new())
      check(C.neap_tape_input(again, new(1), 1))
      check(C.neap_tape_free(again))
      assert.equal(C.NEAP_ERR_GRAPH, C.neap_tape_n_inputs(again))
    end
    local fresh = check(C.neap_tape_new())
    assert.equal(0, C.neap_tape_n_inputs(fresh))
    check(C.neap_tape_free(fresh))
  end)
end)
