-- scale(x, factor): x times a number. Saves nothing.
return require("neap.op.apply").bind1("scale")
