-- The only file that declares and loads the C library. Refuses a library of another version.
local ffi = require("ffi")
local fail = require("neap.fail")

local function readable(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end

-- a checkout has build/ beside lua/; an installed tree finds libneap by the loader or beside lua/
local function library_path()
  local here = debug.getinfo(1, "S").source:match("^@(.*)neap/ffi%.lua$")
  local named = os.getenv("NEAP_LIBRARY")
  if named and named ~= "" then return named end
  for _, path in ipairs({
    here and here .. "../build/libneap.so",
    here and here .. "../../../lib/libneap.so",
  }) do
    if path and readable(path) then return path end
  end
  return "neap"
end

-- Idle OpenMP threads spin for long by default; on a busy machine that makes a small kernel a
-- hundred times slower. Read by the OpenMP runtime when it is loaded, so it is set before; the
-- user's settings win.
local function calm_openmp()
  ffi.cdef("int setenv(const char *name, const char *value, int overwrite);")
  if not os.getenv("OMP_WAIT_POLICY") then ffi.C.setenv("GOMP_SPINCOUNT", "2000", 0) end
end

-- An old library with new declarations, or the other way round, would write over memory. Both know
-- the header they were made of.
local function check_match(lib, cdef, path)
  if lib.neap_abi() ~= cdef.abi then
    fail.raise("environment", string.format("'%s' has ABI %d, these Lua files expect %d; run "
      .. "'make'", path, lib.neap_abi(), cdef.abi))
  end
  local has_sum, sum = pcall(function() return lib.neap_header_sum() end)
  if not has_sum or sum ~= cdef.sum then
    fail.raise("environment", string.format("'%s' and build/neap/cdef.lua were made from different "
      .. "versions of src/neap.h; run 'make'", path))
  end
end

local function load_library()
  local found, cdef = pcall(require, "neap.cdef")
  if not found then
    fail.raise("environment", "neap's cdef.lua is not built; run 'make' in the neap checkout")
  end
  ffi.cdef(cdef.text)
  calm_openmp()
  local path = library_path()
  local ok, lib = pcall(ffi.load, path)
  if not ok then
    fail.raise("environment", string.format("cannot load '%s' (%s); run 'make'", path,
      tostring(lib)))
  end
  check_match(lib, cdef, path)
  return lib
end

local C = load_library()
local M = { C = C, ffi = ffi }

--- Raises the library's last error when code is negative; returns code.
---@param code number
---@return number
function M.check(code)
  if code < 0 then
    fail.raise(ffi.string(C.neap_error_name(code)), ffi.string(C.neap_last_error()))
  end
  return code
end

return M
