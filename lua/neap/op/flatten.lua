-- flatten(x): all dimensions but the first as one, (N, C, H, W) -> (N, C H W); shares the memory of
-- x. Saves nothing.
local ffi_neap = require("neap.ffi")
local fail = require("neap.fail")
local reshape = require("neap.op.reshape")
local tensor = require("neap.tensor")
local C = ffi_neap.C

return function(x)
  local id = tensor.id_of(x, "flatten")
  local n, rest = ffi_neap.check(C.neap_tensor_n_dims(id)), 1
  if n < 1 then fail.raise("shape mismatch", "flatten: expected 1 or more dimensions, found ()") end
  for i = 1, n - 1 do rest = rest * C.neap_tensor_dim(id, i) end
  return reshape(x, { C.neap_tensor_dim(id, 0), rest })
end
