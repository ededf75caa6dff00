-- Sums are taken in blocks of a fixed size: the number of threads changes no bit of them.
local neap = require("neap")
local gradcheck = require("spec.support.gradcheck")
local numbers = require("spec.support.numbers")

describe("an op on two threads", function()
  setup(gradcheck.cpu)
  after_each(function() neap.threads(1) end)

  local wave = numbers.wave

  -- bits of the output and of each float input's gradient
  local function bits(threads, inputs, run)
    neap.threads(threads)
    return neap.scope(function()
      local tensors, all = {}, {}
      for k, input in ipairs(inputs) do
        tensors[k] = gradcheck.tensor(input, input.dtype ~= "i32" or nil)
      end
      local y = run(unpack(tensors))
      all[1] = y:bits()
      neap.op.mean(neap.op.multiply(y, gradcheck.tensor(wave(y:dims(), 11)))):backward()
      for k, input in ipairs(inputs) do
        if input.dtype ~= "i32" then all[#all + 1] = tensors[k]:grad():bits() end
      end
      return all
    end)
  end

  local function same(name, inputs, run)
    it("has one thread's bits: " .. name, function()
      local one, two = bits(1, inputs, run), bits(2, inputs, run)
      for i = 1, #one do numbers.same(("%s, tensor %d"):format(name, i), one[i], two[i]) end
    end)
  end

  local big, row = wave({ 1031, 131 }, 1), wave({ 131 }, 2, 0.5, 1)

  for _, name in ipairs({ "gelu", "relu", "silu", "transpose", "sum", "mean", "sigmoid",
    "tanh" }) do
    same(name, { big }, function(x) return neap.op[name](x) end)
  end
  for dim = 1, 2 do
    same("sum over dimension " .. dim, { big }, function(x) return neap.op.sum(x, dim) end)
  end
  for _, name in ipairs({ "add", "multiply", "subtract" }) do
    same(name, { big, row }, function(a, b) return neap.op[name](a, b) end)
  end
  same("layernorm", { big, row, wave({ 131 }, 3) }, function(x, g, b)
    return neap.op.layernorm(x, g, b, 1e-5)
  end)
  same("rmsnorm", { big, row }, function(x, g) return neap.op.rmsnorm(x, g, 1e-5) end)
  same("embedding", { numbers.random(1).ids({ 3000 }, 50), wave({ 50, 67 }, 1) }, function(i, w)
    return neap.op.embedding(i, w)
  end)
  same("cross_entropy", { big, numbers.random(2).ids({ 1031 }, 131) }, function(x, t)
    return neap.op.cross_entropy(x, t)
  end)
  for _, causal in ipairs({ true, false }) do
    same("attention, causal " .. tostring(causal), { wave({ 2, 130, 96 }, 1) }, function(x)
      return neap.op.attention(x, 4, causal)
    end)
  end
  same("lstm_cell", { wave({ 331, 4 * 131 }, 1, 3), wave({ 331, 131 }, 2) }, function(gates, c)
    local h, c_new = neap.op.lstm_cell(gates, c)
    return h * c_new
  end)
  same("gru_cell", { wave({ 331, 393 }, 1, 3), wave({ 331, 393 }, 2), wave({ 331, 131 }, 3) },
    neap.op.gru_cell)
  same("linear of one row", { wave({ 1, 700 }, 1), wave({ 300, 700 }, 2), wave({ 300 }, 3) },
    function(x, w, b) return neap.op.linear(x, w, b) end)
  same("linear to one column", { wave({ 900, 300 }, 1), wave({ 1, 300 }, 2), wave({ 1 }, 3) },
    function(x, w, b) return neap.op.linear(x, w, b) end)

  -- images: the loops around the products, and products of one row, which are not the library's
  local images, channels = wave({ 5, 7, 33, 31 }, 1), wave({ 7 }, 2, 0.5, 1)
  same("batchnorm", { images, channels, wave({ 7 }, 3) }, function(x, g, b)
    return (neap.op.batchnorm(x, g, b))
  end)
  same("batchnorm_inference", { images, channels, wave({ 7 }, 3), wave({ 7 }, 4), channels },
    function(...) return neap.op.batchnorm_inference(...) end)
  for _, name in ipairs({ "maxpool2d", "avgpool2d" }) do
    same(name, { images }, function(x) return neap.op[name](x, 3, 2, 1) end)
  end
  for stride = 1, 2 do
    same("conv2d to one channel, stride " .. stride, { images, wave({ 1, 7, 3, 3 }, 2),
      wave({ 1 }, 3) }, function(x, w, b) return neap.op.conv2d(x, w, b, stride, 1) end)
  end

  -- conv2d cuts its products into blocks of one thread each; OpenBLAS does not allow that
  local ffi_neap = require("neap.ffi")
  if ffi_neap.ffi.string(ffi_neap.C.neap_gemm_name()):find("oneDNN", 1, true) then
    for name, shapes in pairs({
      ["small images"] = { { 9, 64, 8, 8 }, { 64, 64, 3, 3 }, 1, 1 },
      ["rows of large images"] = { { 2, 20, 40, 50 }, { 9, 20, 3, 3 }, 1, 1 },
      ["a single block"] = { { 4, 64, 16, 16 }, { 64, 64, 1, 1 }, 1, 0 },
    }) do
      local x, w = wave(shapes[1], 1), wave(shapes[2], 2, 0.1)
      same("conv2d of " .. name, { x, w, wave({ shapes[2][1] }, 3) }, function(t, u, b)
        return neap.op.conv2d(t, u, b, shapes[3], shapes[4])
      end)
    end
  else
    pending("has one thread's bits: conv2d to several channels (OpenBLAS cuts them by threads)")
  end

  it("leaves a process that ends with status 0", function()
    local code = ("package.path = [[%s]] local neap = require([[neap]]) "
      .. "neap.device([[cpu]]) neap.threads(2) neap.op.gelu(neap.zeros({ 300000 })) "
      .. "os.exit(0, true)"):format(package.path)
    for _ = 1, 10 do
      local status = os.execute(("luajit -e '%s'"):format(code))
      assert(status == 0 or status == true, tostring(status))
    end
  end)
end)
