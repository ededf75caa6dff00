local c_manager = require("spec.support.c_manager")
local fail = require("neap.fail")
local managers = require("neap.checkpoint.manager")
local vectors = require("spec.support.vectors")
local failure_of = require("spec.support.failure_of")

local KINDS = {
  All = "all", None = "none", EveryN = "every_n", ByName = "by_name", GreedyMemory = "greedy",
}
local ERRORS = {
  LayerNotFound = "not found", RecomputationFailed = "recomputation failed",
  InvalidShape = "shape mismatch", SizeOverflow = "size overflow", DuplicateLayer = "duplicate",
}

local function options_of(row_policy)
  return {
    policy = KINDS[row_policy.kind], n = row_policy.n, names = row_policy.prefixes,
    budget = row_policy.budget_bytes,
  }
end

local function debug_shape(list) return "[" .. table.concat(list, ", ") .. "]" end

local function check_after(manager, after, id, by_size)
  local stats = manager:stats()
  local function same(expected, field) assert.is_true(vectors.same(expected, stats[field]), id) end
  same(after.stored_bytes, "stored_bytes")
  same(after.checkpointed_bytes, "checkpointed_bytes")
  same(after.recomputed_bytes, "recomputed_bytes")
  same(after.num_stored_layers, "n_stored")
  same(after.num_checkpointed_layers, "n_checkpointed")
  same(after.snapshots, "n_snapshots")
  assert.equal(after.memory_savings_ratio_bits, vectors.bits(stats.savings_ratio), id)
  -- the seed does not call a stored size stored; here both numbers are one
  same(by_size and after.stored_bytes or after.current_memory_bytes, "current_bytes")
  assert.same(after.recompute_log, manager:log(), id)
  assert.equal(#after.recompute_log, stats.n_log, id)
end

local function check_snapshot(manager, expected, op, by_size, id)
  local snapshot = manager:snapshots()[manager:stats().n_snapshots]
  assert.equal(op.name, snapshot.name, id)
  assert.equal(expected.is_checkpointed, snapshot.is_checkpointed, id)
  assert.equal(not expected.is_checkpointed, snapshot.is_stored, id)
  assert.equal(by_size and 0 or expected.data_len, snapshot.n_data, id)
  assert.equal(expected.computation_cost, vectors.f32(snapshot.cost), id)
  assert.same(op.shape, snapshot.shape, id)
end

local function closure_of(recompute, calls)
  return function()
    calls.n = calls.n + 1
    if recompute.returns == "ok" then return recompute.data end
    local kind, text = ERRORS[recompute.error[1]], recompute.error[2]
    local message = kind == "not found" and "checkpoint layer not found: '" .. text .. "'"
      or "recomputation failed: " .. text
    fail.raise(kind, message)
  end
end

-- one op of a row against the seed's own result
local function run_as_seed(manager, op, by_size, id)
  if op.op == "record" then
    if by_size then
      manager:record_size(op.name, op.idx, op.shape, op.cost)
    else
      manager:record_data(op.name, op.idx, op.data, op.shape, op.cost)
    end
    check_snapshot(manager, op.snapshot, op, by_size, id)
  elseif op.op == "get" then
    local calls = { n = 0 }
    local closure = closure_of(op.recompute, calls)
    if op.result == "ok" then
      assert.same(op.data, manager:get(op.name, closure), id)
    else
      local message = failure_of(ERRORS[op.error], manager.get, manager, op.name, closure)
      assert.equal(op.display, message, id)
    end
    assert.equal(op.recompute_called and 1 or 0, calls.n, id)
  elseif op.op == "clear" then
    manager:clear()
  else
    assert.equal("set_policy", op.op)
    manager:set_policy(options_of(op.policy))
  end
  check_after(manager, op.after, id, by_size)
end

local function untouched(manager, fn)
  local before, log = manager:stats(), manager:log()
  fn()
  assert.same(before, manager:stats())
  assert.same(log, manager:log())
end

-- a record or a get that right refuses: the error's kind and text, and nothing changed
local function refuses_shape(manager, op, right, id)
  untouched(manager, function()
    local display = string.format("shape mismatch: expected %s, got %s",
      debug_shape(right.expected), debug_shape(right.got))
    local message
    if op.op == "record" then
      message = failure_of("shape mismatch", manager.record_data, manager, op.name, op.idx, op.data,
        op.shape, op.cost)
    else
      message = failure_of("shape mismatch", manager.get, manager, op.name,
        closure_of(op.recompute, { n = 0 }))
    end
    assert.equal(display, message, id)
  end)
end

local function record(manager, op)
  return manager:record_data(op.name, op.idx, op.data, op.shape, op.cost)
end

-- the rows whose right differs from what the seed did
local RIGHT = {}

-- the budget counts: everything is stored
function RIGHT.T05(manager, row)
  for _, op in ipairs(row.ops) do assert.equal("stored", record(manager, op)) end
  assert.equal(row.right.stored_bytes, manager:stats().stored_bytes)
  assert.equal(row.right.checkpointed_bytes, manager:stats().checkpointed_bytes)
end

-- the empty tensor is stored, as the seed's flag says; its is_stored did not
local function stores_empty(manager, row)
  for _, op in ipairs(row.ops) do run_as_seed(manager, op, false, row.id) end
  local list = manager:snapshots()
  assert.is_true(row.right.is_stored)
  assert.is_true(list[#list].is_stored)
  assert.equal(0, list[#list].logical_bytes)
end
RIGHT.T06, RIGHT.T28 = stores_empty, stores_empty

-- get of a stored empty tensor gives it
local function gets_empty(manager, row)
  run_as_seed(manager, row.ops[1], false, row.id)
  local calls = { n = 0 }
  local data = manager:get("x", closure_of(row.ops[2].recompute, calls))
  assert.same({}, data)
  assert.equal(0, calls.n)
  assert.same({}, manager:log())
end
function RIGHT.T07(manager, row)
  gets_empty(manager, row)
  assert.is_false(row.right.recompute_called)
  assert.same({}, row.right.recompute_log)
end
function RIGHT.T08(manager, row)
  gets_empty(manager, row)
  assert.equal("ok", row.right.result)
  assert.same({}, row.right.data)
end

local function refuses_record(manager, row)
  refuses_shape(manager, row.ops[1], row.right, row.id)
  assert.equal("InvalidShape", row.right.error)
  failure_of("not found", manager.get, manager, row.ops[1].name)
end
for _, id in ipairs({ "T10", "T11", "T12", "T13" }) do RIGHT[id] = refuses_record end

local function refuses_second(manager, row)
  assert.equal("err DuplicateLayer", row.right.second_record)
  run_as_seed(manager, row.ops[1], false, row.id)
  untouched(manager, function()
    local message = failure_of("duplicate", record, manager, row.ops[2])
    assert.equal("checkpoint layer 'a' is recorded already (index 0, 4 bytes)", message)
  end)
  local get = row.ops[3]
  assert.same(get.data, manager:get("a", closure_of(get.recompute, { n = 0 })))
end
RIGHT.T14, RIGHT.T15 = refuses_second, refuses_second

-- the closure's message, once; nothing counted
function RIGHT.T17(manager, row)
  run_as_seed(manager, row.ops[1], false, row.id)
  local message = failure_of("recomputation failed", manager.get, manager, "a",
    closure_of(row.ops[2].recompute, { n = 0 }))
  assert.equal(row.right.display, message)
  check_after(manager, row.ops[2].after, row.id)
end

-- the closure's kind
function RIGHT.T18(manager, row)
  run_as_seed(manager, row.ops[1], false, row.id)
  assert.matches("LayerNotFound", row.right.keep_source)
  local message = failure_of("not found", manager.get, manager, "a",
    closure_of(row.ops[2].recompute, { n = 0 }))
  assert.equal(row.ops[2].display, message)
  check_after(manager, row.ops[2].after, row.id)
end

function RIGHT.T19(manager, row)
  run_as_seed(manager, row.ops[1], false, row.id)
  refuses_shape(manager, row.ops[2], row.right, row.id)
  check_after(manager, row.ops[1].after, row.id)
end

-- sizes without data
local function records_size(manager, row)
  assert.equal("record_size", row.right.via)
  assert.equal("ok", row.right.result)
  for _, op in ipairs(row.ops) do run_as_seed(manager, op, true, row.id) end
end
RIGHT.T24, RIGHT.T32 = records_size, records_size

local function refuses_overflow(manager, row)
  assert.equal("SizeOverflow", row.right.error)
  local op = row.ops[1]
  untouched(manager, function()
    assert.matches("do not fit in 64 bits", failure_of("size overflow", record, manager, op))
    assert.matches("do not fit in 64 bits", failure_of("size overflow", manager.record_size,
      manager, op.name, op.idx, op.shape, op.cost))
  end)
end
RIGHT.T25, RIGHT.T26 = refuses_overflow, refuses_overflow

function RIGHT.T27(manager, row)
  stores_empty(manager, row)
  assert.equal(row.right.numel, manager:snapshots()[1].n_elements)
end

for side, new in pairs({ C = c_manager.new, Lua = managers.new }) do
  describe("the checkpoint manager on seed_stats.json, by the " .. side .. " API,", function()
    local n, n_right, mended = 0, 0, 0
    for _, row in ipairs(vectors.load("seed_stats").rows) do
      n, n_right = n + 1, n_right + (row.right and 1 or 0)
      it(string.format("does row %s as it should: %s", row.id, row.title), function()
        local manager = new(options_of(row.policy))
        if row.right then
          RIGHT[row.id](manager, row)
        else
          for i, op in ipairs(row.ops) do
            run_as_seed(manager, op, false, row.id .. ", op " .. i)
          end
        end
      end)
    end

    it("runs all of its rows", function()
      for _ in pairs(RIGHT) do mended = mended + 1 end
      assert.equal(36, n)
      assert.equal(19, n_right)
      assert.equal(19, mended)
    end)
  end)
end
