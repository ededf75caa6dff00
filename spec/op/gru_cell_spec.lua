-- gru_cell: two rows of gates and the hidden state to the next one.
local C = require("neap.ffi").C
local neap = require("neap")
local cells = require("spec.support.reference_cells")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")

local op = neap.op

describe("neap.op.gru_cell", function()
  setup(gradcheck.cpu)

  local function case(x, g, h)
    return {
      name = ("gru_cell of (%s)"):format(table.concat(h.dims, ", ")),
      run = function(a, b, c) return op.gru_cell(a, b, c) end,
      reference = cells.gru_cell,
      inputs = { x, g, h },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("gru_cell", function(t) return op.gru_cell(t[1], t[2], t[3]) end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(40, function(r)
      local rows, width = r.int(1, 5), r.int(1, 6)
      return case(r.value({ rows, 3 * width }, 2), r.value({ rows, 3 * width }, 2),
        r.value({ rows, width }))
    end)
  end)

  it("agrees where a dimension is 0, and at each width around a vector's", function()
    for _, dims in ipairs({ { 0, 3 }, { 3, 0 }, { 0, 0 } }) do
      local gates = { dims[1], 3 * dims[2] }
      gradcheck.check(case(numbers.wave(gates, 1), numbers.wave(gates, 2), numbers.wave(dims, 3)))
    end
    for n = 1, 35 do
      gradcheck.check(case(numbers.wave({ 2, 3 * n }, n, 2), numbers.wave({ 2, 3 * n }, n + 1),
        numbers.wave({ 2, n }, n + 2)))
    end
  end)

  it("takes one tensor as both gates", function()
    gradcheck.many(10, function(r)
      return {
        name = "gru_cell of one tensor",
        run = function(a, h) return op.gru_cell(a, a, h) end,
        reference = function(a, h) return cells.gru_cell(a, a, h) end,
        inputs = { r.value({ 2, 9 }), r.value({ 2, 3 }) },
      }
    end)
  end)

  it("saves h and four widths a row, and neither gates nor output", function()
    neap.scope(function()
      local leaf = neap.full({ 4, 48 }, 0.5, { requires_grad = true })
      local x, g, h = op.scale(leaf, 1), op.scale(leaf, 2), neap.zeros({ 4, 16 })
      local y, tape = op.gru_cell(x, g, h), C.neap_tape_selected()
      assert.same({ 0, 0, 1, 0 }, { C.neap_tape_saves(tape, x.id), C.neap_tape_saves(tape, g.id),
        C.neap_tape_saves(tape, h.id), C.neap_tape_saves(tape, y.id) })
      assert.equal(h:bytes() + 4 * 4 * 16 * 4, C.neap_tape_saved_bytes(tape))
    end)
  end)

  it("refuses shapes that do not fit, naming two of them", function()
    for _, dims in ipairs({ { { 2, 9 }, { 2, 9 }, { 2, 4 } }, { { 2, 9 }, { 2, 12 }, { 2, 3 } },
      { { 3, 9 }, { 2, 9 }, { 2, 3 } }, { { 2, 10 }, { 2, 10 }, { 2, 3 } }, { { 9 }, { 9 }, { 3 } },
      { {}, {}, {} } }) do
      gradcheck.fails("gru_cell", "shape mismatch", function()
        return op.gru_cell(neap.zeros(dims[1]), neap.zeros(dims[2]), neap.zeros(dims[3]))
      end, "(" .. table.concat(dims[3], ", ") .. ")", "3 * width")
    end
  end)

  it("refuses integers on each side, and a call with two tensors", function()
    for side = 1, 3 do
      gradcheck.fails("gru_cell", "dtype", function()
        local function made(k, dims)
          return neap.zeros(dims, { dtype = side == k and "i32" or "f32" })
        end
        return op.gru_cell(made(1, { 2, 9 }), made(2, { 2, 9 }), made(3, { 2, 3 }))
      end, "input " .. side, "i32")
    end
    gradcheck.fails("gru_cell", "invalid argument", function()
      return op.gru_cell(neap.zeros({ 2, 9 }), neap.zeros({ 2, 9 }))
    end)
  end)
end)
