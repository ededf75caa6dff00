-- What `make train` runs: a small GPT that learns this machine's licence texts, character by
-- character, in about two minutes on two cores. Every key may also be given on the command line:
-- luajit examples/train.lua --set width=64 --set steps=100
return {
  -- the model: 4 blocks of attention and MLP, 128 numbers a token, split among 4 heads
  n_layer = 4,
  n_head = 4, -- has to divide width
  width = 128,
  context = 128, -- tokens (here: characters) that one item holds; the model sees no further back
  dropout = 0, -- share of activations zeroed in training, against learning by heart

  -- a step: its gradient is the mean over global_batch items, taken chunk by chunk. A smaller chunk
  -- needs less memory and computes the same
  chunk = 12, -- items one forward sees
  global_batch = 12, -- items one step sees

  -- memory: all that is alive on the device has to fit into the budget. Keeping every activation
  -- for backward takes a little more; in 2 segments, those of the first are dropped and recomputed
  budget = "64MiB",
  checkpoint = "segments:2", -- try none, all, every_n:2, segments:3

  -- how long and how fast it learns: the rate rises over warmup steps to lr, then falls along a
  -- cosine to min_lr
  steps = 600,
  warmup = 40,
  lr = 6e-3,
  min_lr = 1e-4,
  betas = { 0.9, 0.99 }, -- AdamW: how slowly its means of gradients and of their squares forget
  weight_decay = 0.1, -- AdamW: pulls weights towards zero
  clip = 1.0, -- longest gradient that is used as it is; longer ones are shortened to it

  -- how well it does on text it never trains on (the last tenth)
  eval_every = 150, -- steps
  eval_batches = 10, -- chunks of items each time
  final_eval_batches = 40, -- and at the end

  seed = 1, -- the same seed gives the same run, bit for bit, on one machine and thread count
  data = nil, -- a text file; nil: the licence texts under /usr/share/common-licenses
  device = "auto", -- a GPU where there is one that works, else "cpu"; "null" only counts bytes
}
