-- auto_chunk with mode = "step": the largest size whose whole step fits, and nothing else changed.
local N = require("neap.ffi")
local chunk_search = require("neap.chunk_search")
local chunk_step = require("neap.chunk_step")
local fail = require("neap.fail")
local neap = require("neap")
local failure_of = require("spec.support.failure_of")
local models = require("spec.support.models")

local C, check, op = N.C, N.check, neap.op
local MIB, WIDTH = 2 ^ 20, 256

-- draws, has running statistics, and a tape of a few times 1 KiB an item
local Norm = neap.nn.class("Norm")
function Norm:init() self.norm = neap.nn.BatchNorm(WIDTH / 4) end
function Norm:forward(x)
  local n = x:dims()[1]
  return op.reshape(self.norm(op.reshape(x, { n, WIDTH / 4, 4 })), { n, WIDTH })
end

describe("auto_chunk over whole steps", function()
  local device, model, optimizer, lines

  local function chain()
    neap.manual_seed(3)
    local list = { { "norm", Norm() } }
    for i = 0, 2 do list[#list + 1] = { "layer." .. i, models.Layer(WIDTH, 0.1) } end
    list[#list + 1] = { "loss", models.Loss() }
    return neap.nn.Sequential(list)
  end

  local function batch(n)
    return { inputs = neap.full({ n, WIDTH }, 0.5), targets = neap.full({ n, WIDTH }, 1) }
  end

  local function collect()
    collectgarbage()
    collectgarbage()
  end

  setup(function() device = neap.device("cpu", { budget = 64 * MIB }) end)
  teardown(function()
    model, optimizer = nil, nil
    collect()
    pcall(device.close, device)
    neap.device("cpu")
  end)
  before_each(function()
    device:set_budget(64 * MIB)
    model = chain()
    optimizer = neap.optim.AdamW(model:parameters())
    lines = {}
  end)
  after_each(function()
    optimizer:free()
    if rawget(model, "_executor") then model._executor:free() end
    model:free()
    collect()
  end)

  local function live() return device:memory().live_bytes end

  local function probe(fields)
    local options = { mode = "step", model = model, batch = batch, cap = 1000,
      log = function(line) lines[#lines + 1] = line end }
    for key, value in pairs(fields or {}) do options[key] = value end
    return neap.auto_chunk(options)
  end

  -- the peak of a step of n items run by hand, or nil when memory runs out
  local function peak_of(n, plan)
    local ok, result = pcall(neap.scope, function()
      local profile = neap.scope(function()
        return neap.profile(model, batch(2), { cost = "flops" })
      end)
      local executor = neap.executor(model)
      collect()
      device:restart_peak("step")
      local ran, err = pcall(executor.run, executor, batch(n), neap.plan(plan, profile))
      executor:free()
      if not ran then error(err, 0) end
      return device:memory().peak.step
    end)
    model:zero_grad()
    if ok then return result end
    assert.is_true(fail.is(result, "out of memory"), fail.message(result))
  end

  it("takes the cap where everything fits, and ran it", function()
    local n, outcome = probe({ cap = 60 })
    assert.equal(60, n)
    assert.equal("chosen", outcome.kind)
    assert.equal(60, outcome.trials[#outcome.trials].n)
    assert.is_true(outcome.trials[#outcome.trials].fits)
    assert.matches("the cap fits", outcome.stop)
  end)

  it("under a hard budget takes the size above which memory really runs out", function()
    device:set_budget(live() + MIB)
    for _, plan in ipairs({ "none", "all", "segments:2", "every_n:2", "by_name:layer.1" }) do
      local n, outcome = probe({ plan = plan })
      assert.is_true(n > 1 and n < 1000, plan)
      assert.is_nil(peak_of(n + 1, plan), plan)
      assert.is_number(peak_of(n, plan))
      assert.is_true(#outcome.trials <= chunk_search.most_trials(1000))
      local ran = false
      for _, trial in ipairs(outcome.trials) do ran = ran or (trial.n == n and trial.fits) end
      assert.is_true(ran)
    end
  end)

  it("keeps a margin: one item more would go beyond it", function()
    local budget = live() + 2 * MIB
    device:set_budget(budget)
    local n, outcome = probe({ margin = 0.05 })
    assert.equal(0.05, outcome.margin)
    assert.is_true(outcome.used_bytes <= 0.95 * budget)
    local more
    for _, trial in ipairs(outcome.trials) do if trial.n == n + 1 then more = trial end end
    assert.is_true(more.bytes == nil or more.bytes > 0.95 * budget)
    assert.is_true(n < probe({ margin = 0 }))
    device:set_budget(64 * MIB)
    assert.is_true(peak_of(n + 1, "none") > 0.95 * budget)
  end)

  it("says what one item needs and what is free where it does not fit", function()
    device:set_budget(live() + 8192)
    -- the probe's own copies of the buffers are beside it
    local n, outcome = probe()
    assert.is_nil(n)
    assert.equal("nothing_fits", outcome.kind)
    assert.equal(8192, outcome.free_bytes)
    assert.is_true(outcome.needed_bytes > outcome.free_bytes - 8 * WIDTH * 4)
    assert.matches("out of memory on cpu", outcome.reason)
    assert.matches("auto_chunk: nothing fits: .*needs at least .* are free", lines[#lines])
  end)

  it("knows of no memory on a cpu without a budget: the default stays and nothing runs", function()
    device:set_budget(nil)
    local n, outcome = probe({ batch = error })
    assert.is_nil(n)
    assert.equal("unsupported", outcome.kind)
    assert.same({ "auto_chunk: the free memory is not told here, keep the default (cap 1000, "
      .. "floor 1)" }, lines)
  end)

  it("takes what it is told is free, and lets a step beyond it fail", function()
    device:set_budget(nil)
    local n, outcome = probe({ memory = function() return MIB end })
    assert.equal(MIB, outcome.free_bytes)
    assert.is_nil(device.budget_bytes)
    assert.is_nil(device:memory().budget_bytes)
    assert.is_true(n < 1000)
    device:set_budget(live() + MIB)
    assert.equal(probe(), n)
    device:set_budget(64 * MIB)
    assert.equal(n, probe({ memory = function() return MIB end }))
    assert.equal(64 * MIB, device:memory().budget_bytes)
    n = probe({ memory = "machine", cap = 8 })
    assert.equal(8, n)
  end)

  it("leaves everything as it was, bit for bit and byte for byte, when it succeeds, finds nothing "
    .. "and fails", function()
    local function state()
      local list, ids = {}, {}
      for _, group in ipairs({ model:parameters(), model:buffers(), optimizer:tensors() }) do
        for _, entry in ipairs(group) do list[#list + 1] = entry.tensor:bits() end
      end
      for _, p in ipairs(model:parameters()) do
        list[#list + 1] = p.tensor:grad():bits()
        ids[#ids + 1] = p.tensor:grad().id
      end
      return { list, ids, optimizer.steps, require("neap.rng").get(), live(),
        C.neap_scope_depth(), C.neap_tape_selected(), model.training,
        device:memory().budget_bytes }
    end
    neap.rng({ seed = 9, step = 4, item = 6, n_items = 3, call = 3 })
    for i, p in ipairs(model:parameters()) do p.tensor:grad():fill(i / 8) end
    model.stages[1].module.norm.running_mean:fill(0.25)
    for _, step in ipairs({ false, true }) do
      local manager
      if step then -- a script that has made steps already
        local _, executor = neap.step(model, batch(2), "all")
        manager = executor.manager:log()
      end
      collect()
      local before = state()
      assert.is_true(probe({ plan = "segments:2", cap = 12 }) > 1)
      assert.same(before, state())
      assert.is_nil(probe({ memory = function() return 8192 end }))
      assert.same(before, state())
      local runs = 0
      assert.equal("a bug", failure_of("shape mismatch", probe, { batch = function(n)
        runs = runs + 1
        if runs == 3 then fail.raise("shape mismatch", "a bug") end
        return batch(n)
      end }))
      assert.equal(3, runs)
      assert.same(before, state())
      if step then assert.same(manager, rawget(model, "_executor").manager:log()) end
    end
  end)

  it("holds nothing afterwards where there were no gradients yet", function()
    local other = chain()
    collect()
    local before = live()
    local n = probe({ model = other, cap = 4 })
    assert.equal(4, n)
    assert.equal(before, live())
    other:free()
  end)

  it("ends with an error where a trial ran nothing, or another number of items", function()
    assert.matches("batch(2) gave 1 items, expected exactly 2", failure_of("wrong state", probe,
      { batch = function() return batch(1) end }), 1, true)
    assert.matches("ran nothing", failure_of("wrong state", chunk_step.find, { device = device,
      cap = 4, limit = 64 * MIB, run = function() return 0 end }), 1, true)
  end)

  it("stops at a signal with everything as before", function()
    collect()
    local before = live()
    check(C.neap_signal_watch(1))
    local runs = 0
    local message = failure_of("interrupted", probe, { batch = function(n)
      runs = runs + 1
      os.execute("kill -TERM $PPID && sleep 0.1") -- the shell's parent is this process
      return batch(n)
    end })
    -- a watch that begins forgets what came before it
    for _, on in ipairs({ 0, 1, 0 }) do check(C.neap_signal_watch(on)) end
    assert.matches("everything is as before", message)
    assert.equal(1, runs)
    assert.equal(before, live())
  end)

  it("asks again each time: another budget, model or plan gives another answer", function()
    device:set_budget(live() + MIB)
    local small = probe({ plan = "none" })
    device:set_budget(live() + 2 * MIB)
    local large = probe({ plan = "none" })
    assert.is_true(large > small)
    assert.is_true(probe({ plan = "all" }) > large)
    assert.is_true(probe({ plan = "none", batch = function(n)
      return { inputs = neap.full({ n, WIDTH }, 0.5), targets = neap.full({ n, WIDTH }, 1),
        more = neap.full({ n, 8 * WIDTH }, 0) }
    end }) < large)
  end)

  it("runs what a function plans for each size, and believes it that no plan fits", function()
    local tried = {}
    device:set_budget(live() + 2 * MIB)
    local free = 1.6 * MIB -- less than there is: the plan says no first
    local function plan(n)
      tried[#tried + 1] = n
      local profile = neap.scope(function()
        return neap.profile(model, batch(n), { cost = "flops" })
      end)
      return neap.plan(profile, { policy = "optimal",
        budget = math.max(0, free - 2 * n * WIDTH * 4) })
    end
    local n, outcome = probe({ plan = plan })
    assert.equal(#tried, #outcome.trials)
    assert.is_true(n > probe({ plan = "none" }))
    local said = false
    for _, trial in ipairs(outcome.trials) do
      said = said or (trial.message or ""):find("least feasible peak", 1, true) ~= nil
    end
    assert.is_true(said)
  end)

  it("plans a mode from a few items, and a plan that is given for every size", function()
    device:set_budget(live() + 2 * MIB)
    local none = probe({ plan = "none" })
    assert.is_true(probe({ plan = "selective:matmul" }) > none)
    local profile = neap.profile(model, batch(2), { cost = "flops" })
    model:zero_grad()
    assert.equal(probe({ plan = "all" }), (probe({ plan = neap.plan("all", profile) })))
  end)

  it("logs every trial and one line with the outcome", function()
    device:set_budget(live() + MIB)
    local n, outcome = probe()
    assert.equal(#outcome.trials + 1, #lines)
    for i, trial in ipairs(outcome.trials) do
      assert.matches("auto_chunk: tried " .. trial.n .. " items: " .. (trial.fits and "fits with"
        or ".*out of memory"), lines[i])
    end
    assert.equal(outcome.line, lines[#lines])
    assert.matches("auto_chunk: " .. n .. " items, a step takes .*; limit .*, cap 1000, floor 1, "
      .. #outcome.trials .. " trials; stopped: " .. n + 1 .. " does not fit", outcome.line)
    local before = #lines
    probe({ log = false, cap = 2 })
    assert.equal(before, #lines)
  end)

  it("refuses misuse in one sentence, before anything runs", function()
    local function refused(pattern, fields)
      fields.batch = fields.batch or error
      assert.matches(pattern, failure_of("usage", probe, fields), 1, true)
    end
    refused("unknown mode 'stp', did you mean 'step'?", { mode = "stp" })
    refused("unknown option 'target'", { target = 0.5 })
    refused("auto_chunk: cap must be", { cap = 0 })
    refused("auto_chunk: floor must be", { floor = 1.5 })
    for _, margin in ipairs({ -0.1, 1, 0 / 0, "5%" }) do
      refused("auto_chunk: margin must be a share", { margin = margin })
    end
    refused("auto_chunk: batch must be a function", { batch = 5 })
    refused("greedy:4096 looks at bytes", { plan = "greedy:4KiB" })
    refused("optimal:auto looks at bytes", { plan = "optimal:auto" })
    refused("segments:auto looks at bytes", { plan = "segments:auto" })
    refused("segments:99", { plan = "segments:99" })
    refused("expected a plan (neap.plan)", { plan = function() return 5 end })
    refused("auto_chunk: expected a Sequential, found 5", { model = 5 })
    refused("auto_chunk: log", { log = 5 })
  end)
end)

describe("the margin of a probe", function()
  it("of 10% of 1,000 free bytes lets peaks of 900 through and none above", function()
    local device = neap.device("null", { size = 64000 })
    for per_item, expected in pairs({ [64 * 90] = 10, [64 * 91] = 9, [64] = 900 }) do
      local found = chunk_step.find({ device = device, cap = 2000, limit = 64000, margin = 0.1,
        run = function(n) return neap.empty({ n, per_item / 4 }) and n end })
      assert.equal(expected, found.n)
      assert.is_true(found.bytes <= 57600)
    end
    neap.device("cpu")
    device:close()
  end)

  it("is no reason to try beyond the items that there are", function()
    local device = neap.device("null", { size = 2 ^ 40 })
    local found = chunk_step.find({ device = device, cap = 1000, limit = 2 ^ 40,
      run = function(n) return neap.empty({ n, 16 }) and n end })
    assert.equal(1000, found.n)
    local ran = false
    for _, trial in ipairs(found.trials) do
      assert.is_true(trial.n <= 1000)
      ran = ran or trial.n == 1000
    end
    assert.is_true(ran)
    neap.device("cpu")
    device:close()
  end)

  it("between 4 that fit and 8 that do not finds the largest of 5, 6 and 7", function()
    for fits = 4, 7 do
      local device = neap.device("null", { size = 64 * fits })
      local found = chunk_step.find({ device = device, cap = 64, limit = 64 * fits,
        run = function(n) return neap.empty({ n, 16 }) and n end })
      assert.equal(fits, found.n)
      neap.device("cpu")
      device:close()
    end
  end)

  it("answers a size that ran where memory does not grow with the size", function()
    local device = neap.device("null", { size = 4096 })
    local found = chunk_step.find({ device = device, cap = 100, limit = 4096,
      run = function(n) return neap.empty({ 16 }) and n end })
    assert.equal(100, found.n)
    assert.equal(100, found.trials[#found.trials].n)
    neap.device("cpu")
    device:close()
  end)
end)
