-- attention: softmax(q k' / sqrt(head dim)) v per head, from packed queries, keys and values.
local ffi = require("ffi")
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference")

describe("neap.op.attention", function()
  setup(gradcheck.cpu)

  local function case(qkv, heads, causal)
    return {
      name = ("attention of (%s), %d heads"):format(table.concat(qkv.dims, ", "), heads),
      run = function(x) return neap.op.attention(x, heads, causal) end,
      reference = function(x) return reference.attention(x, heads, causal) end,
      inputs = { qkv },
      scale = 0.1, -- of the sums of which small outputs are left
    }
  end

  -- gradient of sum(output * cotangent) by the whole T x T matrix, in f64
  local function whole_gradient(qkv, heads, causal, cotangent)
    local batch, length, width = qkv.dims[1], qkv.dims[2], qkv.dims[3] / 3
    local size = width / heads
    local grad = reference.value(qkv.dims)
    local x, g, scale = qkv.data, grad.data, 1 / math.sqrt(size)
    for b = 0, batch - 1 do
      for h = 0, heads - 1 do
        local function row(t, part) return ((b * length + t) * 3 + part) * width + h * size end
        for t = 0, length - 1 do
          local last, p, dp, sum, mean = causal and t or length - 1, {}, {}, 0, 0
          local q, dy = row(t, 0), (b * length + t) * width + h * size
          for s = 0, last do
            local k, v, score, slope = row(s, 1), row(s, 2), 0, 0
            for d = 1, size do
              score = score + x[q + d] * x[k + d]
              slope = slope + cotangent.data[dy + d] * x[v + d]
            end
            p[s], dp[s] = math.exp(score * scale), slope
            sum = sum + p[s]
          end
          for s = 0, last do
            p[s] = p[s] / sum
            mean = mean + p[s] * dp[s]
          end
          for s = 0, last do
            local k, v, ds = row(s, 1), row(s, 2), p[s] * (dp[s] - mean) * scale
            for d = 1, size do
              g[q + d] = g[q + d] + ds * x[k + d]
              g[k + d] = g[k + d] + ds * x[q + d]
              g[v + d] = g[v + d] + p[s] * cotangent.data[dy + d]
            end
          end
        end
      end
    end
    return grad
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("attention", function(t, attrs)
      return neap.op.attention(t[1], attrs[1], attrs[2] == 1)
    end)
  end)

  it("agrees with the reference on random shapes", function()
    gradcheck.many(120, function(r, i)
      local heads, size = r.int(1, 3), r.int(1, 4)
      return case(r.value({ r.int(1, 2), r.int(1, 6), 3 * heads * size }), heads, i % 2 == 0)
    end)
  end)

  it("agrees where a dimension is 0 or 1", function()
    for _, dims in ipairs(numbers.shapes(3)) do
      for _, causal in ipairs({ true, false }) do
        local qkv = numbers.wave({ dims[1], dims[2], 3 * dims[3] }, 1)
        gradcheck.check(case(qkv, 1, causal))
        if dims[3] == 3 then gradcheck.check(case(qkv, 3, causal)) end
      end
    end
  end)

  for _, length in ipairs({ 1, 5, 64, 65, 130 }) do
    for _, size in ipairs({ 4, 8, 32 }) do
      it(("agrees with the whole matrix for T = %d, head dim %d"):format(length, size), function()
        for _, causal in ipairs({ true, false }) do
          neap.scope(function()
            local heads = 2
            local qkv = numbers.wave({ 2, length, 3 * heads * size }, size, 1.5)
            local cotangent = numbers.wave({ 2, length, heads * size }, 11)
            local x = gradcheck.tensor(qkv, true)
            local y = neap.op.attention(x, heads, causal)
            numbers.close("output", reference.attention(qkv, heads, causal).data, y:table(), 3e-6)
            neap.op.sum(neap.op.multiply(y, gradcheck.tensor(cotangent))):backward()
            local expected = whole_gradient(qkv, heads, causal, cotangent)
            numbers.close("gradient", expected.data, x:grad():table(), 2e-5)
          end)
        end
      end)
    end
  end

  it("is causal unless told otherwise", function()
    neap.scope(function()
      local x = gradcheck.tensor(numbers.wave({ 1, 5, 12 }, 1))
      local y = neap.op.attention(x, 2)
      numbers.same("causal", neap.op.attention(x, 2, true):bits(), y:bits())
      assert.not_same(neap.op.attention(x, 2, false):bits(), y:bits())
    end)
  end)

  it("never looks ahead: earlier outputs keep their bits when a later token changes", function()
    neap.scope(function()
      local length, width, changed = 70, 8, 66
      local value = numbers.wave({ 1, length, 3 * width }, 1)
      local before = neap.op.attention(gradcheck.tensor(value), 2):bits()
      for i = (changed - 1) * 3 * width + 1, #value.data do value.data[i] = 50 end
      local after = neap.op.attention(gradcheck.tensor(value), 2):bits()
      for i = 1, (changed - 1) * width do assert.equal(before[i], after[i]) end
      assert.not_equal(before[#before], after[#after])
    end)
  end)

  it("gives each item the bits that it has alone", function()
    neap.scope(function()
      local x = gradcheck.tensor(numbers.wave({ 3, 9, 24 }, 1))
      local all, alone = neap.op.attention(x, 2):bits(), {}
      for item = 1, 3 do
        local bits = neap.op.attention(neap.op.narrow(x, item, 1), 2):bits()
        for _, b in ipairs(bits) do alone[#alone + 1] = b end
      end
      numbers.same("items", all, alone)
    end)
  end)

  it("stands scores of a thousand", function()
    neap.scope(function()
      local value = numbers.wave({ 1, 66, 12 }, 1, 40)
      local x = gradcheck.tensor(value, true)
      local y = neap.op.attention(x, 1, false)
      numbers.close("output", reference.attention(value, 1, false).data, y:table(), 2e-4)
      neap.op.sum(y):backward()
      for _, g in ipairs(x:grad():table()) do assert(math.abs(g) < 1e6) end
    end)
  end)

  it("is not disturbed by what a longer call left behind", function()
    local function bits(length, scale)
      return neap.scope(function()
        local x = gradcheck.tensor(numbers.wave({ 1, length, 24 }, 1, scale), true)
        local y = neap.op.attention(x, 1, false)
        neap.op.sum(neap.op.multiply(y, y)):backward()
        return { y:bits(), x:grad():bits() }
      end)
    end
    local before = { bits(5), bits(65) }
    bits(130, 0 / 0)
    local after = { bits(5), bits(65) }
    for i = 1, 2 do
      for k = 1, 2 do numbers.same("bits", before[i][k], after[i][k]) end
    end
  end)

  it("needs memory that grows with T, not with its square", function()
    local C = require("neap.ffi").C
    local meter = ffi.new("neap_memory_stats")
    local function work(length)
      return neap.scope(function()
        local x = neap.tensor(numbers.wave({ 1, length, 24 }, 1).data, { 1, length, 24 },
          { requires_grad = true })
        x:grad()
        local id = gradcheck.cpu().id
        local live = C.neap_memory_live(id)
        C.neap_memory_restart(id, C.NEAP_METER_RUN)
        local y = neap.op.attention(x, 2)
        local saved = C.neap_tape_saved_bytes(C.neap_tape_selected())
        neap.op.sum(y):backward()
        C.neap_memory_get(id, meter)
        return { meter.peak_bytes[C.NEAP_METER_RUN] - live, saved }
      end)
    end
    local short, middle, long = work(256), work(512), work(1024)
    for i, what in ipairs({ "peak", "saved" }) do
      local first, second = middle[i] - short[i], long[i] - middle[i]
      assert(first > 0, what)
      assert(second <= 2.01 * first, ("%s: +%d bytes, then +%d"):format(what, first, second))
      assert(long[i] < 1024 * 1024 * 4, what .. " holds a T x T matrix")
    end
  end)

  it("refuses inputs that are not packed", function()
    for _, dims in ipairs({ { 2, 4, 8 }, { 4, 24 }, { 1, 2, 4, 24 } }) do
      gradcheck.fails("attention", "shape mismatch", function()
        return neap.op.attention(neap.zeros(dims), 2)
      end, "(" .. table.concat(dims, ", ") .. ")")
    end
  end)

  it("refuses heads that do not divide the width", function()
    for _, heads in ipairs({ 3, 0, -2, 1.5, 16, 0 / 0, 1e300 }) do
      gradcheck.fails("attention", "shape mismatch", function()
        return neap.op.attention(neap.zeros({ 1, 2, 24 }), heads)
      end, "width 8", "heads")
    end
  end)

  it("refuses integers, and a call without heads", function()
    gradcheck.fails("attention", "dtype", function()
      return neap.op.attention(neap.tensor({ 1, 2, 3 }, { 1, 1, 3 }, { dtype = "i32" }), 1)
    end, "i32")
    gradcheck.fails("attention", "invalid argument", function()
      return neap.op.attention(neap.zeros({ 1, 2, 24 }))
    end, "number of heads")
  end)
end)
