-- Conv2d(in, out, kernel): images (N, in, H, W) -> (N, out, ..); the weight is (out, in, KH, KW).
local argument = require("neap.argument")
local conv2d = require("neap.op.conv2d")
local fail = require("neap.fail")
local module = require("neap.nn.module")

local Conv2d = module.class("Conv2d")

local option_names = { "stride", "padding", "bias", "std" }
local MOST = 2 ^ 20

-- a side, or { height, width }
local function sides(kernel)
  if type(kernel) ~= "table" then
    argument.whole(kernel, "Conv2d: the kernel", 1, MOST)
    return kernel, kernel
  end
  if #kernel ~= 2 then
    fail.usage("Conv2d: the kernel must be a whole number or { height, width }, found a table of "
      .. "%d", #kernel)
  end
  return argument.whole(kernel[1], "Conv2d: the kernel's height", 1, MOST),
    argument.whole(kernel[2], "Conv2d: the kernel's width", 1, MOST)
end

---@param n_in integer  channels
---@param n_out integer  channels
---@param kernel integer|integer[]  its side, or { height, width }
---@param options? { stride?: integer, padding?: integer, bias?: boolean, std?: number }  stride 1,
---  padding 0; std of the weight's normal start, 1/sqrt(in * height * width)
function Conv2d:init(n_in, n_out, kernel, options)
  options = argument.options(options, "Conv2d", option_names)
  argument.whole(n_in, "Conv2d: the number of input channels", 1)
  argument.whole(n_out, "Conv2d: the number of output channels", 1)
  local height, width = sides(kernel)
  local stride, padding, std = options.stride, options.padding, options.std
  local has_bias = argument.flag(options.bias, "Conv2d: bias", true)
  self.stride = stride == nil and 1 or argument.whole(stride, "Conv2d: stride", 1, MOST)
  self.padding = padding == nil and 0 or argument.whole(padding, "Conv2d: padding", 0, MOST)
  if std == nil then std = 1 / math.sqrt(n_in * height * width) end
  self.weight = module.parameter({ n_out, n_in, height, width },
    { normal = argument.number(std, "Conv2d: std", 0) })
  if has_bias then self.bias = module.parameter({ n_out }, { fill = 0 }) end
end

function Conv2d:forward(x)
  return conv2d(x, self.weight, rawget(self, "bias"), self.stride, self.padding)
end

return Conv2d
