-- relu(x): max(x, 0). Saves its output.
return require("neap.op.apply").bind1("relu")
