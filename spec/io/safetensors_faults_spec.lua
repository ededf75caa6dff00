-- Saving and reading state when the machine fails: every system call in turn.
local make = require("spec.support.safetensors")
local script = require("spec.support.script")

-- stands between the library and the C library: call number n fails with that error; 0: a write or
-- read does half; -1: a read finds the file's end
local SHIM = [[
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
static int at, with, calls;
void fault_arm(int n, int error) { at = n; with = error; calls = 0; }
int fault_calls(void) { return calls; }
static int fails(void) { return at != 0 && ++calls == at; }
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL_OR(call) do { if (fails() && with > 0) { errno = with; return -1; } return call; } \
  while (0)
int open(const char *p, int f, ...) {
  va_list a; va_start(a, f); int m = f & O_CREAT ? va_arg(a, int) : 0; va_end(a);
  FAIL_OR(REAL(open)(p, f, m));
}
int fstat(int f, struct stat *s) { FAIL_OR(REAL(fstat)(f, s)); }
int fsync(int f) { FAIL_OR(REAL(fsync)(f)); }
int rename(const char *a, const char *b) { FAIL_OR(REAL(rename)(a, b)); }
int unlink(const char *p) { FAIL_OR(REAL(unlink)(p)); }
int close(int f) {
  int failed = fails(), r = REAL(close)(f);
  if (failed && with > 0) { errno = with; return -1; }
  return r;
}
ssize_t write(int f, const void *d, size_t n) {
  if (fails()) { if (with > 0) { errno = with; return -1; } n = (n + 1) / 2; }
  return REAL(write)(f, d, n);
}
ssize_t pread(int f, void *d, size_t n, off_t o) {
  if (fails()) { if (with > 0) { errno = with; return -1; } n = with < 0 ? 0 : (n + 1) / 2; }
  return REAL(pread)(f, d, n, o);
}
]]

-- prints a line a fault: what, error, call, verdict, what is there, other names in the directory
local CHILD = make.STATE .. [[
local lfs = require("lfs")
local ffi = ffi_neap.ffi
ffi.cdef("void fault_arm(int, int); int fault_calls(void);")
local directory = arg[1]
local path = directory .. "/state"
local old, new, into = state(1), state(2), state(0)
safetensors.save(path, new)
local NEW = files.read(path)
safetensors.save(path, old)
local OLD = files.read(path)
local function names()
  local n = 0
  for name in lfs.dir(directory) do if name ~= "." and name ~= ".." then n = n + 1 end end
  return n
end
local function descriptors()
  local n = 0
  for _ in lfs.dir("/proc/self/fd") do n = n + 1 end
  return n
end
local function read_all()
  for _, item in ipairs(into) do item.tensor:fill(0) end
  local file = safetensors.open(path)
  local ok, err = pcall(function()
    for _, item in ipairs(into) do file:read_into(item.name, item.tensor) end
  end)
  file:close()
  if not ok then error(err, 0) end
end
local function fault(what, call, n, error)
  os.remove(path)
  files.write(path, OLD)
  for _, item in ipairs(into) do item.tensor:fill(0) end
  local before = descriptors()
  ffi.C.fault_arm(n, error)
  local ok, err = pcall(call)
  local calls = ffi.C.fault_calls()
  ffi.C.fault_arm(0, 0)
  if descriptors() ~= before then print("lost a descriptor", n, error) end
  local text = files.read(path)
  local there = text == OLD and "old" or text == NEW and "new" or "torn"
  if what == "read" and ok then
    for i, item in ipairs(into) do
      local same, wanted = item.tensor:bits(), old[i].tensor:bits()
      for e = 1, #wanted do if same[e] ~= wanted[e] then there = "misread" end end
    end
  end
  print(what, error, n, ok and "ok" or err.kind, there, names() - 1)
  return calls >= n
end
for _, error in ipairs({ 0, 4, 5, 28 }) do
  local n = 1
  while fault("save", function() safetensors.save(path, new) end, n, error) do n = n + 1 end
end
for _, error in ipairs({ -1, 0, 4, 5 }) do
  local n = 1
  while fault("read", read_all, n, error) do n = n + 1 end
end
]]

describe("safetensors under faults", function()
  local directory

  before_each(function()
    directory = script.directory()
    os.execute("mkdir '" .. directory .. "/data'")
  end)
  after_each(function() script.remove(directory) end)

  it("leave the old file or the new one, and read all of it or say that they did not", function()
    make.write(directory .. "/shim.c", SHIM)
    make.write(directory .. "/child.lua", CHILD)
    assert.equal(0, os.execute(string.format("unset LD_PRELOAD; cc -D_GNU_SOURCE -shared -fPIC "
      .. "-o '%s/shim.so' '%s/shim.c' -ldl", directory, directory)))
    local pipe = io.popen(string.format("LD_PRELOAD=\"$LD_PRELOAD %s/shim.so\" LUA_PATH='%s' "
      .. "timeout 300 luajit %s/child.lua %s/data 2>&1", directory, package.path, directory,
      directory))
    local counts = { save = 0, read = 0, refused = 0 }
    for line in pipe:lines() do
      local what, number, _, verdict, there, others =
        line:match("^(%a+)\t(%-?%d+)\t(%d+)\t([^\t]+)\t([^\t]+)\t(%d+)$")
      assert.is_truthy(what, line)
      counts[what] = counts[what] + 1
      if verdict == "ok" then
        assert.equal(what == "save" and "new" or "old", there, line)
      else
        counts.refused = counts.refused + 1
        assert.equal("input/output", verdict, line)
        assert.is_truthy(there == "old" or (what == "save" and there == "new"), line)
        -- a short write or read is nobody's failure
        assert.are_not.equal("0", number, line)
      end
      assert.equal("0", others, line)
    end
    pipe:close()
    assert.is_true(counts.save >= 60 and counts.read >= 50 and counts.refused >= 50,
      string.format("%d saves, %d reads, %d refused", counts.save, counts.read, counts.refused))
  end)
end)
