-- Linear(in, out): x weight^T + bias, the weight is (out, in).
local linear = require("neap.op.linear")
local module = require("neap.nn.module")

local Linear = module.class("Linear")

---@param n_in integer
---@param n_out integer
---@param options? { bias?: boolean, std?: number }  std of the weight's normal start, 1/sqrt(in)
function Linear:init(n_in, n_out, options)
  options = options or {}
  self.weight = module.parameter({ n_out, n_in }, { normal = options.std or 1 / math.sqrt(n_in) })
  if options.bias ~= false then self.bias = module.parameter({ n_out }, { fill = 0 }) end
end

function Linear:forward(x) return linear(x, self.weight, rawget(self, "bias")) end

return Linear
