-- multiply(a, b): a * b by elements. The dimensions of b are those of a, or the last ones of a.
-- Saves a where b needs a gradient, and b where a does.
return require("neap.op.apply").bind2("multiply")
