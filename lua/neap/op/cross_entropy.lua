-- cross_entropy(logits, targets): logits (.., V), i32 targets (..) -> mean of -log softmax. Saves
-- both and log-sum-exp a row; backward writes the gradient over the logits where nobody else holds
-- them.
return require("neap.op.apply").bind2("cross_entropy")
