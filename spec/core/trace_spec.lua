-- Traces by their C functions: what they remember, in which order they are called, and what is
-- refused.
local N = require("neap.ffi")
local neap = require("neap")
local regions = require("spec.support.regions")
local C, ffi, op = N.C, N.ffi, neap.op

describe("a trace", function()
  local device, trace, tapes
  before_each(function()
    device = neap.device("cpu")
    tapes = {}
    trace = N.check(C.neap_trace_new(C.NEAP_CHECK_SHAPE, 1))
  end)
  after_each(function()
    C.neap_trace_free(trace)
    for _, tape in ipairs(tapes) do C.neap_tape_free(tape) end
    assert.equal(0, regions.state(device).depth)
  end)

  local function tape_new()
    tapes[#tapes + 1] = N.check(C.neap_tape_new())
    return tapes[#tapes]
  end

  -- fn while this tape is selected, in a scope
  local function on(tape, fn, ...)
    local before = N.check(C.neap_tape_select(tape))
    local results = { pcall(neap.scope, fn, ...) }
    C.neap_tape_select(before)
    if not results[1] then error(results[2], 0) end
    return unpack(results, 2)
  end

  local function record(fn, ...)
    on(N.check(C.neap_trace_begin(trace)), fn, ...)
    N.check(C.neap_trace_end(trace))
  end

  local function refused(kind, text, code)
    assert.is_true(code < 0, "it was taken: " .. tostring(code))
    assert.equal(kind, ffi.string(C.neap_error_name(code)))
    assert.matches(text, ffi.string(C.neap_last_error()), 1, true)
  end

  local function get(i)
    local out = ffi.new("neap_trace_op")
    N.check(C.neap_trace_get_op(trace, i, out))
    return out
  end

  local function leaf() return regions.tensor({ 4, 8 }, 1, { requires_grad = true }) end

  it("remembers which ops ran, and which a recomputation makes again", function()
    local x, w = leaf(), regions.tensor({ 5, 8 }, 1, { requires_grad = true })
    record(function()
      local constant = op.gelu(neap.full({ 4, 8 }, 1))
      local y = op.dropout(op.scale(x, 2), 0.5) * constant
      op.reshape(op.linear(y, w), { 20 })
    end)
    local rows = {}
    for i = 0, N.check(C.neap_trace_n_ops(trace)) - 1 do
      local o = get(i)
      rows[i + 1] = string.format("%s %d%d%d%d %d", ffi.string(C.neap_op_name(o.op)), o.recorded,
        o.draws, o.is_view, o.computes, o.bytes)
    end
    assert.same({ "gelu 0001 128", "scale 1001 128", "dropout 1101 128", "multiply 1001 128",
      "linear 1000 128", "reshape 1010 128" }, rows)
    assert.same({ 2, 4, 5 }, { get(4).n_dims, get(4).dims[0], get(4).dims[1] })
    assert.equal(1, C.neap_trace_draws(trace))
    x:free()
    w:free()
  end)

  it("holds no memory, unless ops are kept, and then tells which tensors", function()
    local x = leaf()
    local kept
    record(function() return op.gelu(op.silu(op.gelu(x))) end)
    assert.equal(0, C.neap_trace_held_bytes(trace))
    assert.equal(0, C.neap_trace_keep(trace, C.NEAP_OP_SILU))
    assert.equal(0, C.neap_trace_keep_at(trace, 2))
    assert.equal(0, C.neap_trace_keep_at(trace, -1))
    assert.equal(0, C.neap_trace_keep_at(trace, 1e6))
    local before = device:memory().live_bytes
    kept = on(N.check(C.neap_trace_begin(trace)), function()
      local y = op.silu(op.gelu(x))
      local z = op.gelu(y)
      assert.equal(1, C.neap_trace_holds(trace, y.id))
      assert.equal(1, C.neap_trace_holds(trace, z.id))
      assert.equal(0, C.neap_trace_holds(trace, x.id))
      return z
    end)
    N.check(C.neap_trace_end(trace))
    -- the last one is not needed by anyone: it is given back
    assert.equal(0, C.neap_trace_holds(trace, kept.id))
    assert.equal(128, C.neap_trace_held_bytes(trace))
    kept:free()
    assert.equal(before + 128, device:memory().live_bytes)
    assert.equal(0, C.neap_trace_clear(trace))
    assert.equal(0, C.neap_trace_held_bytes(trace))
    assert.equal(before, device:memory().live_bytes)
    x:free()
  end)

  it("makes again what it kept when that was written in place in the region", function()
    local x = leaf()
    N.check(C.neap_trace_keep(trace, C.NEAP_OP_SILU))
    record(function()
      local y = op.silu(x)
      y:fill(2)
      op.gelu(y)
    end)
    assert.equal(0, C.neap_trace_held_bytes(trace))
    assert.equal(1, get(0).computes)
    x:free()
  end)

  it("refuses numbers that are none", function()
    for _, id in ipairs({ 0, -1, -2 ^ 31, 2 ^ 31 - 1, 12345678, trace + 1, trace + 131072 }) do
      local out = ffi.new("neap_trace_op")
      for _, call in ipairs({
        function() return C.neap_trace_begin(id) end,
        function() return C.neap_trace_end(id) end,
        function() return C.neap_trace_follow(id, 0, 1) end,
        function() return C.neap_trace_unfollow(id, 1) end,
        function() return C.neap_trace_clear(id) end,
        function() return C.neap_trace_keep(id, 0) end,
        function() return C.neap_trace_keep_at(id, 0) end,
        function() return C.neap_trace_argument(id, 1) end,
        function() return C.neap_trace_n_ops(id) end,
        function() return C.neap_trace_get_op(id, 0, out) end,
        function() return C.neap_trace_draws(id) end,
        function() return C.neap_trace_held_bytes(id) end,
        function() return C.neap_trace_check_bytes(id) end,
        function() return C.neap_trace_holds(id, 1) end,
      }) do
        refused("wrong state", "", call())
      end
      assert.equal(0, C.neap_trace_free(id))
      assert.equal(0, C.neap_trace_alive(id))
    end
    assert.equal(1, C.neap_trace_alive(trace))
    refused("invalid argument", "no check number", C.neap_trace_new(-1, 0))
    refused("invalid argument", "no check number", C.neap_trace_new(3, 0))
    refused("not found", "no op number", C.neap_trace_keep(trace, -1))
    refused("not found", "no op number", C.neap_trace_keep(trace, 1000))
    refused("stale handle", "", C.neap_trace_argument(trace, 0 / 0))
    refused("stale handle", "", C.neap_trace_holds(trace, 12345))
    refused("invalid argument", "it has 0 ops", C.neap_trace_get_op(trace, 0,
      ffi.new("neap_trace_op")))
    record(function() op.gelu(neap.full({ 2 }, 1)) end)
    refused("invalid argument", "it has 1 ops", C.neap_trace_get_op(trace, 1,
      ffi.new("neap_trace_op")))
    refused("invalid argument", "", C.neap_trace_get_op(trace, 0, nil))
  end)

  it("is begun once, ended once, followed when it is ready, and by one tape", function()
    refused("wrong state", "it was not begun", C.neap_trace_end(trace))
    refused("wrong state", "nothing to follow", C.neap_trace_follow(trace, tape_new(), 1))
    local weak = N.check(C.neap_trace_begin(trace))
    assert.equal(1, C.neap_tape_is_weak(weak))
    refused("wrong state", "in use already", C.neap_trace_begin(trace))
    refused("wrong state", "nothing to follow", C.neap_trace_follow(trace, tape_new(), 1))
    refused("wrong state", "recorded, not followed", C.neap_trace_unfollow(trace, 1))
    refused("graph", "holds nothing", C.neap_tape_backward(weak))
    assert.equal(0, C.neap_trace_end(trace))
    refused("graph", "is not open", C.neap_tape_is_weak(weak))
    refused("wrong state", "it was not begun", C.neap_trace_end(trace))
    refused("graph", "is not open", C.neap_trace_follow(trace, 0, 1))
    refused("graph", "is not open", C.neap_trace_follow(trace, weak, 1))
    local tape = tape_new()
    assert.equal(0, C.neap_trace_follow(trace, tape, 1))
    refused("wrong state", "nothing to follow", C.neap_trace_follow(trace, tape_new(), 1))
    refused("wrong state", "in use already", C.neap_trace_begin(trace))
    refused("wrong state", "it was not begun", C.neap_trace_end(trace))
    assert.equal(0, C.neap_trace_unfollow(trace, 1))
    assert.equal(0, C.neap_trace_unfollow(trace, 1))
    assert.is_true(C.neap_trace_begin(trace) > 0) -- again, from the start
    assert.equal(0, C.neap_trace_end(trace))
  end)

  it("may be freed or cleared while it is open or followed", function()
    local x = leaf()
    local live = device:memory().live_bytes
    for _, close in ipairs({ "free", "clear" }) do
      for _, when in ipairs({ "open", "followed" }) do
        local id = N.check(C.neap_trace_new(C.NEAP_CHECK_VALUE, 1))
        N.check(C.neap_trace_keep(id, C.NEAP_OP_SILU))
        local weak = N.check(C.neap_trace_begin(id))
        on(weak, function() return op.gelu(op.silu(x)):numel() end)
        if when == "followed" then
          N.check(C.neap_trace_end(id))
          local tape = tape_new()
          N.check(C.neap_trace_follow(id, tape, 1))
          on(tape, function() return op.gelu(op.silu(x)):numel() end)
        end
        assert.equal(0, C["neap_trace_" .. close](id))
        neap.scope(function() op.gelu(op.silu(x)) end)
        if when == "followed" then C.neap_tape_free(tapes[#tapes]) end
        C.neap_trace_free(id)
        assert.equal(live, device:memory().live_bytes)
      end
    end
    x:free()
  end)

  it("is ended inside or outside of another in any order", function()
    local x = leaf()
    local other = N.check(C.neap_trace_new(C.NEAP_CHECK_SHAPE, 0))
    N.check(C.neap_trace_begin(trace))
    neap.scope(function() op.gelu(x) end)
    N.check(C.neap_trace_begin(other))
    neap.scope(function() op.gelu(x) end)
    N.check(C.neap_trace_end(trace))
    neap.scope(function() op.gelu(x) end)
    N.check(C.neap_trace_end(other))
    neap.scope(function() op.gelu(x) end)
    assert.equal(2, C.neap_trace_n_ops(trace))
    assert.equal(2, C.neap_trace_n_ops(other))
    C.neap_trace_free(other)
    x:free()
  end)

  it("survives a tape that goes while it is followed", function()
    local x = leaf()
    record(function() op.gelu(op.silu(x)) end)
    local tape = tape_new()
    N.check(C.neap_trace_follow(trace, tape, 1))
    C.neap_tape_free(tape)
    neap.scope(function() op.gelu(op.silu(x)) end)
    refused("recomputation failed", "it ended before op 1", C.neap_trace_unfollow(trace, 1))
    x:free()
  end)

  it("lets nobody look at what a recomputation left out", function()
    local x = leaf()
    record(function() op.linear(op.gelu(x), neap.full({ 3, 8 }, 1)) end)
    local tape = tape_new()
    N.check(C.neap_trace_follow(trace, tape, 1))
    on(tape, function()
      local y = op.linear(op.gelu(x), neap.full({ 3, 8 }, 1))
      assert.equal(0, C.neap_tensor_bytes(y.id))
      assert.same({ 4, 3 }, y:dims())
      local other = neap.zeros({ 4, 3 })
      for _, look in ipairs({
        function() y:table() end, function() op.mean(y):item() end, function() (y * y):table() end,
        function() other:copy_from(y) end, function() other:lerp(y, 0.5) end,
      }) do
        assert.matches("did not make again", regions.failure("recomputation failed", neap.no_grad,
          look))
      end
      y:fill(1)
      y:copy_from(other)
      y:lerp(other, 0.5)
      refused("recomputation failed", "did not make again",
        C.neap_tensor_hash(1, ffi.new("double[1]", y.id), ffi.new("char[33]")))
    end)
    C.neap_trace_unfollow(trace, 0)
    x:free()
  end)
end)
