-- subtract(a, b): a - b. The dimensions of b are those of a, or the last ones of a. Saves nothing.
return require("neap.op.apply").bind2("subtract")
