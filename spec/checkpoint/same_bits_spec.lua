-- The promise of every plan: the loss, every gradient and every buffer have the bits of keep-all,
-- for a transformer with dropout, a residual net with batch norm and a recurrent net, on one thread
-- and on two.
local neap = require("neap")
local module = require("neap.nn.module")
local policies = require("neap.checkpoint.policy")
local nn, op = neap.nn, neap.op

local function ids(n, modulus, factor)
  local out = {}
  for i = 1, n do out[i] = i * factor % modulus end
  return out
end

local function i32(list, dims) return neap.tensor(list, dims, { dtype = "i32" }) end

local function waves(n)
  local out = {}
  for i = 1, n do out[i] = math.sin(0.37 * i) end
  return out
end

-- a block whose two halves are checkpointed regions, inside a third one
local Nested = nn.class("Nested")

function Nested:init(width)
  self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
  self.down, self.dropout = nn.Linear(2 * width, width), nn.Dropout(0.1)
end

function Nested:forward(x)
  return neap.checkpoint(function(h)
    local wide = neap.checkpoint(function(y) return op.gelu(self.up(self.norm(y))) end, h)
    return h + neap.checkpoint({ keep = "matmul" }, function(y)
      return self.dropout(self.down(y))
    end, wide)
  end, x)
end

local Mean = nn.class("Mean")

function Mean:forward(x) return op.mean(op.multiply(x, x)) end -- luacheck: ignore 212

local nets = {
  { name = "a transformer with dropout 0.1", build = function()
    return nn.GPT({ vocabulary = 13, context = 8, width = 16, n_layer = 3, n_head = 2,
      dropout = 0.1 }), { inputs = i32(ids(16, 13, 5), { 2, 8 }),
      targets = i32(ids(16, 13, 7), { 2, 8 }) }
  end },
  { name = "a residual net with batch norm", build = function()
    return nn.ResNet({ depth = 8, width = 4, channels = 1, classes = 3 }),
      { inputs = neap.tensor(waves(256), { 4, 1, 8, 8 }), targets = i32({ 0, 1, 2, 1 }, { 4 }) }
  end },
  { name = "a recurrent net", build = function()
    return nn.Recurrent({ vocabulary = 7, time = 9, hidden = 8, cell = "lstm" }),
      { inputs = i32(ids(18, 7, 3), { 2, 9 }), targets = i32(ids(18, 7, 5), { 2, 9 }) }
  end },
  { name = "blocks of nested checkpointed regions", build = function()
    return nn.Sequential({ { "a", Nested(16) }, { "b", Nested(16) }, { "c", Nested(16) },
      { "loss", Mean() } }), { inputs = neap.tensor(waves(64), { 4, 16 }) }
  end },
}

-- loss, gradients and buffers as text, after two micro-batches
local function run(model, batch, plan, profile)
  local executor = neap.executor(model)
  executor:use_profile(profile)
  model:zero_grad()
  local out = {}
  for step = 1, 2 do
    neap.rng({ seed = 5, step = step })
    out[step] = string.format("%.9g", executor:run(batch, plan))
  end
  for _, p in ipairs(model:parameters()) do
    out[#out + 1] = p.name .. " " .. table.concat(p.tensor:grad():bits(), ",")
  end
  for _, b in ipairs(model:buffers()) do
    out[#out + 1] = b.name .. " " .. table.concat(b.tensor:bits(), ",")
  end
  executor:free()
  return out
end

local function specs_of(profile)
  local names = {}
  for i, stage in ipairs(profile.stages) do names[i] = stage.name end
  local all = neap.simulate(neap.plan("none", profile), profile).peak_bytes
  local frontier = neap.frontier(profile)
  local list = { "all", "every_n:2", "by_name:" .. names[2], "greedy:" .. math.floor(all / 4),
    "segments:2", "segments:3", "segments:auto", "revolve:2", "selective:matmul",
    { rules = { { names[1], "recompute" }, { names[2], "selective:matmul" } }, default = "store" } }
  for _, k in ipairs({ 1, math.ceil(#frontier / 2) }) do
    list[#list + 1] = string.format("optimal:%.0f", frontier[k].peak_bytes)
  end
  return list
end

-- a model of its own, so that each run starts from the same buffers
local function fresh(net)
  module.manual_seed(3)
  return net.build()
end

local function free(model, batch)
  model:free()
  batch.inputs:free()
  if batch.targets then batch.targets:free() end
end

describe("every plan gives the bits of keep-all", function()
  local device
  before_each(function() device = neap.device("cpu", { budget = "1GiB" }) end)
  after_each(function()
    neap.threads(1)
    collectgarbage()
    device:close()
    neap.device("cpu")
  end)

  for _, net in ipairs(nets) do
    for _, threads in ipairs({ 1, 2 }) do
      it(string.format("for %s, on %d thread%s", net.name, threads, threads == 1 and "" or "s"),
        function()
          neap.threads(threads)
          local model, batch = fresh(net)
          local profile = neap.profile(model, batch, { cost = "flops", modes = { "matmul" } })
          local specs = specs_of(profile)
          local expected = run(model, batch, neap.plan("none", profile), profile)
          free(model, batch)
          for _, spec in ipairs(specs) do
            local again, its_batch = fresh(net)
            local plan = neap.plan(spec, profile)
            assert.same(expected, run(again, its_batch, plan, profile),
              tostring(policies.parse(spec)))
            free(again, its_batch)
          end
        end)
    end
  end
end)
