-- conv2d(x, weight, bias, stride, padding): x (N, C, H, W), weight (O, C, KH, KW), bias (O) or nil
-- -> (N, O, (H + 2 padding - KH) / stride + 1, ..). Stride 1 and padding 0 unless given. Saves x
-- where the weight needs a gradient, and the weight where x does; the windows of x are made into
-- columns in scratch, a few images or rows at a time.
local apply = require("neap.op.apply")
local plain, biased = apply.bind2("conv2d"), apply.bind3("conv2d")

return function(x, weight, bias, stride, padding)
  if stride ~= nil and type(stride) ~= "number" then
    apply.number("conv2d", "the stride", stride)
  end
  if padding ~= nil and type(padding) ~= "number" then
    apply.number("conv2d", "the padding", padding)
  end
  if bias == nil then return plain(x, weight, stride or 1, padding or 0) end
  return biased(x, weight, bias, stride or 1, padding or 0)
end
