-- sigmoid(x): 1 / (1 + exp(-x)). Saves the output.
return require("neap.op.apply").bind1("sigmoid")
