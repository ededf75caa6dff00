-- What every op refuses alike, at the C level: numbers of inputs, stale handles, other devices.
local neap = require("neap")
local native = require("neap.ffi")
local gradcheck = require("spec.support.gradcheck")

local C, ffi = native.C, native.ffi

-- a call that would pass, by op: inputs as dims ("i32" first for integers), attributes
local CALLS = {
  reshape = { { { 2, 3 } }, { 1, 6 } },
  narrow = { { { 2, 3 } }, { 0, 1 } },
  transpose = { { { 2, 3 } } },
  add = { { { 2, 3 }, { 3 } } },
  multiply = { { { 2, 3 }, { 3 } } },
  scale = { { { 2, 3 } }, { 2 } },
  gelu = { { { 2, 3 } } },
  relu = { { { 2, 3 } } },
  silu = { { { 2, 3 } } },
  layernorm = { { { 2, 3 }, { 3 }, { 3 } }, { 1e-5 } },
  rmsnorm = { { { 2, 3 }, { 3 } }, { 1e-5 } },
  embedding = { { { "i32", 2 }, { 4, 3 } } },
  dropout = { { { 2, 3 } }, { 0.5 } },
  linear = { { { 2, 3 }, { 4, 3 }, { 4 } } },
  matmul = { { { 2, 3 }, { 3, 4 } }, { 0, 0 } },
  attention = { { { 1, 2, 6 } }, { 1, 1 } },
  cross_entropy = { { { 2, 3 }, { "i32", 2 } } },
  sum = { { { 2, 3 } }, { -1 } },
  mean = { { { 2, 3 } }, { -1 } },
  subtract = { { { 2, 3 }, { 3 } } },
  sigmoid = { { { 2, 3 } } },
  tanh = { { { 2, 3 } } },
  select = { { { 2, 3 } }, { 1, 2 } },
  lstm_cell = { { { 2, 12 }, { 2, 3 } } },
  gru_cell = { { { 2, 9 }, { 2, 9 }, { 2, 3 } } },
  conv2d = { { { 1, 2, 3, 3 }, { 2, 2, 1, 1 }, { 2 } }, { 1, 0 } },
  batchnorm = { { { 4, 3 }, { 3 }, { 3 } }, { 1e-5 } },
  batchnorm_inference = { { { 4, 3 }, { 3 }, { 3 }, { 3 }, { 3 } }, { 1e-5 } },
  maxpool2d = { { { 1, 2, 4, 4 } }, { 2, 2, 0 } },
  avgpool2d = { { { 1, 2, 4, 4 } }, { 2, 2, 0 } },
}

local function message() return ffi.string(C.neap_last_error()) end

describe("every op", function()
  local device, other
  setup(function()
    device = gradcheck.cpu()
    local out = ffi.new("int[1]")
    native.check(C.neap_device_open("null", 0, out))
    other = out[0]
  end)
  teardown(function() native.check(C.neap_device_close(other)) end)

  local function tensor_id(on, dims)
    local list, dtype = ffi.new("double[8]"), C.NEAP_F32
    local n = 0
    for _, d in ipairs(dims) do
      if d == "i32" then
        dtype = C.NEAP_I32
      else
        list[n], n = d, n + 1
      end
    end
    local id = native.check(C.neap_tensor_new(on, dtype, n, list, -1))
    native.check(C.neap_tensor_fill(id, 1))
    return id
  end

  -- inputs of a call that passes, and a function that applies the op to the first n of them
  local function prepare(name)
    local call = assert(CALLS[name], name)
    local ids, attrs = ffi.new("double[8]"), ffi.new("double[8]", call[2] or {})
    for i, dims in ipairs(call[1]) do ids[i - 1] = tensor_id(device.id, dims) end
    local op = native.check(C.neap_op_find(name))
    return ids, #call[1], function(n) return C.neap_apply(op, n, ids, #(call[2] or {}), attrs) end
  end

  local function refused(code, found, name)
    assert.equal(code, found)
    assert.equal(name .. ":", message():match("^[%w_]+:"))
    assert(not message():find("\n"), message())
  end

  local names = {}
  for name in pairs(CALLS) do names[#names + 1] = name end
  table.sort(names)

  it("is in this spec", function()
    local n = 0
    while n < C.NEAP_N_OPS do
      assert(CALLS[ffi.string(C.neap_op_name(n))])
      n = n + 1
    end
    assert.equal(n, #names)
  end)

  for _, name in ipairs(names) do
    it("passes, and refuses too many inputs, stale ones and other devices': " .. name, function()
      neap.scope(function()
        local ids, n, apply = prepare(name)
        native.check(apply(n))
        local live = device:memory().live_bytes

        for i = n, 5 do ids[i] = ids[n - 1] end
        local needs_all = name ~= "linear" and name ~= "conv2d" -- their bias may be left out
        if needs_all and n > 1 then refused(C.NEAP_ERR_INVALID, apply(n - 1), name) end
        refused(C.NEAP_ERR_INVALID, apply(n + 1), name)
        refused(C.NEAP_ERR_INVALID, apply(6), name)
        for i = 0, n - 1 do
          local good = ids[i]
          for _, bad in ipairs({ 0, -1, 0.5, 1e300, 0 / 0, 2 ^ 53, good + 2 ^ 20 }) do
            ids[i] = bad
            refused(C.NEAP_ERR_STALE, apply(n), name)
            assert(message():find("input " .. i + 1, 1, true))
          end
          if n > 1 then
            ids[i] = tensor_id(other, CALLS[name][1][i + 1])
            refused(C.NEAP_ERR_DEVICE, apply(n), name)
          end
          ids[i] = good
        end
        assert.equal(live, device:memory().live_bytes)
        native.check(apply(n))

        local gone = ids[n - 1]
        C.neap_tensor_free(gone)
        refused(C.NEAP_ERR_STALE, apply(n), name)
      end)
    end)
  end

  it("has a number: others are refused", function()
    local ids = ffi.new("double[1]", 1)
    for _, op in ipairs({ -1, C.NEAP_N_OPS + 100000, 2147483647 }) do
      assert.equal(C.NEAP_ERR_NOT_FOUND, C.neap_apply(op, 1, ids, 0, nil))
    end
    assert.equal(C.NEAP_ERR_NOT_FOUND, C.neap_op_find("convolution"))
    assert(message():find("convolution", 1, true))
  end)
end)
