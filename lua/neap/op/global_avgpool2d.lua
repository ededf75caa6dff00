-- global_avgpool2d(x): the mean of each image's channel, (N, C, H, W) -> (N, C). Saves nothing.
local ffi_neap = require("neap.ffi")
local fail = require("neap.fail")
local mean = require("neap.op.mean")
local reshape = require("neap.op.reshape")
local tensor = require("neap.tensor")
local C = ffi_neap.C

return function(x)
  local id = tensor.id_of(x, "global_avgpool2d")
  if ffi_neap.check(C.neap_tensor_n_dims(id)) ~= 4 then
    fail.raise("shape mismatch", string.format("global_avgpool2d: x is %s, expected (images, "
      .. "channels, height, width)", "(" .. table.concat(x:dims(), ", ") .. ")"))
  end
  local plane = C.neap_tensor_dim(id, 2) * C.neap_tensor_dim(id, 3)
  return mean(reshape(x, { C.neap_tensor_dim(id, 0), C.neap_tensor_dim(id, 1), plane }), 3)
end
