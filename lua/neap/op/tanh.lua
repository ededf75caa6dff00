-- tanh(x). Saves the output.
return require("neap.op.apply").bind1("tanh")
