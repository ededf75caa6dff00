-- Runs before the specs: says so when the library does not load; one thread, whoever starts busted,
-- so that times and bits are alike.
local found, neap = pcall(require, "neap.ffi")
if found then
  local threads = tonumber(os.getenv("OMP_NUM_THREADS")) or 1
  pcall(function() neap.C.neap_threads_set(threads) end)
else
  io.stderr:write("specs run without the library: ", tostring(neap), "\n")
  package.loaded["neap.ffi"] = nil
end
