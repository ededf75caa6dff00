-- silu(x): x / (1 + exp(-x)). Saves x.
return require("neap.op.apply").bind1("silu")
