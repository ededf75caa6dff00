-- sum(x, dim): over one dimension (from 1), or all -> (). Saves nothing.
return require("neap.op.reduce")("sum")
