-- embedding: rows of a weight, chosen by integers.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.embedding", function()
  setup(gradcheck.cpu)

  local function ids(list, dims)
    return { dims = dims or { #list }, data = list, dtype = "i32" }
  end

  local function case(indices, weight)
    return {
      name = "embedding",
      run = function(i, w) return neap.op.embedding(i, w) end,
      reference = reference.embedding,
      inputs = { indices, weight },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("embedding", function(t) return neap.op.embedding(t[1], t[2]) end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r)
      local n = r.int(1, 5)
      return case(r.ids(r.dims(r.int(0, 3), 4), n), r.value({ n, r.int(1, 5) }))
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, dims in ipairs(numbers.shapes(2)) do
      for _, width in ipairs({ 0, 1, 3 }) do
        for n = 1, 2 do
          local indices = numbers.random(7).ids(dims, n)
          gradcheck.check(case(indices, numbers.wave({ n, width }, 1)))
        end
      end
    end
    gradcheck.check(case(ids({}), numbers.wave({ 0, 3 }, 1)))
  end)

  it("copies rows bit for bit", function()
    neap.scope(function()
      local weight = numbers.wave({ 9, 33 }, 4)
      local list = { 8, 0, 3, 3, 8 }
      local y = neap.op.embedding(gradcheck.tensor(ids(list)), gradcheck.tensor(weight))
      assert.same(reference.embedding(ids(list), weight).data, y:table())
    end)
  end)

  it("sums the gradients of an id that repeats", function()
    neap.scope(function()
      local list = {}
      for i = 1, 300 do list[i] = i % 3 == 0 and 1 or 4 end
      local weight = neap.tensor(numbers.wave({ 6, 2 }, 1).data, { 6, 2 }, { requires_grad = true })
      local y = neap.op.embedding(gradcheck.tensor(ids(list)), weight)
      neap.op.sum(y):backward()
      assert.same({ 0, 0, 100, 100, 0, 0, 0, 0, 200, 200, 0, 0 }, weight:grad():table())
    end)
  end)

  it("shares its weight with linear: the gradient is the sum of both", function()
    gradcheck.many(40, function(r)
      local n, width = r.int(1, 5), r.int(1, 4)
      local indices = r.ids({ 2, 3 }, n)
      return {
        name = "tied embedding and linear",
        run = function(i, w) return neap.op.linear(neap.op.gelu(neap.op.embedding(i, w)), w) end,
        reference = function(i, w)
          return reference.linear(reference.gelu(reference.embedding(i, w)), w)
        end,
        inputs = { indices, r.value({ n, width }) },
      }
    end)
  end)

  it("refuses an id outside the weight, naming it", function()
    for _, id in ipairs({ -1, 5, 2147483647, -2147483647 }) do
      gradcheck.fails("embedding", "invalid argument", function()
        return neap.op.embedding(gradcheck.tensor(ids({ 0, 4, id })), neap.zeros({ 5, 2 }))
      end, tostring(id), "0..4")
    end
  end)

  it("refuses a weight that is no matrix", function()
    for _, dims in ipairs({ { 4 }, { 2, 2, 2 }, {} }) do
      gradcheck.fails("embedding", "shape mismatch", function()
        return neap.op.embedding(gradcheck.tensor(ids({ 0 })), neap.zeros(dims))
      end, "weight")
    end
  end)

  it("refuses float ids and integer weights", function()
    gradcheck.fails("embedding", "dtype", function()
      return neap.op.embedding(neap.zeros({ 2 }), neap.zeros({ 5, 2 }))
    end, "input 1", "i32")
    gradcheck.fails("embedding", "dtype", function()
      return neap.op.embedding(gradcheck.tensor(ids({ 0 })), gradcheck.tensor(ids({ 1 }, { 1, 1 })))
    end, "input 2", "f32")
  end)

  it("refuses a call without a weight", function()
    gradcheck.fails("embedding", "invalid argument", function()
      return neap.op.embedding(gradcheck.tensor(ids({ 0 })))
    end)
  end)
end)
