-- Each native allocation of a small program made to fail, once and from then on: an error or a
-- success by a second try, nothing left behind, and afterwards the same bits.
local neap = require("neap")
local native = require("neap.ffi")
local fail = require("neap.fail")

local C, check = native.C, native.check

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("when an allocation fails", function()
  local device
  setup(function() device = neap.device("cpu", { budget = "64MiB" }) end)
  teardown(function()
    device:close()
    neap.device("cpu")
  end)
  after_each(function() check(C.neap_memory_fail(0, 0)) end)

  local function collect()
    jit.flush() -- compiled code may hold on to handles
    collectgarbage()
    collectgarbage()
  end

  local halves = neap.op.define({
    name = "halves_of_faults_spec",
    n_inputs = 1,
    n_outputs = 2,
    forward = function(save, x)
      save(x)
      return neap.op.scale(x, 0.5), neap.op.multiply(x, x)
    end,
    backward = function(saved, a, b)
      return neap.op.add(neap.op.scale(a, 0.5), neap.op.multiply(b, neap.op.scale(saved[1], 2)))
    end,
  })

  local function build()
    neap.manual_seed(3)
    local model = neap.nn.Sequential({
      { "up", neap.nn.Linear(5, 8) }, { "act", neap.nn.GELU() }, { "norm", neap.nn.LayerNorm(8) },
      { "down", neap.nn.Linear(8, 4) },
    })
    return model, neap.optim.AdamW(model:parameters())
  end

  local function forward(model)
    local x = neap.tensor({ 1, -2, 3, 0.5, 0, 2, 2, -1, 1, 0 }, { 2, 5 })
    local logits = model(x)
    return neap.op.cross_entropy(logits, neap.tensor({ 1, 3 }, { 2 }, { dtype = "i32" }))
  end

  local function bits_of(tensors)
    local bits = {}
    for _, t in ipairs(tensors) do bits[#bits + 1] = table.concat(t:bits(), " ") end
    return table.concat(bits, "\n")
  end

  local programs = {
    { "builds a model", function()
      local model, optimizer = build()
      model:free()
      optimizer:free()
      return "built"
    end },
    { "trains a model", function()
      local model, optimizer = build()
      local losses = {}
      for step = 1, 2 do
        neap.scope(function()
          local loss = forward(model)
          model:zero_grad()
          loss:backward()
          losses[step] = loss
          optimizer:step(1e-2)
          losses[step] = bits_of({ loss })
        end)
      end
      local found = { losses[1], losses[2] }
      for _, p in ipairs(model:parameters()) do
        found[#found + 1] = bits_of({ p.tensor, p.tensor:grad() })
      end
      model:free()
      optimizer:free()
      return table.concat(found, "\n")
    end },
    { "runs ops of Lua, views and copies", function()
      return neap.scope(function()
        local x = neap.tensor({ 1, 2, 3, 4, 5, 6 }, { 2, 3 }, { requires_grad = true })
        local a, b = halves(neap.op.reshape(neap.op.add(x, x), { 3, 2 }))
        local rows = neap.op.narrow(neap.op.multiply(a, b), 2, 2)
        local y = neap.op.matmul(rows, rows, false, true)
        neap.op.add(neap.op.sum(y), neap.op.mean(neap.op.dropout(y, 0.5))):backward()
        local copy = neap.zeros({ 2, 3 }):copy_from(x)
        return bits_of({ y, x:grad(), copy:detach() })
      end)
    end },
  }

  local function run(program)
    neap.rng({ seed = 4 })
    return program()
  end

  -- what was tried, and how often the program passed in spite of it
  local function every(program, count)
    local expected = run(program)
    collect()
    local live, tensors = device:memory().live_bytes, device:memory().n_tensors
    local nodes, k, n_passed = C.neap_tape_n_nodes(C.neap_tape_selected()), 0, 0
    repeat
      k = k + 1
      check(C.neap_memory_fail(k, count))
      local ok, found = pcall(run, program)
      local n_attempts = C.neap_memory_n_attempts()
      check(C.neap_memory_fail(0, 0))
      local where = "allocation " .. k .. ": "
      if ok then
        n_passed = n_passed + 1
        if found ~= expected then error(where .. "other bits than without a failure") end
      else
        if not fail.is(found, "out of memory") then error(where .. tostring(found)) end
        found = nil -- luacheck: ignore 311
      end
      collect()
      assert.equal(0, C.neap_scope_depth())
      assert.equal(nodes, C.neap_tape_n_nodes(C.neap_tape_selected()))
      local memory = device:memory()
      if memory.live_bytes ~= live or memory.n_tensors ~= tensors then
        error(("%s%d bytes in %d tensors are left"):format(where, memory.live_bytes - live,
          memory.n_tensors - tensors))
      end
      if k % 5 == 1 and run(program) ~= expected then error(where .. "other bits afterwards") end
      collect()
    until n_attempts < k
    return k - 1, n_passed - 1
  end

  local least = { 20, 50, 20 }
  for i, entry in ipairs(programs) do
    alone("once, a second try helps each program that " .. entry[1], function()
      local n, n_passed = every(entry[2], 1)
      assert(n >= least[i], n)
      assert(n_passed >= 0.9 * n, n_passed .. " of " .. n)
    end)

    alone("from then on, each program fails that " .. entry[1], function()
      local n, n_passed = every(entry[2], -1)
      assert(n >= least[i], n)
      assert.equal(0, n_passed)
    end)
  end

  alone("says that it was made to", function()
    check(C.neap_memory_fail(1, -1))
    local ok, err = pcall(neap.zeros, { 3 })
    check(C.neap_memory_fail(0, 0))
    assert.is_false(ok)
    assert(fail.message(err):find("the allocation was made to fail; asked 64 bytes", 1, true))
    for _, bad in ipairs({ -1, 0 / 0, 1e300 }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_memory_fail(bad, 1))
    end
  end)
end)
