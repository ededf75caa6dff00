-- What runs between two looks at a device and leaves nothing behind.
local N = require("neap.ffi")
local neap = require("neap")
local unchanged = require("neap.unchanged")

local C, check = N.C, N.check

local function result_of(ok, value)
  if not ok then error(value, 0) end
  return value
end

describe("what is put back after a trial", function()
  it("are tags, tapes and the recomputing flag", function()
    local function free_tape()
      local id = check(C.neap_tape_new())
      C.neap_tape_free(id)
      return id % 2 ^ 16
    end
    local free = free_tape()
    C.neap_tag_select(C.NEAP_TAG_CHECK)
    C.neap_recomputing_set(1)
    local value = unchanged.run(result_of, function(a)
      assert.equal(0, C.neap_recomputing())
      assert.equal(C.NEAP_TAG_ACTIVATIONS, C.neap_tag_select(C.NEAP_TAG_BATCH))
      return a + 1
    end, 4)
    local recomputing = C.neap_recomputing_set(0)
    assert.equal(C.NEAP_TAG_CHECK, C.neap_tag_select(C.NEAP_TAG_ACTIVATIONS))
    assert.equal(5, value)
    assert.equal(1, recomputing)
    assert.equal(free, free_tape())
  end)

  it("are gradients; those that appeared in it go", function()
    local linear = neap.nn.Linear(8, 8)
    local weight = linear:parameters()[1].tensor
    weight:grad():fill(0.25)
    local device = neap.device("cpu")
    collectgarbage()
    local before = device:memory().tags.gradients
    unchanged.run(result_of, function()
      neap.backward(neap.op.mean(linear(neap.full({ 4, 8 }, 1))))
      assert.not_equal(0.25, weight:grad():table()[1])
    end)
    assert.equal(before, device:memory().tags.gradients)
    assert.equal(0.25, neap.op.mean(weight:grad()):item())
    assert.equal(0, neap.op.sum(linear:parameters()[2].tensor:grad()):item())
  end)

  it("is all of it before an error goes on", function()
    local depth, tape = C.neap_scope_depth(), C.neap_tape_selected()
    local ok, err = pcall(unchanged.run, result_of, function()
      neap.full({ 4 }, 1)
      C.neap_tape_select(0)
      error("half-way", 0)
    end)
    assert.is_false(ok)
    assert.equal("half-way", err)
    assert.equal(depth, C.neap_scope_depth())
    assert.equal(tape, C.neap_tape_selected())
  end)
end)

describe("the list of living tensors of a tag", function()
  it("counts them and fills what there is room for", function()
    local ffi = N.ffi
    local before = check(C.neap_tensor_list(C.NEAP_TAG_CHECK, 0, nil))
    neap.scope(function()
      local a = neap.empty({ 2 }, { tag = C.NEAP_TAG_CHECK })
      neap.empty({ 2 }, { tag = C.NEAP_TAG_CHECK })
      local ids = ffi.new("double[?]", before + 2)
      assert.equal(before + 2, C.neap_tensor_list(C.NEAP_TAG_CHECK, before + 2, ids))
      local found = false
      for i = 0, before + 1 do
        assert.equal(1, C.neap_tensor_alive(ids[i]))
        found = found or ids[i] == a.id
      end
      assert.is_true(found)
      ids[0] = 0
      assert.equal(before + 2, C.neap_tensor_list(C.NEAP_TAG_CHECK, 0, ids))
      assert.equal(0, ids[0])
    end)
    assert.equal(before, C.neap_tensor_list(C.NEAP_TAG_CHECK, 0, nil))
    for _, tag in ipairs({ -1, C.NEAP_N_TAGS }) do
      assert.equal(C.NEAP_ERR_INVALID, C.neap_tensor_list(tag, 0, nil))
    end
    assert.equal(C.NEAP_ERR_INVALID, C.neap_tensor_list(0, 1, nil))
  end)
end)
