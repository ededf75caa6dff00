-- embedding(ids, weight): i32 (..), weight (V, C) -> (.., C). Saves the ids.
return require("neap.op.apply").bind2("embedding")
