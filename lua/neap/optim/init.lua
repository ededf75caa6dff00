-- Optimizers, learning-rate schedules, the norm of all gradients.
return {
  AdamW = require("neap.optim.adamw"),
  SGD = require("neap.optim.sgd"),
  schedule = require("neap.optim.schedule"),
  grad_norm = require("neap.optim.state").grad_norm,
}
