-- The small character model that many know from the tiny Shakespeare file, sized for a CPU:
-- luajit examples/train.lua examples/configs/shakespeare_char_cpu.lua --data tinyshakespeare.txt
-- small.lua explains every key.
return {
  n_layer = 4,
  n_head = 4,
  width = 128,
  context = 64,
  dropout = 0,

  chunk = 12,
  global_batch = 12,

  steps = 2000,
  warmup = 100,
  lr = 1e-3,
  min_lr = 1e-4,
  betas = { 0.9, 0.99 },
  weight_decay = 0.1,
  clip = 1.0,

  eval_every = 250,
  eval_batches = 20,
  final_eval_batches = 200,

  data = nil, -- the default text where --data names none
}
