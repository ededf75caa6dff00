-- What cannot be saved, and calls of the C functions that no Lua module would make.
local failure_of = require("spec.support.failure_of")
local make = require("spec.support.safetensors")
local neap = require("neap")
local safetensors = require("neap.safetensors")
local script = require("spec.support.script")
local ffi_neap = require("neap.ffi")
local C, ffi = ffi_neap.C, ffi_neap.ffi

describe("saving safetensors", function()
  local directory, path, one

  setup(function()
    neap.device("cpu")
    one = neap.tensor({ 1 })
  end)
  before_each(function()
    directory = script.directory()
    path = directory .. "/state.safetensors"
  end)
  after_each(function() script.remove(directory) end)

  -- what, kind, list and metadata, what the sentence has to say
  local cases = {
    { "a name twice", "duplicate", function()
      return { { name = "a", tensor = one }, { name = "b", tensor = one },
        { name = "a", tensor = one } }
    end, "tensor name 'a' is there twice" },
    { "the name __metadata__", "invalid argument", function()
      return { { name = "__metadata__", tensor = one } }
    end },
    { "a name that is no UTF-8", "invalid argument", function()
      return { { name = "ok", tensor = one }, { name = "a\255", tensor = one } }
    end, "tensor name 2, 'a?', is not valid UTF-8" },
    { "a name with a surrogate", "invalid argument", function()
      return { { name = "\237\160\128", tensor = one } }
    end },
    { "a name with a zero byte", "invalid argument", function()
      return { { name = "a\0b", tensor = one } }
    end },
    { "a name that is a number", "invalid argument", function()
      return { { name = 5, tensor = one } }
    end },
    { "no tensor", "invalid argument", function() return { { name = "a" } } end },
    { "an item that is no table", "invalid argument", function() return { "a" } end },
    { "no list", "invalid argument", function() return "a" end },
    { "a freed tensor", "stale handle", function()
      local gone = neap.tensor({ 1 })
      gone:free()
      return { { name = "a", tensor = gone } }
    end },
    { "metadata that is a number", "invalid argument", function() return {}, { step = 3 } end },
    { "a metadata key that is a number", "invalid argument", function() return {}, { "v" } end },
    { "metadata that is no UTF-8", "invalid argument", function()
      return {}, { k = "\192\128" }
    end, "metadata value 1, '??', is not valid UTF-8" },
    { "a metadata key that is no UTF-8", "invalid argument", function()
      return {}, { ["\240\128\128\128"] = "v" }
    end },
    { "metadata with a zero byte", "invalid argument", function() return {}, { k = "\0" } end },
    { "metadata that is no table", "invalid argument", function() return {}, "k" end },
    { "10,001 metadata keys", "invalid argument", function()
      local metadata = {}
      for i = 1, 10001 do metadata["k" .. i] = "" end
      return {}, metadata
    end },
  }
  for _, case in ipairs(cases) do
    it("refuses " .. case[1] .. " and leaves the old file", function()
      make.write(path, "old")
      local message = failure_of(case[2], function() safetensors.save(path, case[3]()) end)
      assert.is_truthy(message:find(case[4] or "", 1, true), message)
      assert.is_nil(message:find("[%z\1-\31]"), message)
      assert.equal("old", make.read(path))
      assert.same({ "state.safetensors" }, make.listing(directory))
    end)
  end

  it("refuses more header than it would read again", function()
    local long = { name = ("n"):rep(20e6), tensor = one }
    local metadata = { k = ("v"):rep(80e6) }
    assert.is_truthy(failure_of("invalid argument", safetensors.save, path, { long }, metadata)
      :find("100000000", 1, true))
    assert.same({}, make.listing(directory))
  end)

  it("names a path that cannot be written", function()
    local nowhere = directory .. "/none/state"
    assert.is_truthy(failure_of("input/output", safetensors.save, nowhere, {})
      :find(nowhere, 1, true))
    assert.is_truthy(failure_of("input/output", safetensors.save, directory, {})
      :find(directory, 1, true))
    local long = directory .. "/" .. ("x"):rep(250)
    assert.is_truthy(failure_of("input/output", safetensors.save, long, {}):find("xxx", 1, true))
    -- the system takes it, the temp file's name is too long
    long = directory .. ("/."):rep((4090 - #directory) / 2)
    assert.is_truthy(failure_of("input/output", safetensors.save, long, {})
      :find("cannot write", 1, true))
    failure_of("invalid argument", safetensors.save, "", {})
    failure_of("invalid argument", safetensors.save, "a\0b", {})
    failure_of("invalid argument", safetensors.save, nil, {})
    assert.same({}, make.listing(directory))
  end)

  it("replaces a link and leaves what it leads to", function()
    local target = make.write(directory .. "/target", "not mine")
    os.execute(string.format("ln -s '%s' '%s'", target, path))
    safetensors.save(path, { { name = "a", tensor = one } })
    assert.equal("not mine", make.read(target))
    assert.same({ "a" }, safetensors.open(path):names())
  end)

  it("makes the file of whom the umask lets", function()
    safetensors.save(path, {})
    local pipe = io.popen(string.format("stat -c %%a '%s'; umask", path))
    local mode, mask = pipe:read("*l", "*l")
    pipe:close()
    local bit = require("bit")
    assert.equal(bit.band(tonumber("666", 8), bit.bnot(tonumber(mask, 8))), tonumber(mode, 8))
  end)

  it("is checked in C for arguments that are missing", function()
    local INVALID = C.NEAP_ERR_INVALID
    local out = ffi.new("neap_safetensors *[1]")
    assert.equal(INVALID, C.neap_safetensors_save(nil, 0, nil, nil, 0, nil, nil))
    assert.equal(INVALID, C.neap_safetensors_save(path, -1, nil, nil, 0, nil, nil))
    assert.equal(INVALID, C.neap_safetensors_save(path, 1, nil, nil, 0, nil, nil))
    assert.equal(INVALID, C.neap_safetensors_save(path, 0, nil, nil, 1, nil, nil))
    assert.equal(INVALID, C.neap_safetensors_save(path, 1000001, nil, nil, 0, nil, nil))
    assert.equal(INVALID, C.neap_safetensors_save(path, 1, ffi.new("const char *[1]"),
      ffi.new("double[1]", one.id), 0, nil, nil))
    assert.equal(INVALID, C.neap_safetensors_open(nil, out))
    assert.equal(INVALID, C.neap_safetensors_open("", out))
    assert.equal(INVALID, C.neap_safetensors_open(path, nil))
    C.neap_safetensors_close(nil)
    safetensors.save(path, { { name = "a", tensor = one } })
    local file = safetensors.open(path)
    for _, h in ipairs({ false, file.handle }) do
      h = h or nil
      for _, i in ipairs({ -1, 1, 2 ^ 31 - 1 }) do
        assert.is_true(C.neap_safetensors_name(h, i) == nil)
        assert.is_true(C.neap_safetensors_dtype_name(h, i) == nil)
        assert.equal(INVALID, C.neap_safetensors_dtype(h, i))
        assert.equal(INVALID, C.neap_safetensors_n_dims(h, i))
        assert.equal(INVALID, C.neap_safetensors_dim(h, i, 0))
        assert.equal(INVALID, C.neap_safetensors_bytes(h, i))
        assert.equal(INVALID, C.neap_safetensors_read(h, i, one.id))
        assert.is_true(C.neap_safetensors_metadata_key(h, i) == nil)
      end
      assert.is_true(C.neap_safetensors_metadata(h, "k") == nil)
      assert.is_true(C.neap_safetensors_metadata(h, nil) == nil)
      assert.equal(INVALID, C.neap_safetensors_find(h, nil))
      C.neap_safetensors_name(h, 2 ^ 31 - 1)
    end
    assert.equal("safetensors: tensor 2147483647, expected an open file and 0..0",
      ffi.string(C.neap_last_error()))
    assert.equal(INVALID, C.neap_safetensors_count(nil))
    assert.equal(INVALID, C.neap_safetensors_dim(file.handle, 0, -1))
    assert.equal(INVALID, C.neap_safetensors_dim(file.handle, 0, 1))
    assert.is_true(C.neap_safetensors_read(file.handle, 0, 12345) < 0)
    file:close()
  end)
end)
