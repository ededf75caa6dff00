local N = require("neap.ffi")
local fail = require("neap.fail")
local managers = require("neap.checkpoint.manager")
local failure_of = require("spec.support.failure_of")

local C, check = N.C, N.check

describe("a checkpoint manager at its limits", function()
  it("accepts any cost", function()
    local manager = managers.new("all")
    manager:record_size("nan", 0, { 1 }, 0 / 0)
    manager:record_size("negative", 1, { 1 }, -1)
    local list = manager:snapshots()
    assert.is_true(list[1].cost ~= list[1].cost)
    assert.equal(-1, list[2].cost)
  end)

  it("refuses sums that 64 bits do not hold", function()
    local manager = managers.new("none")
    manager:record_size("a", 0, { 2ULL ^ 61 })
    local stats = manager:stats()
    assert.is_true(stats.stored_bytes == 2ULL ^ 63)
    assert.matches("9223372036854775808 bytes beside the 9223372036854775808 that are stored",
      failure_of("size overflow", manager.record_size, manager, "b", 1, { 2ULL ^ 61 }), 1, true)
    assert.same(stats.n_snapshots, manager:stats().n_snapshots)
    manager:set_policy("all")
    manager:record_size("b", 1, { 2ULL ^ 61 })
    assert.equal(0.5, manager:stats().savings_ratio)
  end)

  it("shortens a shape that is too long to show", function()
    local shape = {}
    for i = 1, 200 do shape[i] = 1234567890123ULL end
    local manager = managers.new("none")
    local message = failure_of("size overflow", manager.record_size, manager, "a", 0, shape)
    assert.matches("%[1234567890123, .*, %.%.%.%] do not fit in 64 bits", message)
  end)

  it("finds a name among ten thousand, whatever was released between", function()
    local manager = managers.new("every_n:2")
    for i = 0, 9999 do manager:record_size("layer." .. i, i, { i }) end
    for i = 9999, 0, -1 do
      if i % 3 > 0 then manager:release("layer." .. i) end
    end
    for i = 0, 9999 do
      local ok, err = pcall(manager.get, manager, "layer." .. i)
      if i % 3 == 0 then
        assert(ok == (i % 2 == 1) and (ok or fail.is(err, "usage")), i)
      else
        assert(not ok and fail.is(err, "not found"), i)
      end
    end
    assert.equal(3334, manager:stats().n_snapshots)
  end)

  it("leaves everything as it was when memory fails, whichever allocation it is", function()
    local function script(manager)
      manager:record_data("a", 0, { 1, 2 }, { 2 })
      manager:record_data("b", 1, { 3 }, { 1 })
      for i = 1, 20 do manager:get("a", function() return { 1, i } end) end
      for i = 2, 30 do manager:record_size("c" .. i, i, { i }) end
      manager:set_policy({ policy = "by_name", names = { "a", "b" } })
    end
    local wanted = managers.new("every_n:2")
    script(wanted)
    local n = 0
    repeat
      n = n + 1
      check(C.neap_memory_fail(n, 1))
      local ok, manager = pcall(managers.new, "every_n:2")
      if ok then
        -- the same call again after the failure has to do what it should have done
        for _, method in ipairs({ "record_data", "record_size", "get", "set_policy" }) do
          manager[method] = function(self, ...)
            local original, stats = getmetatable(self)[method], self:stats()
            local done, result = pcall(original, self, ...)
            if done then return result end
            assert.is_true(fail.is(result, "out of memory"), tostring(result))
            assert.same(stats, self:stats())
            return original(self, ...)
          end
        end
        script(manager)
        assert.same(wanted:stats(), manager:stats())
        assert.same(wanted:snapshots(), manager:snapshots())
        assert.same(wanted:log(), manager:log())
      else
        assert.is_true(fail.is(manager, "out of memory"), tostring(manager))
      end
    until C.neap_memory_n_attempts() < n or n > 500
    check(C.neap_memory_fail(0, 0))
    assert.is_true(n > 20 and n <= 500, n)
  end)
end)
