-- From the least feasible budget to keep-all, on every kind of net: a plan takes what was
-- predicted, to the byte, stays within its budget, costs no more than one of a smaller budget, and
-- gives the bits of keep-all.
local neap = require("neap")
local nets = require("spec.support.nets")

local N_BUDGETS = 20

local function kinds_of(profile)
  local second = profile.stages[2].name
  local all = neap.simulate(neap.plan("none", profile), profile).peak_bytes
  return { "none", "all", "every_n:2", "every_n:100", "by_name:" .. second,
    "greedy:" .. math.floor(all / 4), "segments:1", "segments:2", "segments:3", "segments:auto",
    "revolve:1", "revolve:3", "selective:matmul", "optimal:auto" }
end

for _, name in ipairs({ "cpu", "null" }) do
  for _, net in ipairs(nets.list) do
    describe(string.format("%s on %s", net.name, name), function()
      local device, model, batch, profile, executor, expected

      setup(function()
        device = name == "cpu" and neap.device("cpu", { budget = "1GiB" })
          or neap.device("null", { size = 0 })
        model, batch = nets.fresh(net)
        profile = neap.profile(model, batch, { cost = "flops", modes = { "matmul" } })
        executor = neap.executor(model)
        executor:use_profile(profile)
      end)

      teardown(function()
        executor:free()
        nets.free(model, batch)
        device:close()
        neap.device("cpu")
      end)

      -- bytes of forward and backward, and what came out as text
      local function run(plan)
        model:zero_grad()
        neap.rng({ seed = 5, step = 1 })
        local before = device:memory().live_bytes
        device:restart_peak("action")
        device:restart_peak("work")
        local out = { string.format("%.9g", executor:run(batch, plan)) }
        local peak = device:memory().peak
        for _, p in ipairs(name == "cpu" and model:parameters() or {}) do
          out[#out + 1] = p.name .. " " .. table.concat(p.tensor:grad():bits(), ",")
        end
        assert.equal(before, device:memory().live_bytes)
        return peak.action - before, peak.work, table.concat(out, "\n")
      end

      local function check(plan)
        expected = expected or select(3, run(neap.plan("none", profile)))
        local measured, work, out = run(plan)
        local found = neap.simulate(plan, profile)
        assert.equal(found.peak_bytes, measured, plan.spec)
        assert.equal(found.forwards, executor.forwards, plan.spec)
        assert.is_true(expected == out, plan.spec .. ": other bits than keep-all")
        return found, work
      end

      it("takes what each kind of plan says", function()
        for _, spec in ipairs(kinds_of(profile)) do check(neap.plan(spec, profile)) end
      end)

      it("stays within each of 20 budgets, and costs less the more there is", function()
        local least = tonumber(neap.frontier(profile).least_bytes)
        local most = neap.simulate(neap.plan("none", profile), profile).peak_bytes
        -- what holds the batch counts as work where its tag says so
        local _, base = run(neap.plan("none", profile))
        base = base - most
        local cost
        for k = 0, N_BUDGETS - 1 do
          local budget = math.floor(least + (most - least) * k / (N_BUDGETS - 1))
          local plan = assert(neap.plan(profile, { policy = "optimal", budget = budget }))
          local found, work = check(plan)
          assert.is_true(found.peak_bytes <= budget)
          assert.is_true(work - base <= budget, string.format("%.0f > %.0f", work - base, budget))
          assert.is_true(not cost or found.cost <= cost)
          cost = found.cost
        end
        assert.equal(neap.simulate(neap.plan("none", profile), profile).cost, cost)
        local plan, message = neap.plan(profile, { policy = "optimal", budget = least - 1 })
        assert.is_nil(plan)
        assert.matches(string.format("%.0f", least), message, 1, true)
      end)
    end)
  end
end
