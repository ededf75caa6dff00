-- LSTMCell and GRUCell, over many steps and alone.
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")

local nn, op = neap.nn, neap.op

local function tensor(value, requires_grad)
  return neap.tensor(value.data, value.dims, { requires_grad = requires_grad })
end

-- PyTorch's parameters in its order, by the formula of torch_values.py
local function fill(row, cell)
  local gates = row.cell == "lstm" and 4 * row.width or 3 * row.width
  local weight_x = numbers.wave({ gates, row.n_in }, 1, row.scale)
  local weight_h = numbers.wave({ gates, row.width }, 2, row.scale)
  local bias_x = numbers.wave({ gates }, 3, row.scale)
  local bias_h = numbers.wave({ gates }, 4, row.scale)
  if row.cell == "lstm" then -- one bias does the work of two
    for i, b in ipairs(bias_h.data) do bias_x.data[i] = bias_x.data[i] + b end
  else
    cell.hidden.bias:copy_from(tensor(bias_h))
  end
  cell.input.weight:copy_from(tensor(weight_x))
  cell.input.bias:copy_from(tensor(bias_x))
  cell.hidden.weight:copy_from(tensor(weight_h))
end

describe("a cell over 12 steps", function()
  local device
  setup(function() device = gradcheck.cpu() end)

  local rows = {}
  for _, row in ipairs(gradcheck.torch().unrolled) do rows[row.cell] = row end

  for kind, make in pairs({ lstm = nn.LSTMCell, gru = nn.GRUCell }) do
    it("has PyTorch's loss, state and gradients: " .. kind, function()
      neap.scope(function()
        local row = rows[kind]
        local cell = make(row.n_in, row.width)
        fill(row, cell)
        local xs = tensor(numbers.wave({ row.steps, row.batch, row.n_in }, row.x_k), true)
        local cotangent = numbers.wave({ row.steps, row.batch, row.width }, 11)
        local cotangents, loss = tensor(cotangent), nil
        local h, c = cell:start(row.batch, device.id)
        for t = 1, row.steps do
          h, c = cell(op.select(xs, 1, t), h, c)
          local here = op.sum(h * op.select(cotangents, 1, t))
          loss = loss and loss + here or here
        end
        loss:backward()
        numbers.close("loss", { row.loss }, { loss:item() }, 3e-6)
        numbers.close("h", row.h, h:table(), 3e-6)
        numbers.close("gradient of x", row.x_grad, xs:grad():table(), 2e-5)
        local of = { weight_ih = cell.input.weight, weight_hh = cell.hidden.weight,
          bias_ih = cell.input.bias, bias_hh = kind == "gru" and cell.hidden.bias or nil }
        for name, parameter in pairs(of) do
          numbers.close(name, row.grads[name], parameter:grad():table(), 2e-5)
        end
        cell:free()
      end)
    end)
  end
end)

describe("a cell", function()
  setup(gradcheck.cpu)

  it("starts with forget gates of 1 and all else 0, or with what it is told", function()
    local cell, other = nn.LSTMCell(2, 3), nn.LSTMCell(2, 3, { forget_bias = -2 })
    assert.same({ 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0 }, cell.input.bias:table())
    assert.same({ 0, 0, 0, -2, -2, -2, 0, 0, 0, 0, 0, 0 }, other.input.bias:table())
    cell:free()
    other:free()
  end)

  it("has the parameters of its two products", function()
    local function names(cell)
      local list = {}
      for i, p in ipairs(cell:parameters()) do
        list[i] = p.name .. " " .. table.concat(p.tensor:dims(), "x")
      end
      cell:free()
      return list
    end
    assert.same({ "input.weight 12x2", "input.bias 12", "hidden.weight 12x3" },
      names(nn.LSTMCell(2, 3)))
    assert.same({ "input.weight 9x2", "input.bias 9", "hidden.weight 9x3", "hidden.bias 9" },
      names(nn.GRUCell(2, 3)))
  end)

  it("names the layer and the shapes where x or the state does not fit", function()
    for kind, make in pairs({ LSTMCell = nn.LSTMCell, GRUCell = nn.GRUCell }) do
      local cell = make(2, 3)
      local state = neap.zeros({ 4, 3 })
      local message = failure_of("shape mismatch", cell, neap.zeros({ 4, 5 }), state, state)
      assert(message:find(kind .. ": linear: x is (4, 5)", 1, true), message)
      message = failure_of("shape mismatch", cell, neap.zeros({ 3, 2 }), state, state)
      assert(message:find(kind, 1, true) and message:find("(3, ", 1, true), message)
      cell:free()
    end
  end)
end)
