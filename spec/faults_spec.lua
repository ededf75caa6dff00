-- Every allocation can fail: the k-th one fails, for every k, once and from then on. Then memory
-- and parameters are as before, and the next step has the bits of a run that never failed.
local C = require("neap.ffi").C
local fail = require("neap.fail")
local neap = require("neap")
local script = require("spec.support.script")
local state = require("neap.state")

describe("when the k-th allocation fails", function()
  local device, batch, directory
  local n_faults = 0

  local function build()
    neap.manual_seed(2)
    local model = neap.nn.GPT({ vocabulary = 13, context = 8, width = 16, n_layer = 3, n_head = 2,
      dropout = 0.1 })
    local ok, optimizer = pcall(function()
      model:zero_grad()
      return neap.optim.AdamW(model:parameters())
    end)
    if not ok then
      model:free()
      error(optimizer, 0)
    end
    return model, optimizer
  end

  local function step(model, optimizer, plan)
    model:zero_grad()
    neap.rng({ seed = 4, step = 1, n_items = 2 })
    local loss = neap.step(model, batch, plan)
    local norm = neap.optim.grad_norm(model:parameters()):measure()
    optimizer:step(1e-2, 1 / norm)
    return string.format("%.17g %.17g", loss, norm)
  end

  local function bits(model, optimizer)
    local all = {}
    for _, e in ipairs(state.entries(model, optimizer)) do
      all[#all + 1] = table.concat(e.tensor:bits(), ",")
    end
    return table.concat(all, ";")
  end

  setup(function()
    directory = script.directory()
    device = neap.device("cpu", { budget = "256MiB" })
    local ids, targets = {}, {}
    for i = 1, 16 do ids[i], targets[i] = i * 5 % 13, (i * 5 + 3) % 13 end
    batch = { inputs = neap.tensor(ids, { 2, 8 }, { dtype = "i32" }),
      targets = neap.tensor(targets, { 2, 8 }, { dtype = "i32" }) }
  end)
  teardown(function()
    C.neap_memory_fail(0, 0)
    script.remove(directory)
    io.write(string.format("\n%d allocation faults\n", n_faults))
  end)

  -- runs scenario with the k-th allocation failing, k = 1, 2, ... until none is reached; after(ok)
  -- checks what is left
  local function for_every_fault(scenario, after)
    for _, count in ipairs({ 1, -1 }) do
      local k = 0
      repeat
        k = k + 1
        assert.equal(0, C.neap_memory_fail(k, count))
        local ok, err = pcall(scenario)
        local reached = C.neap_memory_n_attempts() >= k
        C.neap_memory_fail(0, 0)
        if reached then n_faults = n_faults + 1 end
        if not ok then
          assert.is_true(fail.is(err, "out of memory"), tostring(err))
          assert.matches("out of memory", err.message)
        end
        after(ok)
      until not reached
      assert.is_true(k > 3)
    end
  end

  it("in building a model and its optimizer, nothing is left", function()
    collectgarbage()
    collectgarbage()
    local live = device:memory().live_bytes
    local model, optimizer
    for_every_fault(function() model, optimizer = build() end, function(ok)
      if ok then
        model:free()
        optimizer:free()
      end
      model, optimizer = nil, nil
      collectgarbage()
      collectgarbage()
      assert.equal(live, device:memory().live_bytes)
    end)
  end)

  for _, policy in ipairs({ "none", "all", "segments:2" }) do
    it("in a step under " .. policy .. ", the next step is as if it had not", function()
      local model, optimizer = build()
      local plan = neap.plan(policy, neap.profile(model, batch, { cost = "flops" }))
      local reference_model, reference_optimizer = build()
      local reference = step(reference_model, reference_optimizer, plan)
      local after_step = bits(reference_model, reference_optimizer)
      local start = directory .. "/start.safetensors"
      state.save(start, { model = model, optimizer = optimizer,
        counts = { step = 0, position = 0, seed = 4 } })
      local before, live = bits(model, optimizer), device:memory().live_bytes
      local scopes, tape = C.neap_scope_depth(), C.neap_tape_selected()
      for_every_fault(function() step(model, optimizer, plan) end, function(ok)
        assert.equal(scopes, C.neap_scope_depth())
        assert.equal(tape, C.neap_tape_selected())
        if ok then
          assert.equal(after_step, bits(model, optimizer))
          state.load(start, { model = model, optimizer = optimizer })
        end
        assert.equal(live, device:memory().live_bytes)
        assert.equal(before, bits(model, optimizer))
        assert.equal(reference, step(model, optimizer, plan))
        assert.equal(after_step, bits(model, optimizer))
        state.load(start, { model = model, optimizer = optimizer })
      end)
      for _, m in ipairs({ model, optimizer, reference_model, reference_optimizer }) do m:free() end
    end)
  end

  it("in saving a state, the old file stays; in loading one, parameters do", function()
    local model, optimizer = build()
    local path = directory .. "/state.safetensors"
    local what = { model = model, optimizer = optimizer,
      counts = { step = 3, position = 6, seed = 4 } }
    state.save(path, what)
    local live, saved = device:memory().live_bytes, bits(model, optimizer)
    for_every_fault(function() state.save(path, what) end, function()
      assert.equal(3, state.peek(path).step)
      assert.equal(live, device:memory().live_bytes)
    end)
    for_every_fault(function() state.load(path, what) end, function()
      assert.equal(live, device:memory().live_bytes)
      assert.equal(saved, bits(model, optimizer))
    end)
    local pipe = io.popen("ls -A " .. directory .. " | grep -v safetensors$")
    assert.equal("", pipe:read("*a"))
    pipe:close()
    model:free()
    optimizer:free()
  end)

  it("in the first step of a process, all its tables still to be made, it is an error", function()
    local code = [[
      local C = require("neap.ffi").C
      local k, count = tonumber(arg[1]), tonumber(arg[2])
      C.neap_memory_fail(k, count)
      local ok, err = pcall(function()
        local neap = require("neap")
        neap.device("cpu")
        local l = neap.nn.Linear(4, 4)
        local x = neap.full({ 2, 4 }, 1)
        neap.scope(function() neap.op.mean(l(x)):backward() end)
      end)
      local reached = C.neap_memory_n_attempts() >= k
      C.neap_memory_fail(0, 0)
      if not ok and not tostring(err):find("out of memory", 1, true) then error(err) end
      os.exit(reached and 0 or 9)
    ]]
    local path = script.write(directory .. "/first.lua", code)
    local lua_path = package.path
    for _, count in ipairs({ 1, -1 }) do
      local k = 0
      repeat
        k = k + 1
        local status = os.execute(string.format("LUA_PATH='%s' luajit %s %d %d", lua_path, path, k,
          count))
        local reached = status ~= 9 * 256 -- the child's word
        if reached then
          assert.equal(0, status)
          n_faults = n_faults + 1
        end
      until not reached
      assert.is_true(k > 10)
    end
  end)
end)
