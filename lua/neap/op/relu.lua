-- relu(x): max(x, 0). Saves x.
return require("neap.op.apply").bind1("relu")
