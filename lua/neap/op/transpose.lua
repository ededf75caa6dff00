-- transpose(x): (.., M, N) -> (.., N, M), a copy. Saves nothing.
return require("neap.op.apply").bind1("transpose")
