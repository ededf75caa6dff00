-- Loading: a library and declarations that were not made together are refused before anything runs.
local lfs = require("lfs")
local script = require("spec.support.script")

describe("loading the library", function()
  local directory, cdef

  setup(function()
    directory = script.directory()
    lfs.mkdir(directory .. "/neap")
    cdef = require("neap.cdef")
  end)
  teardown(function() script.remove(directory) end)

  -- what a process says that finds these declarations
  local function load_with(abi, sum)
    script.write(directory .. "/neap/cdef.lua", string.format(
      "return { abi = %d, sum = %s, text = [==[%s]==] }", abi, sum, cdef.text))
    local path = string.format("%s/?.lua;lua/?.lua;lua/?/init.lua", directory)
    script.write(directory .. "/load.lua", string.format("package.path = %q .. ';' .. "
      .. "package.path\nlocal ok, err = pcall(require, 'neap.ffi')\n"
      .. "print(ok and 'loaded' or tostring(err))", path))
    local pipe = io.popen("luajit " .. directory .. "/load.lua 2>&1")
    local text = pipe:read("*a")
    pipe:close()
    return text
  end

  it("takes declarations of the same header", function()
    assert.equal("loaded\n", load_with(cdef.abi, cdef.sum))
  end)

  it("refuses those of another version of the header, whose structs may differ", function()
    for _, sum in ipairs({ string.format("%.0f", cdef.sum + 1), "nil" }) do
      assert.matches("were made from different versions of src/neap%.h; run 'make'\n$",
        load_with(cdef.abi, sum))
    end
  end)

  it("refuses those of another ABI", function()
    assert.matches("has ABI %d+, these Lua files expect 999; run 'make'\n$",
      load_with(999, cdef.sum))
  end)
end)
