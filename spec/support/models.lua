-- Small chains for specs, and what to compare of a run.
local assert = require("luassert")
local neap = require("neap")
local op = neap.op

local M = {}

local Layer = neap.nn.class("Layer")

-- x + dropout(gelu(linear(x))): draws random numbers, saves inputs and outputs, has parameters
function Layer:init(width, p)
  self.norm = neap.nn.LayerNorm(width)
  self.linear = neap.nn.Linear(width, width)
  self.dropout = neap.nn.Dropout(p)
end

function Layer:forward(x) return x + self.dropout(op.gelu(self.linear(self.norm(x)))) end
M.Layer = Layer

local Loss = neap.nn.class("Loss")

-- mean of squares against the batch's targets
function Loss:forward(x, ctx) -- luacheck: ignore 212
  local difference = x + op.scale(ctx.batch.targets, -1)
  return op.mean(difference * difference)
end
M.Loss = Loss

--- A chain of n layers and a loss: stages layer.0 .. layer.n-1, loss.
function M.chain(n, width, p)
  neap.manual_seed(3)
  local list = {}
  for i = 0, n - 1 do list[#list + 1] = { "layer." .. i, Layer(width, p or 0) } end
  list[#list + 1] = { "loss", Loss() }
  return neap.nn.Sequential(list)
end

--- A batch of n items of that width.
function M.batch(n, width)
  local x, y = {}, {}
  for i = 1, n * width do x[i], y[i] = math.sin(0.7 * i), math.cos(0.3 * i) end
  return { inputs = neap.tensor(x, { n, width }), targets = neap.tensor(y, { n, width }) }
end

--- A small transformer of n blocks with dropout.
function M.gpt(n, width)
  neap.manual_seed(3)
  return neap.nn.GPT({ vocabulary = 13, context = 8, width = width or 16, n_layer = n, n_head = 2,
    dropout = 0.1 })
end

--- A batch of token ids for it.
function M.tokens()
  local ids, targets = {}, {}
  for i = 1, 16 do ids[i], targets[i] = i * 5 % 13, (i * 5 + 3) % 13 end
  return { inputs = neap.tensor(ids, { 2, 8 }, { dtype = "i32" }),
    targets = neap.tensor(targets, { 2, 8 }, { dtype = "i32" }) }
end

--- All gradients as bit patterns, by parameter name.
function M.gradient_bits(chain)
  local out = {}
  for _, p in ipairs(chain:parameters()) do out[p.name] = p.tensor:grad():bits() end
  return out
end

--- One micro-batch on a device; it peaks where the simulation says, to the byte, and leaves
--- nothing.
---@return table run
---@return number peak_bytes  over what was live before
function M.run_exactly(device, chain, batch, plan, profile)
  M.run(chain, batch, plan) -- what is made once is there afterwards
  rawget(chain, "_executor"):use_profile(profile)
  collectgarbage("stop") -- what others left to it must not go while this one counts
  local before = device:memory().live_bytes
  device:restart_peak("action")
  local run = M.run(chain, batch, plan)
  local peak, after = device:memory().peak.action - before, device:memory().live_bytes
  collectgarbage("restart")
  assert.equal(neap.simulate(plan, profile).peak_bytes, peak, plan.spec)
  assert.equal(before, after)
  return run, peak
end

--- One micro-batch from zeroed gradients: loss, gradient bits, the executor.
function M.run(chain, batch, plan)
  chain:zero_grad()
  neap.rng({ seed = 5, step = 1, n_items = batch.inputs:dims()[1] })
  local loss, executor = neap.step(chain, batch, plan)
  return { loss = loss, gradients = M.gradient_bits(chain), executor = executor }
end

return M
