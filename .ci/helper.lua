-- Runs before the specs: one thread, whoever starts busted, so that times and bits are alike.
local found, neap = pcall(require, "neap.ffi")
local threads = tonumber(os.getenv("OMP_NUM_THREADS")) or 1
if found then pcall(function() neap.C.neap_threads_set(threads) end) end
