-- Writing files when the machine fails: every system call in turn, and kills at random moments.
local lfs = require("lfs")

local function write(path, contents)
  local file = assert(io.open(path, "wb"))
  file:write(contents)
  file:close()
end

-- stands between the library and the C library: call number n fails with that error, or (error 0)
-- writes only half
local SHIM = [[
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>
static int at, with, calls;
void fault_arm(int n, int error) { at = n; with = error; calls = 0; }
int fault_calls(void) { return calls; }
static int fails(void) { return at != 0 && ++calls == at; }
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL_OR(call) do { if (fails() && with) { errno = with; return -1; } return call; } \
  while (0)
ssize_t write(int, const void *, size_t);
int fsync(int); int close(int); int rename(const char *, const char *); int unlink(const char *);
int open(const char *p, int f, ...) {
  va_list a; va_start(a, f); int m = f & O_CREAT ? va_arg(a, int) : 0; va_end(a);
  FAIL_OR(REAL(open)(p, f, m));
}
int fsync(int f) { FAIL_OR(REAL(fsync)(f)); }
int rename(const char *a, const char *b) { FAIL_OR(REAL(rename)(a, b)); }
int unlink(const char *p) { FAIL_OR(REAL(unlink)(p)); }
int close(int f) {
  int failed = fails(); int r = REAL(close)(f);
  if (failed && with) { errno = with; return -1; }
  return r;
}
ssize_t write(int f, const void *d, size_t n) {
  if (fails()) { if (with) { errno = with; return -1; } n /= 2; }
  return REAL(write)(f, d, n);
}
]]

-- prints one line a fault: what, error number, call, whether the library was content, what is there
local CHILD = [[
local ffi = require("ffi")
local files = require("neap.files")
local lfs = require("lfs")
require("neap.ffi")
ffi.cdef("void fault_arm(int, int); int fault_calls(void);")
local directory = arg[1]
local path = directory .. "/file"
local OLD, NEW = ("old\n"):rep(1000), ("brand new\n"):rep(1000)
local function fault(what, call, n, error)
  for name in lfs.dir(directory) do
    if name ~= "." and name ~= ".." then os.remove(directory .. "/" .. name) end
  end
  files.write(path, OLD)
  ffi.C.fault_arm(n, error)
  local ok, err = pcall(call, path, NEW)
  local calls = ffi.C.fault_calls()
  ffi.C.fault_arm(0, 0)
  local text, others = files.read(path), 0
  for name in lfs.dir(directory) do
    if name ~= "." and name ~= ".." and name ~= "file" then others = others + 1 end
  end
  local state = text == OLD and "old" or text == NEW and "new" or text == OLD .. NEW and "both"
    or text:sub(1, #OLD) == OLD and "torn end" or "torn"
  print(what, error, n, ok and "ok" or err.kind, state, others)
  return calls >= n
end
for _, error in ipairs({ 0, 4, 5, 28 }) do
  local n = 1
  while fault("write", files.write, n, error) do n = n + 1 end
  n = 1
  while fault("append", files.append, n, error) do n = n + 1 end
end
]]

describe("files under faults", function()
  local directory

  before_each(function()
    directory = os.tmpname()
    os.remove(directory)
    lfs.mkdir(directory)
    lfs.mkdir(directory .. "/data")
  end)

  after_each(function()
    os.execute("rm -rf '" .. directory .. "'")
  end)

  local function rows()
    write(directory .. "/shim.c", SHIM)
    write(directory .. "/child.lua", CHILD)
    assert.equal(0, os.execute(string.format("unset LD_PRELOAD; cc -shared -fPIC -o '%s/shim.so' "
      .. "'%s/shim.c' -ldl", directory, directory)))
    local pipe = io.popen(string.format("LD_PRELOAD=\"$LD_PRELOAD %s/shim.so\" LUA_PATH='%s' "
      .. "luajit %s/child.lua %s/data", directory, package.path, directory, directory))
    local list = {}
    for line in pipe:lines() do
      local what, number, call, verdict, state, others =
        line:match("^(%a+)\t(%d+)\t(%d+)\t([^\t]+)\t([^\t]+)\t(%d+)$")
      list[#list + 1] = {
        what = what, error = tonumber(number), call = tonumber(call), verdict = verdict,
        state = state, others = tonumber(others), line = line,
      }
    end
    pipe:close()
    return list
  end

  it("leave the old file or the new one, whole, and say which", function()
    local n, n_refused = 0, 0
    for _, row in ipairs(rows()) do
      if row.what == "write" then
        n = n + 1
        if row.verdict == "ok" then
          assert.equal("new", row.state, row.line)
        else
          n_refused = n_refused + 1
          assert.equal("input/output", row.verdict, row.line)
          assert.is_truthy(row.state == "old" or row.state == "new", row.line)
        end
        -- EINTR and a short write are nobody's failure, but for calls that are never interrupted
        if row.error == 0 then assert.equal("ok", row.verdict, row.line) end
        assert.equal(0, row.others, row.line)
      end
    end
    assert.is_true(n >= 30 and n_refused >= 12, n .. " faults, " .. n_refused .. " refused")
  end)

  it("append all of the lines, or say that they did not", function()
    local n = 0
    for _, row in ipairs(rows()) do
      if row.what == "append" then
        n = n + 1
        if row.verdict == "ok" then
          assert.equal("both", row.state, row.line)
        else
          assert.equal("input/output", row.verdict, row.line)
          assert.are_not.equal("torn", row.state, row.line)
        end
      end
    end
    assert.is_true(n >= 12, n)
  end)

  it("are whole after a kill at any moment", function()
    local long = os.getenv("NEAP_LONG")
    write(directory .. "/child.lua", [[
      local files = require("neap.files")
      local n = 0
      while true do
        n = n + 1
        files.write(arg[1], string.rep(string.format("%09d\n", n), 20000))
      end]])
    local path = directory .. "/data/file"
    for i = 1, long and 200 or 10 do
      os.remove(path)
      os.execute(string.format("exec 2>&-; LUA_PATH='%s' luajit %s/child.lua %s & p=$!; "
        .. "for _ in $(seq 1000); do [ -e %s ] && break; sleep 0.01; done; "
        .. "sleep %.4f; kill -9 $p; wait $p", package.path, directory, path, path, i % 10 * 0.0017))
      local file = assert(io.open(path, "rb"))
      local text = file:read("*a")
      file:close()
      assert.is_true(text == text:sub(1, 10):rep(20000), "torn at kill " .. i)
    end
  end)
end)
