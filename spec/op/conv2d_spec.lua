-- conv2d: each output is a weighted sum over a window of all channels of the image.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")
local reference = require("spec.support.reference_images")
local C = require("neap.ffi").C

describe("neap.op.conv2d", function()
  setup(gradcheck.cpu)

  local wave = numbers.wave

  local function case(x, weight, bias, stride, padding)
    return {
      name = ("conv2d of (%s) by (%s), stride %d, padding %d"):format(table.concat(x.dims, ", "),
        table.concat(weight.dims, ", "), stride, padding),
      run = function(t, w, b) return neap.op.conv2d(t, w, b, stride, padding) end,
      reference = function(t, w, b) return reference.conv2d(t, w, b, stride, padding) end,
      inputs = { x, weight, bias },
    }
  end

  it("gives PyTorch's values and gradients", function()
    gradcheck.matches_torch("conv2d", function(t, attrs)
      return neap.op.conv2d(t[1], t[2], t[3], attrs[1], attrs[2])
    end)
  end)

  it("agrees with the reference on random shapes, with and without a bias", function()
    gradcheck.many(60, function(r, i)
      local c, o, kh, kw = r.int(1, 3), r.int(1, 3), r.int(1, 3), r.int(1, 3)
      local x = r.value({ r.int(1, 3), c, r.int(3, 5), r.int(3, 5) })
      local weight = r.value({ o, c, kh, kw })
      return case(x, weight, i % 2 == 0 and r.value({ o }) or nil, r.int(1, 3), r.int(0, 2))
    end)
  end)

  it("agrees for 1x1 and 3x3 weights, strides 1 and 2, paddings 0 and 1, one channel and odd ones",
    function()
      for _, k in ipairs({ 1, 3 }) do
        for stride = 1, 2 do
          for padding = 0, 1 do
            for _, channels in ipairs({ { 1, 1 }, { 1, 5 }, { 5, 1 }, { 3, 5 } }) do
              local c, o = channels[1], channels[2]
              gradcheck.check(case(wave({ 2, c, 3, 4 }, 1), wave({ o, c, k, k }, 2),
                wave({ o }, 3), stride, padding))
            end
          end
        end
      end
    end)

  it("agrees where there are no images, channels or outputs", function()
    for _, d in ipairs({ { 0, 2, 3 }, { 2, 0, 3 }, { 2, 2, 0 }, { 0, 0, 0 } }) do
      for _, k in ipairs({ 1, 2 }) do
        local x, w = wave({ d[1], d[2], 3, 3 }, 1), wave({ d[3], d[2], k, k }, 2)
        gradcheck.check(case(x, w, wave({ d[3] }, 3), 1, 0))
        gradcheck.check(case(x, w, nil, 1, 0))
      end
    end
  end)

  it("agrees where padding is wider than the image", function()
    gradcheck.check(case(wave({ 1, 2, 1, 2 }, 1), wave({ 2, 2, 2, 3 }, 2), wave({ 2 }, 3), 2, 4))
    gradcheck.check(case(wave({ 1, 1, 2, 1 }, 1), wave({ 1, 1, 1, 1 }, 2), nil, 3, 4))
  end)

  -- windows whose columns fill more than one tile: rows of one image, and groups of images
  local function large(is_leaf, n, c, side, o, k, stride, padding)
    local x, w = wave({ n, c, side, side + 3 }, 1), wave({ o, c, k, k }, 2, 0.1)
    local y, dx, dw, db = neap.scope(function()
      local t, u = gradcheck.tensor(x, true), gradcheck.tensor(w, true)
      local b = gradcheck.tensor(wave({ o }, 3), true)
      -- gradients of leaves are added to, others are new
      local function input(leaf) return is_leaf and leaf or neap.op.scale(leaf, 1) end
      local out = neap.op.conv2d(input(t), input(u), input(b), stride, padding)
      neap.op.sum(neap.op.multiply(out, gradcheck.tensor(wave(out:dims(), 11)))):backward()
      return { dims = out:dims(), data = out:table() }, t:grad():table(), u:grad():table(),
        b:grad():table()
    end)
    local expected = reference.conv2d(x, w, wave({ o }, 3), stride, padding)
    assert.same(expected.dims, y.dims)
    numbers.close("output", expected.data, y.data, 3e-6)
    return { x = x, w = w, y = y, dx = dx, dw = dw, db = db, cotangent = wave(y.dims, 11) }
  end

  -- <dw, w> = <dy, y - bias> and <dx, x> likewise: conv2d is linear in each
  local function check_large(r)
    local function dot(a, b)
      local sum, size = 0, 0
      for i = 1, #a do sum, size = sum + a[i] * b[i], size + math.abs(a[i] * b[i]) end
      return sum, size
    end
    local total, size = dot(r.cotangent.data, r.y.data)
    local biases = dot(r.db, wave({ #r.db }, 3).data)
    for what, found in pairs({ dw = dot(r.dw, r.w.data), dx = dot(r.dx, r.x.data) }) do
      assert(math.abs(total - biases - found) < 1e-5 * size, what)
    end
  end

  it("agrees where columns are made for some rows of an image at a time", function()
    check_large(large(false, 2, 40, 40, 3, 3, 1, 1)) -- 360 * 43 floats a row: 8 rows
    check_large(large(true, 1, 40, 41, 2, 3, 2, 0))
  end)

  it("agrees where columns are made for some images at a time", function()
    check_large(large(true, 9, 32, 17, 3, 3, 1, 1)) -- 288 * 340 floats an image: one
    check_large(large(false, 19, 16, 8, 4, 3, 1, 1)) -- 144 * 88: ten
  end)

  it("passes NaN on to the windows that hold it alone", function()
    neap.scope(function()
      local x = neap.zeros({ 1, 1, 4, 4 })
      local numbers_in = x:table()
      numbers_in[1] = 0 / 0
      local y = neap.op.conv2d(neap.tensor(numbers_in, { 1, 1, 4, 4 }),
        neap.full({ 1, 1, 2, 2 }, 1))
      for i, v in ipairs(y:table()) do assert.equal(i == 1, v ~= v) end
    end)
  end)

  -- bytes that forward leaves on the tape beyond those of the output, and the peaks
  local function bytes(device, wants, k, stride)
    return neap.with_device(device, function()
      return neap.scope(function()
        local x = neap.full({ 3, 4, 9, 8 }, 1, { requires_grad = wants.x })
        local w = neap.full({ 5, 4, k, k }, 1, { requires_grad = wants.w })
        local b = neap.full({ 5 }, 1, { requires_grad = wants.b })
        for _, t in ipairs({ x, w, b }) do pcall(t.zero_grad, t) end
        local tape = C.neap_tape_new()
        local before = C.neap_tape_select(tape)
        C.neap_memory_restart(device.id, C.NEAP_METER_ACTION)
        local live = C.neap_memory_live(device.id)
        local y = neap.op.conv2d(x, w, b, stride)
        local forward = C.neap_memory_peak(device.id, C.NEAP_METER_ACTION) - live
        local saved = C.neap_tape_saved_bytes(tape)
        local loss = neap.op.sum(y)
        C.neap_memory_restart(device.id, C.NEAP_METER_ACTION)
        live = C.neap_memory_live(device.id)
        loss:backward()
        local backward = C.neap_memory_peak(device.id, C.NEAP_METER_ACTION) - live
        C.neap_tape_select(before)
        C.neap_tape_free(tape)
        return { forward = forward, saved = saved, backward = backward }
      end)
    end)
  end

  it("saves x for the weight's gradient, the weight for x's, nothing for the bias", function()
    local device = neap.device("null", { size = 0 })
    local x, w = 3 * 4 * 9 * 8 * 4, math.ceil(5 * 4 * 9 * 4 / 64) * 64
    assert.equal(x + w, bytes(device, { x = true, w = true, b = true }, 3, 1).saved)
    assert.equal(x, bytes(device, { w = true, b = true }, 3, 1).saved)
    assert.equal(w, bytes(device, { x = true }, 3, 1).saved)
    assert.equal(0, bytes(device, { b = true }, 3, 1).saved)
    device:close()
    gradcheck.cpu()
  end)

  it("takes scratch for a few columns, and none where x is its own columns", function()
    local device = neap.device("null", { size = 0 })
    local function rounded(elements) return math.ceil(elements * 4 / 64) * 64 end
    local wide = bytes(device, { x = true, w = true, b = true }, 3, 1)
    assert.equal(rounded(3 * 5 * 7 * 6) + rounded(3 * 36 * 7 * 6), wide.forward)
    local direct = bytes(device, { x = true, w = true, b = true }, 1, 1)
    assert.equal(rounded(3 * 5 * 9 * 8), direct.forward)
    local strided = bytes(device, { x = true, w = true, b = true }, 1, 2)
    assert.equal(rounded(3 * 5 * 5 * 4) + rounded(3 * 4 * 5 * 4), strided.forward)
    device:close()
    gradcheck.cpu()
  end)

  it("takes the same bytes on null and cpu", function()
    local null, cpu = neap.device("null", { size = 0 }), neap.device("cpu")
    for _, wants in ipairs({ { x = true, w = true, b = true }, { x = true }, { w = true },
      { b = true } }) do
      for _, k in ipairs({ 1, 3 }) do
        for stride = 1, 2 do
          assert.same(bytes(null, wants, k, stride), bytes(cpu, wants, k, stride))
        end
      end
    end
    null:close()
    gradcheck.cpu()
  end)

  local function refused(kind, x, w, b, stride, padding, ...)
    local words = { ... }
    gradcheck.fails("conv2d", kind, function()
      return neap.op.conv2d(neap.zeros(x), neap.zeros(w), b and neap.zeros(b), stride, padding)
    end, unpack(words))
  end

  it("refuses images and weights that do not fit, saying both shapes", function()
    for _, w in ipairs({ { 3, 4, 3, 3 }, { 3, 3, 3 }, { 3, 2, 3, 3, 1 }, { 3, 2, 0, 3 } }) do
      refused("shape mismatch", { 1, 2, 5, 5 }, w, nil, 1, 0, "(1, 2, 5, 5)",
        "(" .. table.concat(w, ", ") .. ")")
    end
    for _, x in ipairs({ { 2, 5, 5 }, { 1, 2, 0, 5 }, { 1, 2, 5, 0 }, {} }) do
      refused("shape mismatch", x, { 3, 2, 3, 3 }, nil, 1, 0, "(" .. table.concat(x, ", ") .. ")")
    end
    refused("shape mismatch", { 1, 2, 2, 5 }, { 3, 2, 3, 3 }, nil, 1, 0, "(1, 2, 2, 5)",
      "(3, 2, 3, 3)", "padding 0")
    refused("shape mismatch", { 1, 2, 5, 5 }, { 3, 2, 3, 3 }, { 2 }, 1, 0, "bias", "(2)", "(3)")
  end)

  it("refuses strides and paddings that are no whole numbers, or too large", function()
    for _, stride in ipairs({ 0, -1, 1.5, 0 / 0, 1 / 0, 2 ^ 21 }) do
      refused("invalid argument", { 1, 2, 5, 5 }, { 3, 2, 3, 3 }, nil, stride, 0, "stride")
    end
    for _, padding in ipairs({ -1, 0.5, 0 / 0, 1 / 0, 2 ^ 21 }) do
      refused("invalid argument", { 1, 2, 5, 5 }, { 3, 2, 3, 3 }, nil, 1, padding, "padding")
    end
    refused("invalid argument", { 1, 2, 5, 5 }, { 3, 2, 3, 3 }, nil, "1", 0, "stride")
    refused("invalid argument", { 1, 2, 5, 5 }, { 3, 2, 3, 3 }, nil, 1, {}, "padding")
  end)

  it("refuses integers, and sizes that overflow", function()
    gradcheck.fails("conv2d", "dtype", function()
      return neap.op.conv2d(neap.zeros({ 1, 1, 2, 2 }, { dtype = "i32" }),
        neap.zeros({ 1, 1, 1, 1 }))
    end, "input 1", "i32")
    local device = neap.device("null", { size = 0 })
    neap.with_device(device, function()
      -- columns of 2^46 floats a row, 2^20 wide
      local ok, err = pcall(neap.scope, function()
        return neap.op.conv2d(neap.empty({ 1, 2 ^ 20, 1, 1 }), neap.empty({ 1, 2 ^ 20, 2 ^ 12,
          2 ^ 12 }), nil, 1, 2 ^ 20)
      end)
      assert(not ok and err.kind == "size overflow", tostring(err))
    end)
    collectgarbage()
    device:close()
    gradcheck.cpu()
  end)
end)
