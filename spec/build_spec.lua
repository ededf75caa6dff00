-- The Makefile, tried on a small tree of its own.
local lfs = require("lfs")
local build_tree = require("spec.support.build_tree")
local read, write, run = build_tree.read, build_tree.write, build_tree.run

describe("building", function()
  local root = lfs.currentdir()
  local tree

  local function make(arguments)
    return run("make SETUP=0 " .. (arguments or ""))
  end

  local function compiled(output)
    local n = 0
    for _ in output:gmatch("CC src/") do n = n + 1 end
    return n
  end

  before_each(function() tree = build_tree.make() end)
  after_each(build_tree.remove)

  it("compiles every source, links, and makes the declarations for LuaJIT", function()
    local output, status = make()
    assert.equal(0, status, output)
    assert.equal(2, compiled(output))
    local cdef = dofile(tree .. "/build/neap/cdef.lua")
    assert.equal(tonumber(read(root .. "/src/neap.h"):match("NEAP_ABI = (%d+)")), cdef.abi)
    assert.equal(tonumber((run("cksum <src/neap.h"):match("^%d+"))), cdef.sum)
    assert.matches("int neap_abi%(void%);", cdef.text)
    assert.is_nil(cdef.text:find("#", 1, true))
  end)

  it("does nothing the second time", function()
    make()
    local output, status = make()
    assert.equal(0, status)
    assert.equal("", (output:gsub("make: Nothing to be done for 'all'%.\n", "")))
  end)

  it("says in one line what was found and what is left out", function()
    local output = make("GEMM=onednn")
    assert.matches("neap: products %w+; processor [^\n]+cuda plug%-in left out[^\n]*\n", output)
  end)

  it("builds all again after a change of flags, and keeps its own flags", function()
    make()
    local output = make("V=1 CFLAGS=-DEXTRA=1")
    local _, n = output:gsub("%-std=c11 [^\n]*%-DEXTRA=1 [^\n]*%-c src/core/", "")
    assert.equal(2, n, output)
  end)

  it("builds again what includes a changed header", function()
    make()
    write(tree .. "/src/core/own.h", "enum { ONE = 1 };\n")
    write(tree .. "/src/core/two.c", '#include "own.h"\n#include "neap.h"\n'
      .. "int neap_version(void) { return ONE; }\n")
    assert.equal(1, compiled((make())))
    run("touch -d '1 minute' src/core/own.h")
    assert.equal(1, compiled((make())))
  end)

  it("links again when a source goes", function()
    make()
    os.remove(tree .. "/src/core/two.c")
    local output = make()
    assert.equal(0, compiled(output))
    assert.matches("LD build/libneap.so", output)
    assert.is_nil(run("nm -D build/libneap.so"):find("neap_version"))
  end)

  it("keeps the library that was there when a link breaks off half-way", function()
    make()
    write(tree .. "/cc", '#!/bin/sh\ncase "$*" in *-shared*) for word; do '
      .. '[ "$last" = -o ] && echo half >"$word"; last=$word; done; exit 1;; esac\nexec cc "$@"\n')
    run("chmod +x cc; touch -d '1 minute' src/core/two.c; sha256sum build/libneap.so >sum")
    local output, status = make("CC=./cc")
    assert.equal(2, status, output)
    assert.same({ "build/libneap.so: OK\n", 0 }, { run("sha256sum -c sum") })
    output, status = make()
    assert.equal(0, status, output)
    assert.matches("T neap_version\n", run("nm -D --defined-only build/libneap.so"))
  end)

  it("gives a new library to who comes, and leaves the old one to who has it", function()
    make()
    write(tree .. "/old.lua", [[
      local ffi = require("ffi")
      ffi.cdef("int neap_version(void);")
      local old = ffi.load("./build/libneap.so")
      assert(os.execute("sed -i 's/return 1/return 2/' src/core/two.c && make SETUP=0") == 0)
      print("old", old.neap_version())
    ]])
    local output = run("luajit old.lua")
    assert.matches("LD build/libneap.so", output)
    assert.matches("old%\t1\n", output)
    write(tree .. "/new.lua", "local ffi = require('ffi') ffi.cdef('int neap_version(void);') "
      .. "print('new', ffi.load('./build/libneap.so').neap_version())")
    assert.matches("new%\t2\n", (run("luajit new.lua")))
  end)

  it("stops at a warning", function()
    write(tree .. "/src/core/two.c",
      '#include "neap.h"\nint neap_version(void) { int x; return 1; }\n')
    local output, status = make()
    assert.equal(2, status)
    assert.matches("unused variable", output)
  end)

  it("shows only what the header declares", function()
    write(tree .. "/src/core/two.c", '#include "neap.h"\nint neap__hidden(void);\n'
      .. "int neap__hidden(void) { return 1; }\n")
    make()
    local symbols = run("nm -D --defined-only build/libneap.so")
    assert.matches("T neap_abi\n", symbols)
    assert.is_nil(symbols:find("neap__hidden"))
  end)

  it("makes portable code when asked", function()
    assert.is_nil(make("PORTABLE=1 V=1"):find("-march=native", 1, true))
  end)

  it("takes OpenBLAS where oneDNN's header is missing, and says so", function()
    write(tree .. "/cc", '#!/bin/sh\nif [ "$1 $2" = "-E -" ]; then '
      .. 'grep -q dnnl.h && exit 1; exit 0; fi\nexec cc "$@"\n')
    run("chmod +x cc")
    local output = make("CC=./cc V=1")
    if output:find("neither oneDNN nor OpenBLAS") then
      pending("OpenBLAS is not installed")
      return
    end
    assert.matches("dnnl%.h is not here, so products run on OpenBLAS", output)
    assert.matches("%-DNEAP_GEMM_OPENBLAS [^\n]*%-c", output)
    assert.matches("%-lopenblas", output)
  end)

  it("names the choices of a wrong setting", function()
    local output, status = make("GEMM=mkl")
    assert.equal(2, status)
    assert.matches("GEMM=mkl is not known; expected onednn or openblas", output)
  end)

  it("names a compiler that is not there", function()
    assert.matches("no C compiler 'nonsense' found", (make("CC=nonsense")))
  end)

  it("installs below DESTDIR and PREFIX, and takes all of it away again", function()
    local output, status = make("install PREFIX=/opt/neap DESTDIR=" .. tree .. "/to")
    assert.equal(0, status, output)
    local files = run("cd to && find . -type f | sort")
    assert.equal("./opt/neap/include/neap.h\n./opt/neap/lib/libneap.so\n"
      .. "./opt/neap/share/lua/5.1/neap/cdef.lua\n./opt/neap/share/lua/5.1/neap/x.lua\n"
      .. "./opt/neap/share/neap/examples/train.lua\n", files)
    make("uninstall PREFIX=/opt/neap DESTDIR=" .. tree .. "/to")
    assert.equal("", (run("cd to && find . -type f")))
  end)

  it("lists its targets and cleans up", function()
    assert.matches("make test", (make("help")))
    make()
    make("clean")
    assert.is_nil(lfs.attributes(tree .. "/build", "mode"))
  end)
end)
