-- Every op called with what it cannot take: an error with a message, never a crash, never silence.
local neap = require("neap")
local native = require("neap.ffi")
local fail = require("neap.fail")

local C = native.C
local o = neap.op

-- arguments of a call that passes: a tensor of dims, a number, a flag or a list of dims
local CALLS = {
  reshape = { "tensor", "dims" },
  narrow = { "tensor", "number", "number" },
  transpose = { "tensor" },
  add = { "tensor", "tensor" },
  multiply = { "tensor", "tensor" },
  scale = { "tensor", "number" },
  gelu = { "tensor" },
  relu = { "tensor" },
  silu = { "tensor" },
  layernorm = { "tensor", "row", "row", "optional number" },
  rmsnorm = { "tensor", "row", "optional number" },
  embedding = { "ids", "tensor" },
  dropout = { "tensor", "share" },
  linear = { "tensor", "tensor", "optional row" },
  matmul = { "tensor", "tensor" },
  attention = { "packed", "number" },
  cross_entropy = { "tensor", "ids" },
  sum = { "tensor", "optional number" },
  mean = { "tensor", "optional number" },
  subtract = { "tensor", "tensor" },
  sigmoid = { "tensor" },
  tanh = { "tensor" },
  select = { "tensor", "number", "number" },
  lstm_cell = { "four gates", "tensor" },
  gru_cell = { "three gates", "three gates", "tensor" },
  conv2d = { "images", "filters", "optional row", "optional number", "optional number" },
  batchnorm = { "tensor", "row", "row", "optional number" },
  batchnorm_inference = { "tensor", "row", "row", "row", "row", "optional number" },
  maxpool2d = { "images", "number", "optional number", "optional number zero" },
  avgpool2d = { "images", "number", "optional number", "optional number zero" },
  global_avgpool2d = { "images" },
  flatten = { "tensor" },
}
-- written in Lua with other ops
local MADE = { global_avgpool2d = true, flatten = true }

local function arguments(device, kinds)
  local made, where = {}, { device = device }
  for i, kind in ipairs(kinds) do
    kind = kind:gsub("optional ", "")
    if kind == "tensor" then made[i] = neap.zeros({ 2, 2 }, where) end
    if kind == "row" then made[i] = neap.zeros({ 2 }, where) end
    if kind == "ids" then made[i] = neap.zeros({ 2 }, { device = device, dtype = "i32" }) end
    if kind == "packed" then made[i] = neap.zeros({ 1, 2, 6 }, where) end
    if kind == "four gates" then made[i] = neap.zeros({ 2, 8 }, where) end
    if kind == "three gates" then made[i] = neap.zeros({ 2, 6 }, where) end
    if kind == "images" then made[i] = neap.zeros({ 1, 2, 3, 3 }, where) end
    if kind == "filters" then made[i] = neap.zeros({ 2, 2, 1, 1 }, where) end
    if kind == "number" then made[i] = 1 end
    if kind == "number zero" then made[i] = 0 end
    if kind == "share" then made[i] = 0.5 end
    if kind == "dims" then made[i] = { 4 } end
  end
  return made
end

describe("every op", function()
  local device, null
  setup(function()
    device, null = neap.device("cpu", { budget = "1GiB" }), neap.device("null", { size = "1GiB" })
    neap.device("cpu")
  end)
  teardown(function()
    device:close()
    null:close()
    neap.device("cpu")
  end)

  local names = {}
  local n_made = 0
  for name in pairs(CALLS) do
    names[#names + 1] = name
    if MADE[name] then n_made = n_made + 1 end
  end
  table.sort(names)
  local n_tried = 0

  -- what a place may not hold; false where it may be left out
  local function wrong(kind)
    local freed = neap.zeros({ 2, 2 }, { device = device })
    freed:free()
    local values = { "text", true, false, print, coroutine.create(print), 0 / 0, -1e300 }
    values[#values + 1] = native.ffi.new("int[2]")
    if not kind:find("optional") then values[#values + 1] = "nil" end
    if kind:find("number") or kind == "share" or kind == "dims" then
      values[#values + 1] = neap.zeros({ 2 }, { device = device })
    end
    if kind == "dims" then
      for _, dims in ipairs({ { -1 }, { 0.5 }, { 3 }, { "x" }, { {} }, { 1, 1, 1, 1, 1, 1, 4 },
        { 4194305, 4194305, 211106198978564 } }) do
        values[#values + 1] = dims
      end
    else
      values[#values + 1] = {}
    end
    if not (kind:find("number") or kind == "share" or kind == "dims") then
      values[#values + 1] = 5
      values[#values + 1] = freed
      values[#values + 1] = neap.empty({ 2, 2 }, { device = device, dtype = "bf16" })
      values[#values + 1] = neap.zeros({ 2, 3, 4 }, { device = device })
    end
    return values
  end

  local function refused(name, args, n, what)
    local before = device:memory().n_tensors
    local ok, err = pcall(o[name], unpack(args, 1, n))
    n_tried = n_tried + 1
    if ok then error(("%s took %s"):format(name, what)) end
    local message = fail.message(err)
    assert(#message > 10 and #message < 300 and not message:find("\n"), message)
    if fail.is(err) then
      assert(message:find(name, 1, true) or message:find("tensor", 1, true), message)
    end
    assert.equal(before, device:memory().n_tensors)
  end

  -- what an op takes though another op would not; false leaves an eps out
  local function fits(name, place, value)
    if name == "scale" and type(value) == "number" and value == value then return true end
    if name:find("norm") and place == #CALLS[name] and value == false then return true end
    if not neap.is_tensor(value) or not value:alive() then return false end
    if value:dtype() == "bf16" then
      return name == "reshape" or name == "narrow" or name == "flatten" or name == "select"
    end
    return #value:dims() == 3 and place == 1
      and ({ gelu = 1, relu = 1, silu = 1, scale = 1, dropout = 1, transpose = 1, narrow = 1,
        sum = 1, mean = 1, flatten = 1, sigmoid = 1, tanh = 1, select = 1 })[name] ~= nil
  end

  it("of neap.op is here", function()
    for name in pairs(o) do assert(name == "define" or CALLS[name], name) end
    assert.equal(C.NEAP_N_OPS, #names - n_made)
  end)

  for _, name in ipairs(names) do
    it("refuses each wrong argument: " .. name, function()
      neap.scope(function()
        local kinds = CALLS[name]
        o[name](unpack(arguments(device, kinds)))
        for place, kind in ipairs(kinds) do
          for k, value in ipairs(wrong(kind)) do
            local args = arguments(device, kinds)
            if value == "nil" then value = nil end
            args[place] = value
            if not fits(name, place, value) then
              refused(name, args, #kinds, ("%s as argument %d (wrong value %d)"):format(
                tostring(value), place, k))
            end
          end
          if neap.is_tensor(arguments(device, kinds)[place]) then
            local args = arguments(device, kinds)
            local elsewhere = arguments(null, kinds)
            args[place] = elsewhere[place]
            local alone = true
            for i in ipairs(kinds) do
              alone = alone and (i == place or not neap.is_tensor(args[i]))
            end
            if not alone then refused(name, args, #kinds, "a tensor of another device") end
          end
        end
        refused(name, {}, 0, "nothing")
        o[name](unpack(arguments(device, kinds)))
      end)
    end)
  end

  it("was tried with hundreds of wrong calls", function()
    assert(n_tried >= 400, n_tried)
  end)
end)
