-- Saving and reading state without memory, without room on the disk, and killed at any moment.
local make = require("spec.support.safetensors")
local neap = require("neap")
local safetensors = require("neap.safetensors")
local script = require("spec.support.script")
local ffi_neap = require("neap.ffi")
local C = ffi_neap.C

describe("safetensors", function()
  local directory, path

  setup(function() neap.device("cpu") end)
  before_each(function()
    directory = script.directory()
    os.execute("mkdir '" .. directory .. "/data'")
    path = directory .. "/data/state"
  end)
  after_each(function() script.remove(directory) end)

  -- makes allocation k = 1, 2, 3 … fail, and all after it where from_then_on, until the call passes
  local function fail_each(from_then_on, call, check)
    for k = 1, 1000 do
      ffi_neap.check(C.neap_memory_fail(k, from_then_on and -1 or 1))
      local ok, err = pcall(call)
      C.neap_memory_fail(0, 0)
      if ok then return k - 1 end
      assert.equal("out of memory", err.kind, tostring(err))
      check()
    end
    error("it never passed")
  end

  it("leave nothing behind when an allocation fails", function()
    local old, list, stats = { { name = "a", tensor = neap.tensor({ 1 }) } }, {}, neap.device("cpu")
    for i = 1, 40 do list[i] = { name = "t" .. i, tensor = neap.full({ 9 * i }, i) } end
    list[41] = { name = "large", tensor = neap.full({ 600000 }, 7) }
    safetensors.save(path, old, {})
    local before, n_tensors = make.read(path), stats:memory().n_tensors
    local descriptors = make.n_descriptors()
    local function unaltered()
      assert.equal(before, make.read(path))
      assert.same({ "state" }, make.listing(directory .. "/data"))
      assert.equal(descriptors, make.n_descriptors())
      assert.equal(n_tensors, stats:memory().n_tensors)
    end
    local metadata, n = {}, 0
    for i = 1, 50 do metadata["k" .. i] = "v" .. i end
    for _, from_then_on in ipairs({ false, true }) do
      n = n + fail_each(from_then_on, function()
        safetensors.save(path, list, metadata)
      end, unaltered)
      safetensors.save(path, old, {})
    end
    safetensors.save(path, list, metadata)
    before = make.read(path)
    -- entries in another order need a table more
    local mixed = make.file("{" .. make.entry("b", "F32", "[2]", "[4,12]") .. ","
      .. make.entry("a", "F32", "[1]", "[0,4]") .. "}", 12)
    make.write(directory .. "/mixed", mixed)
    local into = neap.full({ 600000 }, 5)
    n_tensors = n_tensors + 1
    for _, from_then_on in ipairs({ false, true }) do
      for _, other in ipairs({ path, directory .. "/mixed" }) do
        n = n + fail_each(from_then_on, function() safetensors.open(other):close() end, unaltered)
      end
      local file = safetensors.open(path)
      descriptors = make.n_descriptors()
      n = n + fail_each(from_then_on, function() file:read_into("large", into) end, unaltered)
      file:close()
      descriptors = make.n_descriptors()
    end
    assert.equal(7, into:table()[600000])
    assert.is_true(n >= 30, n)
  end)

  it("leave nothing behind when there is no handle for a piece of a large tensor", function()
    local large = neap.full({ 600000 }, 7)
    local into = neap.full({ 600000 }, 5)
    safetensors.save(path, { { name = "large", tensor = large } })
    local file, before = safetensors.open(path), make.read(path)
    local calls = {
      function() safetensors.save(path, { { name = "other", tensor = large } }) end,
      function() file:read_into("large", into) end,
    }
    for _, call in ipairs(calls) do
      local handles = {}
      C.neap_memory_fail(1, -1)
      while true do
        local ok, handle = pcall(large.detach, large)
        if not ok then break end
        handles[#handles + 1] = handle
      end
      assert.is_true(fail_each(false, call, function()
        assert.equal(before, make.read(path))
        assert.same({ "state" }, make.listing(directory .. "/data"))
      end) >= 2)
      for _, handle in ipairs(handles) do handle:free() end
      safetensors.save(path, { { name = "large", tensor = large } })
    end
    assert.equal(7, into:table()[600000])
    file:close()
  end)

  it("keep the old file when no more bytes can be written", function()
    safetensors.save(path, { { name = "a", tensor = neap.tensor({ 1 }) } })
    local before = make.read(path)
    make.write(directory .. "/child.lua", make.STATE .. [[
      local ok, err = pcall(safetensors.save, arg[1], state(1))
      print(ok, err.kind, err.message)]])
    -- files may have 2,000 blocks of 512 or 1,024 bytes
    local pipe = io.popen(string.format("trap '' XFSZ; ulimit -f 2000; LUA_PATH='%s' luajit "
      .. "'%s/child.lua' '%s'", package.path, directory, path))
    local line = pipe:read("*l")
    pipe:close()
    assert.is_truthy(line:match("^false\tinput/output\tcannot write '.*/state': File too large$"),
      line)
    assert.equal(before, make.read(path))
    assert.same({ "state" }, make.listing(directory .. "/data"))
  end)

  it("are whole after a kill at any moment", function()
    make.write(directory .. "/child.lua", make.STATE .. [[
      local value, list = 0, state(0)
      while true do
        value = value + 1
        for _, item in ipairs(list) do item.tensor:fill(value) end
        safetensors.save(arg[1], list, { value = tostring(value) })
      end]])
    local into, sizes, torn = {}, { 3, 700000, 1, 262144, 0, 300001 }, 0
    for i, n in ipairs(sizes) do into[i] = neap.zeros({ n }) end
    local seen = {}
    for i = 1, os.getenv("NEAP_LONG") and 200 or 30 do
      os.execute(string.format("exec 2>&-; LUA_PATH='%s' luajit %s/child.lua %s & p=$!; "
        .. "for _ in $(seq 1000); do [ -e %s ] && break; sleep 0.01; done; "
        .. "sleep %.4f; kill -9 $p; wait $p", package.path, directory, path, path, i % 30 * 0.0013))
      local file = safetensors.open(path)
      local value = tonumber(file:metadata().value)
      seen[value] = true
      for k, t in ipairs(into) do
        t:fill(-1)
        file:read_into("t" .. k, t)
        for _, x in ipairs(t:table()) do if x ~= value then torn = torn + 1 end end
      end
      file:close()
      assert.equal(0, torn, "torn at kill " .. i)
      os.execute(string.format("rm -f '%s' '%s'.tmp-*", path, path))
    end
    assert.is_true(next(seen) ~= nil)
  end)
end)
