-- dropout(x, p): zeroes elements with probability p and scales the others by 1 / (1 - p). Saves
-- nothing: the mask is a function of (seed, step, item, stage, call), drawn again in backward.
return require("neap.op.apply").bind1("dropout")
