-- The promise of every plan: the loss, every gradient and every buffer have the bits of keep-all,
-- for a transformer with dropout, a residual net with batch norm and a recurrent net, on one thread
-- and on two.
local neap = require("neap")
local policies = require("neap.checkpoint.policy")

local nets = require("spec.support.nets")

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

describe("every plan gives the bits of keep-all", function()
  local device
  before_each(function() device = neap.device("cpu", { budget = "1GiB" }) end)
  after_each(function()
    neap.threads(1)
    collectgarbage()
    device:close()
    neap.device("cpu")
  end)

  for _, net in ipairs(nets.list) do
    for _, threads in ipairs({ 1, 2 }) do
      it(string.format("for %s, on %d thread%s", net.name, threads, threads == 1 and "" or "s"),
        function()
          neap.threads(threads)
          local model, batch = nets.fresh(net)
          local profile = neap.profile(model, batch, { cost = "flops", modes = { "matmul" } })
          local specs = specs_of(profile)
          local expected = run(model, batch, neap.plan("none", profile), profile)
          nets.free(model, batch)
          for _, spec in ipairs(specs) do
            local again, its_batch = nets.fresh(net)
            local plan = neap.plan(spec, profile)
            assert.same(expected, run(again, its_batch, plan, profile),
              tostring(policies.parse(spec)))
            nets.free(again, its_batch)
          end
        end)
    end
  end
end)
