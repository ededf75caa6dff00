-- Wrong arguments of layers on images, each in one sentence; see misuse_spec.lua.
local neap = require("neap")
local calls = require("spec.support.misuse_calls")
local misuse = require("spec.support.misuse")

local spoil, spoil_options = calls.spoil, calls.spoil_options

describe("misuse of", function()
  setup(function()
    calls.calls, calls.groups = 0, 0
    calls.open()
  end)
  teardown(calls.close)

  it("layers on images", function()
    local nn = neap.nn
    spoil("buffer", nn.buffer, { { "dims", { 2 } }, { "finite", 0 } })
    spoil("Conv2d", nn.Conv2d, { { "counting", 2 }, { "counting", 2 }, { "counting", 3 },
      { "options", {} } })
    spoil_options("Conv2d", function(o) return nn.Conv2d(2, 2, 3, o) end, {},
      { bias = "flag", std = "size_or_nil", stride = "counting_or_nil",
        padding = "count_or_nil" })
    misuse.kinds.kernel = { { "one side", { 3 } }, { "three", { 3, 3, 3 } }, { "0", { 0, 1 } },
      { "1.5", { 1, 1.5 } }, { "text in it", { "1", 1 } }, { "NaN in it", { 0 / 0, 1 } } }
    spoil("Conv2d", nn.Conv2d, { { false, 2 }, { false, 2 }, { "kernel", { 1, 3 } } })
    spoil("BatchNorm", nn.BatchNorm, { { "counting", 2 }, { "options", {} } })
    spoil_options("BatchNorm", function(o) return nn.BatchNorm(2, o) end, {},
      { eps = "positive_or_nil", momentum = "size_or_nil" })
    for _, name in ipairs({ "MaxPool2d", "AvgPool2d" }) do
      spoil(name, nn[name], { { "counting", 2 }, { "options", {} } })
      spoil_options(name, function(o) return nn[name](2, o) end, {},
        { stride = "counting_or_nil", padding = "count_or_nil" })
    end
    local conv = nn.Conv2d(3, 3, 3, { padding = 1 })
    spoil("Residual", nn.Residual, { { "module", conv } })
    local resnet = { depth = 8, width = 2, classes = 3, channels = 3, block = "pre" }
    spoil("ResNet", nn.ResNet, { { "table", resnet } })
    spoil("ResNet", nn.ResNet, { { "options", resnet } })
    misuse.kinds.block = { { "text", "post" }, { "a number", 5 }, { "true", true },
      { "a table", {} } }
    spoil_options("ResNet", nn.ResNet, resnet, { depth = "counting", width = "counting",
      classes = "counting", channels = "counting_or_nil", block = "block" })
    local images = neap.zeros({ 2, 3, 8, 8 })
    for name, layer in pairs({ Conv2d = conv, BatchNorm = nn.BatchNorm(3),
      MaxPool2d = nn.MaxPool2d(2), AvgPool2d = nn.AvgPool2d(2), Residual = nn.Residual(conv),
      GlobalAvgPool2d = nn.GlobalAvgPool2d(), ResNet = nn.ResNet(resnet) }) do
      spoil("calling " .. name, layer, { { "beside", images } })
    end
    spoil("calling Flatten", nn.Flatten(), { { "tensor", images } })
  end)

  it("layers on images was tried hundreds of times", function()
    assert(calls.calls > 500, calls.calls)
  end)
end)
