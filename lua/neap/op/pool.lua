-- Shared by maxpool2d and avgpool2d: (x, kernel, stride, padding), the stride the kernel and the
-- padding 0 unless given.
local apply = require("neap.op.apply")

return function(name)
  local run = apply.bind1(name)
  return function(x, kernel, stride, padding)
    apply.number(name, "the kernel", kernel)
    if stride == nil then stride = kernel else apply.number(name, "the stride", stride) end
    if padding ~= nil then apply.number(name, "the padding", padding) end
    return run(x, kernel, stride, padding or 0)
  end
end
