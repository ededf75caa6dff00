-- neap: the public names.
local ffi_neap = require("neap.ffi")
local device = require("neap.device")
local tensor = require("neap.tensor")
local tensor_methods = require("neap.tensor_methods")
local autograd = require("neap.autograd")
local scope = require("neap.scope")
local rng = require("neap.rng")
local op = require("neap.op")
local module = require("neap.nn.module")
local executor = require("neap.checkpoint.executor")
local plan = require("neap.checkpoint.plan")
local plan_file = require("neap.checkpoint.plan_file")

tensor_methods.seal({
  __add = op.add,
  __sub = op.subtract,
  __unm = function(x) return op.scale(x, -1) end,
  __mul = function(a, b)
    if type(a) == "number" then return op.scale(b, a) end
    if type(b) == "number" then return op.scale(a, b) end
    return op.multiply(a, b)
  end,
})

return {
  version = ffi_neap.C.neap_version(),
  device = device.open,
  with_device = device.with,
  threads = device.threads,
  tensor = tensor.from,
  empty = tensor.empty,
  zeros = tensor.zeros,
  full = tensor.full,
  is_tensor = tensor.is,
  scope = scope.run,
  no_grad = autograd.no_grad,
  backward = autograd.backward,
  is_recomputing = autograd.is_recomputing,
  checkpoint = require("neap.checkpoint.region").checkpoint,
  rng = rng.set,
  manual_seed = module.manual_seed,
  op = op,
  nn = require("neap.nn"),
  optim = require("neap.optim"),
  data = require("neap.data"),
  policy = require("neap.checkpoint.policy").parse,
  checkpoint_manager = require("neap.checkpoint.manager").new,
  segment_checkpointer = require("neap.checkpoint.segments").new,
  layer_plan = require("neap.checkpoint.layers").plan,
  layer_planner = require("neap.checkpoint.layers").planner,
  activation_buffer = require("neap.checkpoint.buffer").new,
  auto_chunk = require("neap.chunk").auto,
  chunk_from_measurements = require("neap.chunk").from_measurements,
  executor = executor.new,
  step = executor.step,
  saved = require("neap.checkpoint.saved").saved,
  profile = require("neap.checkpoint.timing").profile,
  plan = require("neap.checkpoint.plan_build").plan,
  frontier = require("neap.checkpoint.frontier").of,
  plan_load = plan_file.load,
  plan_compare = require("neap.checkpoint.plan_compare").compare,
  profile_save = plan_file.save_profile,
  profile_load = plan_file.load_profile,
  simulate = plan.simulate,
}
