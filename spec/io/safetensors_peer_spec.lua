-- Our files read by the reference implementation and its files read by us. NEAP_PYTHON names a
-- python that has its package.
local dkjson = require("dkjson")
local make = require("spec.support.safetensors")
local neap = require("neap")
local safetensors = require("neap.safetensors")
local script = require("spec.support.script")
local ffi_neap = require("neap.ffi")
local C, ffi = ffi_neap.C, ffi_neap.ffi

local python = os.getenv("NEAP_PYTHON") or "python3"
local missing = os.execute(string.format("'%s' -c 'import safetensors' >&- 2>&-", python)) ~= 0
  and "no python package safetensors: name a python that has it by NEAP_PYTHON"

describe("python's safetensors and neap", function()
  local directory, path

  setup(function() neap.device("cpu") end)
  before_each(function()
    directory = script.directory()
    path = directory .. "/peer.safetensors"
  end)
  after_each(function() script.remove(directory) end)

  -- the lines that python prints
  local function peer(verb, paths)
    -- a sanitizer that is preloaded is not for python
    local pipe = io.popen(string.format("env -u LD_PRELOAD '%s' spec/support/safetensors_peer.py "
      .. "%s %s", python, verb, paths))
    local lines = {}
    for line in pipe:lines() do lines[#lines + 1] = line end
    pipe:close()
    return lines
  end

  local function hex(t)
    local bytes = t:numel() * (t:dtype() == "bf16" and 2 or 4)
    local host = ffi.new("uint8_t[?]", math.max(bytes, 1))
    ffi_neap.check(C.neap_tensor_read(t.id, host, bytes))
    local digits = {}
    for i = 1, bytes do digits[i] = string.format("%02x", host[i - 1]) end
    return table.concat(digits)
  end

  local function both(name, fn)
    it(name, function()
      if missing then
        pending(missing)
        return
      end
      fn()
    end)
  end

  both("read the same from a file of ours", function()
    local t = neap.empty({ 3, 5 })
    C.neap_tensor_fill_normal(t.id, 0, 1, 3, 4)
    local half = neap.empty({ 2 }, { dtype = "bf16" })
    ffi_neap.check(C.neap_tensor_write(half.id, ffi.new("uint16_t[2]", 0x7fc1, 0x3f80), 4))
    local list = {
      { name = "odd", tensor = neap.tensor({ 1 }, { 1, 1, 1 }) }, { name = "h", tensor = half },
      { name = "w", tensor = t }, { name = "empty", tensor = neap.empty({ 2, 0 }) },
      { name = "i", tensor = neap.tensor({ -2147483647, 5 }, { 2 }, { dtype = "i32" }) },
      { name = "scalar", tensor = neap.tensor({ 0 / 0 }, {}) },
      { name = 'é"\\\n\1', tensor = neap.tensor({ 2 }) },
    }
    local metadata = { format = "neap", text = '"\\\n\1\127€😀', [""] = "" }
    safetensors.save(path, list, metadata)
    local read = dkjson.decode(peer("read", path)[1])
    for _, item in ipairs(list) do
      local theirs = read.tensors[item.name]
      assert.equal(item.tensor:dtype():upper(), theirs.dtype)
      assert.same(item.tensor:dims(), { unpack(theirs.shape) })
      assert.equal(hex(item.tensor), theirs.hex)
      read.tensors[item.name] = nil
    end
    assert.is_nil(next(read.tensors))
    for key, value in pairs(metadata) do assert.equal(value, read.metadata[key]) end
  end)

  both("read the same from a file of python's", function()
    peer("write", path)
    local file = safetensors.open(path)
    local found = {}
    for _, name in ipairs(file:names()) do found[name] = file:dtype(name) end
    assert.same({ w = "f32", i = "i32", h = "bf16", scalar = "f32", empty = "f32", double = "F64",
      ['é "\\\n'] = "U8" }, found)
    assert.same({ format = "np", q = '"\n€' }, file:metadata())
    local wanted = { w = "0000803f010080ff0100c07f00000080", i = "ffffff7f00000080",
      h = "803fc17f0080", scalar = "db0f4940", empty = "" }
    for name, digits in pairs(wanted) do
      local into = neap.empty(file:dims(name), { dtype = file:dtype(name) })
      file:read_into(name, into)
      assert.equal(digits, hex(into))
    end
    assert.same({ 0, 3 }, file:dims("empty"))
    assert.same({}, file:dims("scalar"))
    assert.is_false(pcall(file.read_into, file, "double", neap.zeros({ 1 })))
    file:close()
  end)

  both("agree on damaged files: what python refuses, neap refuses", function()
    local sample, n_header = make.sample()
    local ours, n = {}, 0
    for byte = 1, 8 + n_header do
      for number = 0, 7 do
        n = n + 1
        ours[n] = make.try(string.format("%s/%05d", directory, n), make.flip(sample, byte, number))
      end
    end
    local theirs = peer("judge", directory .. "/?????")
    assert.equal(n, #theirs)
    local n_both = 0
    for i = 1, n do
      local agree = not ours[i] or theirs[i] == "1"
      assert.is_true(agree, "neap alone opens flip " .. i)
      n_both = n_both + (ours[i] and 1 or 0)
    end
    assert.is_true(n_both > 20)
  end)
end)
