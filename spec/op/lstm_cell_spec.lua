-- lstm_cell: gates and cell state to the next hidden and cell state.
local C = require("neap.ffi").C
local neap = require("neap")
local cells = require("spec.support.reference_cells")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

local op = neap.op

describe("neap.op.lstm_cell", function()
  local device
  setup(function() device = gradcheck.cpu() end)

  -- which: 1 = h alone is used, 2 = c' alone, 3 = both, and both reach the result
  local function case(gates, c, which)
    return {
      name = ("lstm_cell of (%s), used: %d"):format(table.concat(c.dims, ", "), which),
      run = function(g, before)
        local h, after = op.lstm_cell(g, before)
        return which == 1 and h or which == 2 and after or h + op.scale(after, 0.5)
      end,
      reference = function(g, before)
        local h, after = cells.lstm_cell(g, before)
        return which == 1 and h or which == 2 and after
          or reference.add(h, reference.scale(after, 0.5))
      end,
      inputs = { gates, c },
    }
  end

  it("gives PyTorch's values and gradients, of h and of c'", function()
    gradcheck.matches_torch("lstm_cell", function(t, attrs)
      return (select(attrs[1] + 1, op.lstm_cell(t[1], t[2])))
    end)
  end)

  it("agrees with the reference on random shapes, whichever output is used", function()
    gradcheck.many(45, function(r, i)
      local rows, width = r.int(1, 5), r.int(1, 6)
      return case(r.value({ rows, 4 * width }, 3), r.value({ rows, width }), i % 3 + 1)
    end)
  end)

  it("agrees where a dimension is 0, and at each width around a vector's", function()
    for _, dims in ipairs({ { 0, 3 }, { 3, 0 }, { 0, 0 } }) do
      gradcheck.check(case(numbers.wave({ dims[1], 4 * dims[2] }, 1), numbers.wave(dims, 2), 3))
    end
    for n = 1, 35 do
      gradcheck.check(case(numbers.wave({ 2, 4 * n }, n, 2), numbers.wave({ 2, n }, n + 1), 3))
    end
  end)

  it("is saturated, not NaN, far from 0", function()
    neap.scope(function()
      local gates = neap.tensor({ 1e4, 1e4, 1e4, 1e4, -1e4, -1e4, -1e4, -1e4 }, { 2, 4 })
      local h, c = op.lstm_cell(gates, neap.tensor({ 2, 2 }, { 2, 1 }))
      assert.same({ 3, 0 }, c:table())
      assert(math.abs(h:table()[1] - math.tanh(3)) < 1e-7 and h:table()[2] == 0)
    end)
  end)

  it("saves the gates and c, and no other byte", function()
    neap.scope(function()
      local leaf = neap.full({ 4, 64 }, 0.5, { requires_grad = true })
      local gates, c, tape = op.scale(leaf, 1), neap.zeros({ 4, 16 }), C.neap_tape_selected()
      local h, after = op.lstm_cell(gates, c)
      assert.same({ 1, 1, 0, 0 }, { C.neap_tape_saves(tape, gates.id),
        C.neap_tape_saves(tape, c.id), C.neap_tape_saves(tape, h.id),
        C.neap_tape_saves(tape, after.id) })
      assert.equal(gates:bytes() + c:bytes(), C.neap_tape_saved_bytes(tape))
    end)
  end)

  it("writes the gates' gradient over them, where nobody else holds them", function()
    neap.scope(function()
      local leaf = neap.full({ 64, 4 * 64 }, 0.5, { requires_grad = true })
      leaf:zero_grad()
      local gates = op.scale(leaf, 1)
      local loss = op.mean((op.lstm_cell(gates, neap.zeros({ 64, 64 }))))
      gates:free()
      local live = device:memory().live_bytes
      C.neap_memory_restart(device.id, C.NEAP_METER_RUN)
      loss:backward()
      -- gradients of the loss and of h
      assert.equal(live + 64 + 64 * 64 * 4, C.neap_memory_peak(device.id, C.NEAP_METER_RUN))
    end)
  end)

  it("refuses shapes that do not fit, naming both", function()
    for _, dims in ipairs({
      { { 2, 12 }, { 2, 4 } }, { { 2, 12 }, { 3, 3 } },
      { { 2, 13 }, { 2, 3 } }, { { 12 }, { 3 } }, { { 2, 12 }, { 3 } },
      { { 2, 1, 12 }, { 2, 1, 3 } }, { {}, {} },
    }) do
      gradcheck.fails("lstm_cell", "shape mismatch", function()
        return op.lstm_cell(neap.zeros(dims[1]), neap.zeros(dims[2]))
      end, "(" .. table.concat(dims[1], ", ") .. ")", "(" .. table.concat(dims[2], ", ") .. ")",
        "4 * width")
    end
  end)

  it("refuses integers on either side, and a call with one tensor", function()
    for side = 1, 2 do
      gradcheck.fails("lstm_cell", "dtype", function()
        local gates = neap.zeros({ 2, 12 }, { dtype = side == 1 and "i32" or "f32" })
        return op.lstm_cell(gates, neap.zeros({ 2, 3 }, { dtype = side == 2 and "i32" or "f32" }))
      end, "input " .. side, "i32")
    end
    gradcheck.fails("lstm_cell", "invalid argument", function()
      return op.lstm_cell(neap.zeros({ 2, 12 }))
    end)
  end)
end)
