-- ResNet(options): a residual network on images as a chain (He et al. 2015, 2016): stem, block.0 ..
-- block.B-1 in three groups of widths w, 2w, 4w whose images halve in side, and a head that ends in
-- the loss. depth = 2 blocks + 2 layers with weights. What a block adds starts 1/sqrt(B) as large
-- as it would, so that the sum of many keeps its size.
local BatchNorm = require("neap.nn.batchnorm")
local Conv2d = require("neap.nn.conv2d")
local Linear = require("neap.nn.linear")
local Sequential = require("neap.nn.sequential")
local add = require("neap.op.add")
local argument = require("neap.argument")
local cross_entropy = require("neap.op.cross_entropy")
local fail = require("neap.fail")
local global_avgpool2d = require("neap.op.global_avgpool2d")
local module = require("neap.nn.module")
local relu = require("neap.op.relu")

-- a start that keeps the size of what passes through (He et al. 2015); a norm follows, so no bias
local function conv(n_in, n_out, kernel, stride, share)
  return Conv2d(n_in, n_out, kernel, { stride = stride, padding = (kernel - 1) / 2, bias = false,
    std = (share or 1) * math.sqrt(2 / (n_in * kernel * kernel)) })
end

local Stem = module.class("Stem")

function Stem:init(channels, width, is_basic)
  self.conv = conv(channels, width, 3, 1)
  if is_basic then self.norm = BatchNorm(width) end
end

function Stem:forward(x)
  x = self.conv(x)
  return rawget(self, "norm") and relu(self.norm(x)) or x
end

-- norm, relu, convolution, twice; nothing on the way of x itself
local PreBlock = module.class("PreBlock")

function PreBlock:init(n_in, n_out, stride, share)
  self.norm1, self.conv1 = BatchNorm(n_in), conv(n_in, n_out, 3, stride)
  self.norm2, self.conv2 = BatchNorm(n_out), conv(n_out, n_out, 3, 1, share)
  if n_in ~= n_out or stride > 1 then self.shortcut = conv(n_in, n_out, 1, stride) end
end

function PreBlock:forward(x)
  local shortcut = rawget(self, "shortcut")
  local y = relu(self.norm1(x))
  local kept = shortcut and shortcut(y) or x
  return add(self.conv2(relu(self.norm2(self.conv1(y)))), kept)
end

-- convolution, norm, relu, convolution, norm, and relu of the sum
local BasicBlock = module.class("BasicBlock")

function BasicBlock:init(n_in, n_out, stride, share)
  self.conv1, self.norm1 = conv(n_in, n_out, 3, stride), BatchNorm(n_out)
  self.conv2, self.norm2 = conv(n_out, n_out, 3, 1), BatchNorm(n_out)
  self.norm2.gain:fill(share)
  if n_in ~= n_out or stride > 1 then
    self.shortcut, self.shortcut_norm = conv(n_in, n_out, 1, stride), BatchNorm(n_out)
  end
end

function BasicBlock:forward(x)
  local shortcut = rawget(self, "shortcut")
  local y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
  return relu(add(y, shortcut and self.shortcut_norm(shortcut(x)) or x))
end

-- ctx.batch.targets nil: gives logits instead of the loss
local Head = module.class("Head")

function Head:init(width, classes, is_basic)
  if not is_basic then self.norm = BatchNorm(width) end
  self.linear = Linear(width, classes)
end

function Head:forward(x, ctx)
  if rawget(self, "norm") then x = relu(self.norm(x)) end
  local logits = self.linear(global_avgpool2d(x))
  local targets = ctx and ctx.batch and ctx.batch.targets
  return targets and cross_entropy(logits, targets) or logits
end

local BLOCKS = { pre = PreBlock, basic = BasicBlock }
local option_names = { "depth", "width", "classes", "channels", "block" }
local DEEPEST = 1000

---@param o { depth: integer, width: integer, classes: integer, channels?: integer, block?: string }
---  depth: even, 4 to 1000; channels of the images, 1; block: "pre" (norm first) or "basic"
---@return neap.Chain
local function ResNet(o)
  argument.options(argument.table(o, "ResNet: its argument"), "ResNet", option_names)
  argument.whole(o.depth, "ResNet: depth", 4, DEEPEST)
  argument.whole(o.width, "ResNet: width", 1, 2 ^ 20)
  argument.whole(o.classes, "ResNet: classes", 1)
  local channels, block = o.channels, o.block
  channels = channels == nil and 1 or argument.whole(channels, "ResNet: channels", 1)
  if block == nil then block = "pre" end
  if type(block) ~= "string" or not BLOCKS[block] then
    fail.usage("ResNet: %s", fail.unknown("block", argument.word(block), { "pre", "basic" }))
  end
  if o.depth % 2 ~= 0 then
    fail.usage("ResNet: depth must be even (2 blocks + 2), found %.0f; take %.0f or %.0f", o.depth,
      o.depth - 1, o.depth + 1)
  end
  local n_blocks, is_basic = (o.depth - 2) / 2, block == "basic"
  local stages, width = { { "stem", Stem(channels, o.width, is_basic) } }, o.width
  for i = 0, n_blocks - 1 do
    local group = math.floor(3 * i / n_blocks)
    local n_out = o.width * 2 ^ group
    stages[#stages + 1] = { "block." .. i,
      BLOCKS[block](width, n_out, n_out > width and 2 or 1, 1 / math.sqrt(n_blocks)) }
    width = n_out
  end
  stages[#stages + 1] = { "head", Head(width, o.classes, is_basic) }
  return Sequential(stages)
end

return ResNet
