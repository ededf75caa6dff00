-- gelu(x), tanh form: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). Saves x.
return require("neap.op.apply").bind1("gelu")
