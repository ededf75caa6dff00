-- Trains a tiny chain for many steps in a process of its own, and prints by how many pages its
-- resident memory grew after the first tenth. luajit spec/support/soak_steps.lua STEPS
local root = (arg[0]:match("^(.*)/[^/]*$") or ".") .. "/../.."
package.path = root .. "/?.lua;" .. root .. "/lua/?.lua;" .. root .. "/lua/?/init.lua;" .. root
  .. "/build/?.lua;" .. package.path
local neap = require("neap")
local models = require("spec.support.models")

local steps = assert(tonumber(arg[1]), "how many steps?")
neap.threads(1)
neap.device("cpu")
local chain, batch = models.chain(3, 8, 0.1), models.batch(4, 8)
local plan = neap.plan("segments:2", neap.profile(chain, batch, { cost = "flops" }))
local optimizer, executor = neap.optim.AdamW(chain:parameters()), neap.executor(chain)

local function run(n)
  for _ = 1, n do
    chain:zero_grad()
    executor:run(batch, plan)
    optimizer:step(1e-4)
  end
  collectgarbage()
  collectgarbage()
  local file = assert(io.open("/proc/self/statm"))
  local pages = tonumber(file:read("*a"):match("^%d+ (%d+)"))
  file:close()
  return pages
end

local before = run(steps / 10)
print(run(steps * 9 / 10) - before)
