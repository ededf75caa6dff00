-- Reading from safetensors files that are right: what fits where, and how long a file is open.
local failure_of = require("spec.support.failure_of")
local make = require("spec.support.safetensors")
local neap = require("neap")
local safetensors = require("neap.safetensors")
local script = require("spec.support.script")
local ffi_neap = require("neap.ffi")
local C, ffi = ffi_neap.C, ffi_neap.ffi

describe("a safetensors file", function()
  local directory, path

  setup(function() neap.device("cpu") end)
  before_each(function()
    directory = script.directory()
    path = directory .. "/state.safetensors"
  end)
  after_each(function() script.remove(directory) end)

  it("lists tensors it cannot read", function()
    make.write(path, make.file("{" .. make.entry("x", "F64", "[2]", "[0,16]") .. ","
      .. make.entry("q", "F4", "[2,3]", "[16,19]") .. "}", 19))
    local file = safetensors.open(path)
    assert.equal("F64", file:dtype("x"))
    assert.equal("F4", file:dtype("q"))
    assert.same({ 2, 3 }, file:dims("q"))
    assert.equal(C.NEAP_ERR_UNSUPPORTED, C.neap_safetensors_dtype(file.handle, 0))
    assert.equal(string.format("tensor 'x' of '%s' has dtype F64, expected F32, BF16 or I32", path),
      ffi.string(C.neap_last_error()))
    assert.equal(19 - 16, C.neap_safetensors_bytes(file.handle, 1))
    local into = neap.full({ 2 }, 5)
    local message = failure_of("dtype", file.read_into, file, "x", into)
    assert.equal(string.format("tensor 'x' of '%s' has dtype F64, expected F32", path), message)
    assert.same({ 5, 5 }, into:table())
    file:close()
  end)

  it("refuses another shape, dtype or name, and leaves the tensor as it was", function()
    safetensors.save(path, { { name = "w", tensor = neap.tensor({ 1, 2, 3, 4, 5, 6 }, { 2, 3 }) } })
    local file = safetensors.open(path)
    local into = neap.full({ 3, 2 }, 9)
    assert.equal(string.format("tensor 'w' of '%s' has shape (2, 3), expected (3, 2)", path),
      failure_of("shape mismatch", file.read_into, file, "w", into))
    failure_of("shape mismatch", file.read_into, file, "w", neap.zeros({ 6 }))
    failure_of("shape mismatch", file.read_into, file, "w", neap.zeros({ 2, 3, 1 }))
    failure_of("dtype", file.read_into, file, "w", neap.zeros({ 2, 3 }, { dtype = "i32" }))
    assert.is_truthy(failure_of("not found", file.read_into, file, "v", into):find("'v'", 1, true))
    failure_of("invalid argument", file.read_into, file, "w", 5)
    failure_of("stale handle", function()
      local gone = neap.zeros({ 2, 3 })
      gone:free()
      file:read_into("w", gone)
    end)
    assert.same({ 9, 9, 9, 9, 9, 9 }, into:table())
    assert.is_true(file:has("w"))
    assert.is_false(file:has("v"))
    file:close()
  end)

  it("is refused to be read after close, and to be closed twice is harmless", function()
    safetensors.save(path, { { name = "f32", tensor = neap.tensor({ 1 }) } })
    local file = safetensors.open(path)
    file:close()
    file:close()
    for _, method in ipairs({ "names", "metadata", "dims", "dtype", "read_into", "has" }) do
      assert.is_truthy(failure_of("wrong state", file[method], file, "f32"):find(path, 1, true))
    end
  end)

  it("gives its descriptor back when nobody refers to it", function()
    safetensors.save(path, { { name = "f32", tensor = neap.tensor({ 1 }) } })
    collectgarbage()
    local before = make.n_descriptors()
    for _ = 1, 20 do safetensors.open(path) end
    collectgarbage()
    assert.equal(before, make.n_descriptors())
  end)

  it("that was cut since it was opened is not read", function()
    safetensors.save(path, { { name = "a", tensor = neap.tensor({ 1, 2 }) } })
    local file, into = safetensors.open(path), neap.full({ 2 }, 5)
    os.execute(string.format("truncate -s -1 '%s'", path))
    assert.equal(string.format("cannot read tensor 'a' of '%s': the file became shorter since it "
      .. "was opened", path), failure_of("input/output", file.read_into, file, "a", into))
    assert.same({ 5, 5 }, into:table())
    file:close()
  end)

  it("keeps what it had open when it is written anew", function()
    safetensors.save(path, { { name = "a", tensor = neap.tensor({ 1 }) } })
    local old, into = safetensors.open(path), neap.zeros({ 1 })
    safetensors.save(path, { { name = "a", tensor = neap.tensor({ 2 }) } })
    old:read_into("a", into)
    assert.equal(1, into:item())
    old:close()
  end)
end)
