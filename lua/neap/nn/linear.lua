-- Linear(in, out): x weight^T + bias, the weight is (out, in).
local argument = require("neap.argument")
local linear = require("neap.op.linear")
local module = require("neap.nn.module")

local Linear = module.class("Linear")

local option_names = { "bias", "std" }

---@param n_in integer
---@param n_out integer
---@param options? { bias?: boolean, std?: number }  std of the weight's normal start, 1/sqrt(in)
function Linear:init(n_in, n_out, options)
  options = argument.options(options, "Linear", option_names)
  argument.whole(n_in, "Linear: the number of inputs", 1)
  argument.whole(n_out, "Linear: the number of outputs", 1)
  local std, has_bias = options.std, argument.flag(options.bias, "Linear: bias", true)
  if std == nil then std = 1 / math.sqrt(n_in) end
  self.weight = module.parameter({ n_out, n_in },
    { normal = argument.number(std, "Linear: std", 0) })
  if has_bias then self.bias = module.parameter({ n_out }, { fill = 0 }) end
end

function Linear:forward(x) return linear(x, self.weight, rawget(self, "bias")) end

return Linear
