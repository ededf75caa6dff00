-- Writing and reading safetensors files that are right.
local failure_of = require("spec.support.failure_of")
local make = require("spec.support.safetensors")
local neap = require("neap")
local safetensors = require("neap.safetensors")
local script = require("spec.support.script")
local ffi_neap = require("neap.ffi")
local C, ffi = ffi_neap.C, ffi_neap.ffi

describe("a safetensors file", function()
  local directory, path, null

  setup(function()
    null = neap.device("null")
    neap.device("cpu")
  end)
  before_each(function()
    directory = script.directory()
    path = directory .. "/state.safetensors"
  end)
  after_each(function() script.remove(directory) end)

  -- a tensor of these 32-bit (or 16-bit) patterns
  local function of_bits(dims, dtype, patterns)
    local t = neap.empty(dims, { dtype = dtype })
    local host = ffi.new(dtype == "bf16" and "uint16_t[?]" or "uint32_t[?]", #patterns, patterns)
    ffi_neap.check(C.neap_tensor_write(t.id, host, ffi.sizeof(host)))
    return t
  end

  local function bits(t)
    if t:dtype() ~= "bf16" then return t:bits() end
    local host = ffi.new("uint16_t[?]", t:numel())
    ffi_neap.check(C.neap_tensor_read(t.id, host, ffi.sizeof(host)))
    local list = {}
    for i = 1, t:numel() do list[i] = host[i - 1] end
    return list
  end

  local function sample()
    return {
      { name = "f32", tensor = of_bits({ 2, 4 }, "f32", { 0x7fc00001, 0xffc12345, 0x7f800001,
        0x7f800000, 0xff800000, 0x80000000, 1, 0x3f800000 }) },
      { name = "bf16", tensor = of_bits({ 3 }, "bf16", { 0x7fc1, 0x8000, 0x3f80 }) },
      { name = "i32", tensor = of_bits({ 1, 2, 1 }, "i32", { 0x80000000, 0x7fffffff }) },
      { name = "scalar", tensor = of_bits({}, "f32", { 0x40490fdb }) },
      { name = "empty", tensor = neap.empty({ 3, 0, 2 }) },
      { name = "six", tensor = of_bits({ 1, 1, 1, 1, 1, 2 }, "f32", { 5, 6 }) },
    }
  end

  it("gives back every bit, shape and dtype, and the order", function()
    local list = sample()
    safetensors.save(path, list, { format = "neap" })
    local file = safetensors.open(path)
    local names = {}
    for i, item in ipairs(list) do
      names[i] = item.name
      assert.same(item.tensor:dims(), file:dims(item.name))
      assert.equal(item.tensor:dtype(), file:dtype(item.name))
      assert.equal(C.neap_tensor_dtype(item.tensor.id),
        C.neap_safetensors_dtype(file.handle, i - 1))
      local into = neap.empty(item.tensor:dims(), { dtype = item.tensor:dtype() })
      file:read_into(item.name, into)
      assert.same(bits(item.tensor), bits(into))
    end
    assert.same(names, file:names())
    assert.same({ format = "neap" }, file:metadata())
    file:close()
    make.check_valid(make.read(path), safetensors.open(path))
  end)

  it("streams tensors larger than its buffer, at every place in it", function()
    local list = {}
    for i, n in ipairs({ 262143, 1, 262144, 3, 262145, 700001, 5, 0, 524288 }) do
      local t = neap.empty({ n })
      if n > 0 then C.neap_tensor_fill_normal(t.id, 0, 1, 7, i) end
      list[i] = { name = "t" .. i, tensor = t }
    end
    safetensors.save(path, list)
    local file = safetensors.open(path)
    for _, item in ipairs(list) do
      local into = neap.full(item.tensor:dims(), -1)
      file:read_into(item.name, into)
      local hex = ffi.new("char[2][33]")
      for k, t in ipairs({ item.tensor, into }) do
        C.neap_tensor_hash(1, ffi.new("double[1]", t.id), hex[k - 1])
      end
      assert.equal(ffi.string(hex[0]), ffi.string(hex[1]))
    end
    file:close()
  end)

  it("keeps any name and metadata that UTF-8 can write", function()
    local names = { "", " ", "a\"b\\c/d", "\1\31\n\t\r\8\12", "\127", "é€😀", ("n"):rep(5000),
      "dtype", "__metadata", "__metadata__ ", "\194\128", "\223\191", "\224\160\128",
      "\237\159\191", "\238\128\128", "\239\191\191", "\240\144\128\128", "\244\143\191\191" }
    local list, metadata = {}, {}
    for i, name in ipairs(names) do
      list[i] = { name = name, tensor = neap.tensor({ i }) }
      metadata[name] = name .. i
    end
    metadata.__metadata__ = "a key like any other"
    safetensors.save(path, list, metadata)
    local file = safetensors.open(path)
    assert.same(names, file:names())
    assert.same(metadata, file:metadata())
    for i, name in ipairs(names) do
      local into = neap.zeros({ 1 })
      file:read_into(name, into)
      assert.equal(i, into:item())
    end
    file:close()
    make.check_valid(make.read(path), safetensors.open(path))
  end)

  it("may write its strings with any escape", function()
    local text = [["\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\uD83D\ude00\uFFFF\udbff\udfff~"]]
    make.write(path, make.file('{"__metadata__":{' .. text .. ":" .. text .. "}}"))
    local file = safetensors.open(path)
    local plain = '"\\/\8\12\n\r\tAé€😀\239\191\191\244\143\191\191~'
    assert.same({ [plain] = plain }, file:metadata())
    file:close()
  end)

  it("may have a header larger than the buffer it is written through", function()
    local list, metadata = {}, { long = ("é\1"):rep(1e6), k = "v" }
    for i = 1, 20000 do list[i] = { name = "t" .. i, tensor = neap.full({ 1 }, i) } end
    safetensors.save(path, list, metadata)
    local file, into = safetensors.open(path), neap.zeros({ 1 })
    assert.same(metadata, file:metadata())
    for i = 1, 20000, 1111 do
      file:read_into("t" .. i, into)
      assert.equal(i, into:item())
    end
    file:close()
    for _, item in ipairs(list) do item.tensor:free() end
  end)

  it("of tensors on the null device holds zeros", function()
    local t = neap.full({ 2, 3 }, 7, { device = null })
    safetensors.save(path, { { name = "a", tensor = t } })
    local file, into = safetensors.open(path), neap.full({ 2, 3 }, 1)
    file:read_into("a", into)
    file:read_into("a", t)
    assert.same({ 0, 0, 0, 0, 0, 0 }, into:table())
    file:close()
    t:free()
  end)

  it("is not begun when its data is too large for the format", function()
    local t = neap.empty({ 2 ^ 51 }, { device = null })
    local huge = neap.empty({ 2 ^ 52 }, { device = null })
    failure_of("size overflow", safetensors.save, path, { { name = "a", tensor = t },
      { name = "b", tensor = huge } })
    assert.same({}, make.listing(directory))
    t:free()
    huge:free()
  end)

  it("is the same bytes for the same contents, its header padded to 8", function()
    local metadata = {}
    for i = 1, 50 do metadata["key " .. i] = tostring(i) end
    safetensors.save(path, sample(), metadata)
    safetensors.save(path .. "2", sample(), metadata)
    local bytes = make.read(path)
    assert.equal(bytes, make.read(path .. "2"))
    assert.equal(0, bytes:byte(1) % 8)
    safetensors.save(path, {})
    assert.equal(make.length(8) .. "{}      ", make.read(path))
    assert.same({}, safetensors.open(path):names())
  end)

  it("may have its entries in any order and white space between them", function()
    local e = make.entry
    make.write(path, make.file("{\n\t" .. table.concat({ e("c", "I32", "[ 1 ]", "[ 12 , 16 ]"),
      e("e", "F32", "[0]", "[4,4]"), e("a", "I32", "[]", "[0,4]"), e("z", "F32", "[0]", "[16,16]"),
      e("b", "I32", "[2]", "[4,12]") }, " ,\r\n") .. " }  ", "aaaabbbbBBBBcccc"))
    local file = safetensors.open(path)
    assert.same({ "c", "e", "a", "z", "b" }, file:names())
    local into = neap.zeros({ 2 }, { dtype = "i32" })
    file:read_into("b", into)
    assert.same({ 0x62626262, 0x42424242 }, into:bits())
    file:close()
  end)
end)
