-- cross_entropy: mean over rows of log(sum of exp(logits)) - logit of the target.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.cross_entropy", function()
  setup(gradcheck.cpu)

  local function case(logits, targets)
    return {
      name = "cross_entropy of (" .. table.concat(logits.dims, ", ") .. ")",
      run = function(x, t) return neap.op.cross_entropy(x, t) end,
      reference = reference.cross_entropy,
      inputs = { logits, targets },
      scale = 1, -- of the logits
    }
  end

  local function ids(list)
    return neap.tensor(list, { #list }, { dtype = "i32" })
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("cross_entropy", function(t)
      return neap.op.cross_entropy(t[1], t[2])
    end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r)
      local dims, classes = r.dims(r.int(0, 3), 4), r.int(1, 6)
      local full = { unpack(dims) }
      full[#full + 1] = classes
      return case(r.value(full, 3), r.ids(dims, classes))
    end)
  end)

  it("agrees where a dimension is 1", function()
    for _, dims in ipairs({ { 1 }, { 1, 1 }, { 3, 1 }, { 1, 3 }, { 1, 3, 1 }, { 3, 1, 3 } }) do
      local rows = { unpack(dims, 1, #dims - 1) }
      gradcheck.check(case(numbers.wave(dims, 1), numbers.random(3).ids(rows, dims[#dims])))
    end
  end)

  it("agrees on rows around a vector's width, and on many rows", function()
    local shapes = { { 2, 15 }, { 2, 16 }, { 2, 17 }, { 1, 67 }, { 2, 210 }, { 70, 3 }, { 130, 2 } }
    for _, dims in ipairs(shapes) do
      local targets = numbers.random(3).ids({ dims[1] }, dims[2])
      gradcheck.check(case(numbers.wave(dims, 1, 2), targets))
    end
  end)

  it("agrees on rows of thousands of classes, wherever the largest is", function()
    local rows, classes = 3, 5003
    local logits = numbers.wave({ rows, classes }, 1, 3)
    logits.data[17], logits.data[classes + 2900], logits.data[3 * classes] = 9, 9, 9
    local targets = { dims = { rows }, data = { 0, 2899, 5001 }, dtype = "i32" }
    local expected = {}
    for r = 0, rows - 1 do
      local sum = 0
      for j = 1, classes do sum = sum + math.exp(logits.data[r * classes + j]) end
      for j = 1, classes do
        local hit = targets.data[r + 1] == j - 1 and 1 or 0
        local i = r * classes + j
        expected[i] = (math.exp(logits.data[i]) / sum - hit) / rows
      end
    end
    neap.scope(function()
      local x = gradcheck.tensor(logits, true)
      local loss = neap.op.cross_entropy(x, gradcheck.tensor(targets))
      numbers.close("loss", reference.cross_entropy(logits, targets).data, { loss:item() }, 1e-6)
      loss:backward()
      numbers.close("gradient", expected, x:grad():table(), 2e-6)
    end)
  end)

  it("takes classes that are ruled out by -infinity", function()
    neap.scope(function()
      for _, classes in ipairs({ 4, 5000 }) do
        local data, expected = {}, {}
        for j = 1, classes do data[j], expected[j] = -1 / 0, 0 end
        data[classes - 1], data[classes] = 2, 2
        expected[classes - 1], expected[classes] = 0.5, -0.5
        local x = neap.tensor(data, { 1, classes }, { requires_grad = true })
        local loss = neap.op.cross_entropy(x, ids({ classes - 1 }))
        numbers.close("loss", { math.log(2) }, { loss:item() }, 1e-6)
        loss:backward()
        numbers.close("gradient", expected, x:grad():table(), 1e-6)
      end
    end)
  end)

  it("is log(classes) for equal logits", function()
    neap.scope(function()
      local logits, targets = neap.full({ 40, 65 }, 7), neap.zeros({ 40 }, { dtype = "i32" })
      local loss = neap.op.cross_entropy(logits, targets)
      numbers.close("loss", { math.log(65) }, { loss:item() }, 1e-6)
    end)
  end)

  it("stands logits of a thousand", function()
    neap.scope(function()
      local far_apart = { 1000, -1000, 0, -1000, 1000, 0 }
      local logits = neap.tensor(far_apart, { 2, 3 }, { requires_grad = true })
      local loss = neap.op.cross_entropy(logits, ids({ 0, 2 }))
      assert.equal(500, loss:item())
      loss:backward()
      assert.same({ 0, 0, 0, 0, 0.5, -0.5 }, logits:grad():table())
    end)
  end)

  it("keeps the digits of a small loss", function()
    neap.scope(function()
      local loss = neap.op.cross_entropy(neap.tensor({ 12, 0 }, { 1, 2 }), ids({ 0 })):item()
      -- log(1 + exp(-12)); f32 knows 12 + 6e-6 to 1e-6 at best
      assert(math.abs(loss - 6.144193e-6) < 1e-6)
    end)
  end)

  it("is NaN when a logit is", function()
    neap.scope(function()
      local logits = neap.tensor({ 1, 2, 0 / 0, 2 }, { 2, 2 })
      local loss = neap.op.cross_entropy(logits, ids({ 0, 1 })):item()
      assert(loss ~= loss)
    end)
  end)

  it("refuses a target outside the classes, naming it", function()
    for _, target in ipairs({ -1, 3, 2147483647, -2147483647 }) do
      gradcheck.fails("cross_entropy", "invalid argument", function()
        return neap.op.cross_entropy(neap.zeros({ 2, 3 }), ids({ 0, target }))
      end, tostring(target), "0..2")
    end
  end)

  it("refuses targets of another shape", function()
    for _, dims in ipairs({ { 3 }, { 2, 1 }, { 2, 3 }, {}, { 1, 2 } }) do
      gradcheck.fails("cross_entropy", "shape mismatch", function()
        return neap.op.cross_entropy(neap.zeros({ 2, 3 }), neap.zeros(dims, { dtype = "i32" }))
      end, "(2, 3)", "(" .. table.concat(dims, ", ") .. ")")
    end
  end)

  it("refuses what has no mean: no rows or no classes", function()
    for _, dims in ipairs({ { 0, 3 }, { 2, 0 }, { 2, 0, 3 } }) do
      local rows = { unpack(dims, 1, #dims - 1) }
      gradcheck.fails("cross_entropy", "shape mismatch", function()
        return neap.op.cross_entropy(neap.zeros(dims), neap.zeros(rows, { dtype = "i32" }))
      end, "(" .. table.concat(dims, ", ") .. ")")
    end
  end)

  it("refuses float targets and integer logits", function()
    gradcheck.fails("cross_entropy", "dtype", function()
      return neap.op.cross_entropy(neap.zeros({ 2, 3 }), neap.zeros({ 2 }))
    end, "input 2", "i32")
    gradcheck.fails("cross_entropy", "dtype", function()
      return neap.op.cross_entropy(neap.zeros({ 2, 3 }, { dtype = "i32" }), ids({ 0, 1 }))
    end, "input 1", "f32")
  end)

  it("refuses a call without targets", function()
    gradcheck.fails("cross_entropy", "invalid argument", function()
      return neap.op.cross_entropy(neap.zeros({ 2, 3 }))
    end)
  end)
end)
