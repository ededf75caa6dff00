-- The Makefile and the set-up, tried on a small tree of their own.
local lfs = require("lfs")

local function read(path)
  local file = assert(io.open(path, "rb"))
  local contents = file:read("*a")
  file:close()
  return contents
end

local function write(path, contents)
  local file = assert(io.open(path, "wb"))
  file:write(contents)
  file:close()
end

describe("building", function()
  local root = lfs.currentdir()
  local tree

  -- what an outer make or a sanitizer set for the specs is not meant for the inner one
  local function run(command)
    local pipe = io.popen(string.format("cd '%s' && unset MAKEFLAGS MFLAGS MAKELEVEL LD_PRELOAD "
      .. "NEAP_LIBRARY CFLAGS LDFLAGS CPPFLAGS; { %s; } 2>&1; echo \"status $?\"", tree, command))
    local output = pipe:read("*a")
    pipe:close()
    local text, status = output:match("^(.*)status (%d+)\n$")
    return text, tonumber(status)
  end

  local function make(arguments)
    return run("make SETUP=0 " .. (arguments or ""))
  end

  local function compiled(output)
    local n = 0
    for _ in output:gmatch("CC src/") do n = n + 1 end
    return n
  end

  before_each(function()
    tree = os.tmpname()
    os.remove(tree)
    for _, part in ipairs({ "", "/src", "/src/core", "/lua", "/lua/neap", "/examples", "/.ci" }) do
      lfs.mkdir(tree .. part)
    end
    write(tree .. "/Makefile", read(root .. "/Makefile"))
    write(tree .. "/.ci/setup", read(root .. "/.ci/setup"))
    write(tree .. "/src/neap.h", read(root .. "/src/neap.h"))
    write(tree .. "/src/core/one.c", '#include "neap.h"\nint neap_abi(void) { return NEAP_ABI; }\n')
    write(tree .. "/src/core/two.c", '#include "neap.h"\nint neap_version(void) { return 1; }\n')
    write(tree .. "/lua/neap/x.lua", "return 1\n")
    write(tree .. "/examples/train.lua", "return 1\n")
  end)

  after_each(function()
    os.execute("rm -rf '" .. tree .. "'")
  end)

  it("compiles every source, links, and makes the declarations for LuaJIT", function()
    local output, status = make()
    assert.equal(0, status, output)
    assert.equal(2, compiled(output))
    local cdef = dofile(tree .. "/build/neap/cdef.lua")
    assert.equal(tonumber(read(root .. "/src/neap.h"):match("NEAP_ABI = (%d+)")), cdef.abi)
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

  describe("set-up", function()
    -- a machine made of the named commands; the scripts' own tools come from the real one
    local function machine(commands)
      lfs.mkdir(tree .. "/bin")
      for _, tool in ipairs({ "sh", "dirname", "cat", "mkdir", "grep", "head", "tail", "env",
        "touch" }) do
        run("ln -s \"$(command -v " .. tool .. ")\" bin/" .. tool)
      end
      for name, body in pairs(commands) do
        write(tree .. "/bin/" .. name, "#!/bin/sh\n" .. body .. "\n")
      end
      run("chmod +x bin/*; chmod +x .ci/setup")
    end

    local function setup(what)
      return run("PATH='" .. tree .. "/bin' sh .ci/setup " .. (what or "test"))
    end

    local ALL = 'shift 3; for p in "$@"; do printf "installed=%s " "$p"; done'
    local BUT_BUSTED = 'shift 3; for p in "$@"; do [ "$p" = lua-busted ] || [ -e installed ] && '
      .. 'continue; printf "installed=%s " "$p"; done; '
      .. '[ -e installed ] && for p in "$@"; do printf "installed=%s " "$p"; done; exit 0'

    it("prints nothing where nothing is missing, and installs nothing", function()
      machine({ ["dpkg-query"] = ALL, ["apt-get"] = "touch called", id = "echo 0" })
      assert.same({ "", 0 }, { setup() })
      assert.is_nil(lfs.attributes(tree .. "/called", "mode"))
    end)

    it("asks for exactly what is missing", function()
      machine({ ["dpkg-query"] = BUT_BUSTED, id = "echo 0",
        ["apt-get"] = 'echo "$@" >>asked; touch installed' })
      local output, status = setup()
      assert.equal(0, status, output)
      assert.equal("neap set-up: installing lua-busted (log: build/setup.log)\n", output)
      assert.matches("install %-%-no%-install%-recommends lua%-busted\n$", read(tree .. "/asked"))
    end)

    it("fetches the package lists once when the first try fails", function()
      machine({ ["dpkg-query"] = BUT_BUSTED, id = "echo 0", ["apt-get"] = 'echo "$@" >>asked; '
        .. 'case "$*" in *update*) touch updated;; *) [ -e updated ] && touch installed;; esac' })
      local _, status = setup()
      assert.equal(0, status)
      assert.matches("install.*\n.*update\n.*install.*\n$", read(tree .. "/asked"))
    end)

    local function fails(commands, expected)
      machine(commands)
      local output, status = setup()
      assert.equal(1, status, output)
      assert.matches(expected, output)
      return output
    end

    it("says what failed where apt-get cannot install", function()
      fails({ ["dpkg-query"] = BUT_BUSTED, id = "echo 0",
        ["apt-get"] = 'echo "E: Unable to locate package"; exit 100' },
        "apt%-get could not install lua%-busted %(E: Unable to locate package%)")
    end)

    it("says so where there is no apt-get", function()
      local output = fails({ id = "echo 0" }, "no apt%-get here .*SETUP=0\n$")
      assert.is_nil(output:find("\n."))
    end)

    it("says so where there is neither root nor sudo", function()
      fails({ ["dpkg-query"] = BUT_BUSTED, id = "echo 1000", ["apt-get"] = "touch called" },
        "not root and no sudo .* apt%-get install lua%-busted\n$")
      assert.is_nil(lfs.attributes(tree .. "/called", "mode"))
    end)

    it("does not wait for a password where nobody can type one", function()
      fails({ ["dpkg-query"] = BUT_BUSTED, id = "echo 1000", ["apt-get"] = "touch called",
        sudo = "exit 1" }, "sudo wants a password .* run: sudo apt%-get install lua%-busted\n$")
    end)

    it("goes through sudo where that asks nothing", function()
      machine({ ["dpkg-query"] = BUT_BUSTED, id = "echo 1000", ["apt-get"] = "touch installed",
        sudo = 'printf "%s\\n" "$*" >>sudone; shift; "$@"' })
      local _, status = setup()
      assert.equal(0, status)
      assert.matches("%-n env DEBIAN_FRONTEND=noninteractive apt%-get", read(tree .. "/sudone"))
    end)

    it("takes a stamp of another list for none", function()
      machine({ ["dpkg-query"] = BUT_BUSTED, id = "echo 0", ["apt-get"] = "touch installed" })
      lfs.mkdir(tree .. "/build")
      write(tree .. "/build/setup-test", "gcc make\n")
      assert.matches("installing lua%-busted", (setup()))
    end)
  end)
end)
