-- The set-up (.ci/setup), tried on a machine made of the commands that a spec names.
local lfs = require("lfs")
local build_tree = require("spec.support.build_tree")
local read, write, run = build_tree.read, build_tree.write, build_tree.run

describe("set-up", function()
  local tree
  before_each(function() tree = build_tree.make() end)
  after_each(build_tree.remove)

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
