-- Layers without parameters on images: MaxPool2d(kernel), AvgPool2d(kernel), GlobalAvgPool2d(),
-- Flatten().
local argument = require("neap.argument")
local fail = require("neap.fail")
local module = require("neap.nn.module")

local M = {}

local option_names = { "stride", "padding" }
local MOST = 2 ^ 20

local function pool(kind, op)
  local Pool = module.class(kind)

  ---@param kernel integer
  ---@param options? { stride?: integer, padding?: integer }  stride: the kernel; padding: 0
  function Pool:init(kernel, options)
    options = argument.options(options, kind, option_names)
    local stride, padding = options.stride, options.padding
    self.kernel = argument.whole(kernel, kind .. ": the kernel", 1, MOST)
    self.stride = stride == nil and kernel or argument.whole(stride, kind .. ": stride", 1, MOST)
    self.padding = padding == nil and 0 or argument.whole(padding, kind .. ": padding", 0, MOST)
    if self.padding > kernel / 2 then
      fail.usage("%s: padding must be at most half the kernel, found %.0f of %.0f", kind,
        self.padding, kernel)
    end
  end

  function Pool:forward(x) return op(x, self.kernel, self.stride, self.padding) end

  return Pool
end

M.MaxPool2d = pool("MaxPool2d", require("neap.op.maxpool2d"))
M.AvgPool2d = pool("AvgPool2d", require("neap.op.avgpool2d"))

local function plain(kind, op)
  local Layer = module.class(kind)
  function Layer:forward(x) return op(x) end -- luacheck: ignore 212
  return Layer
end

M.GlobalAvgPool2d = plain("GlobalAvgPool2d", require("neap.op.global_avgpool2d"))
M.Flatten = plain("Flatten", require("neap.op.flatten"))

return M
