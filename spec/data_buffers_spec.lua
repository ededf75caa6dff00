-- Buffers that C would not guard: a batch is checked before anything is written.
local data_module = require("neap.data")
local fail = require("neap.fail")
local ffi = require("ffi")
local script = require("spec.support.script")
local state = require("neap.state")

describe("asked for a batch", function()
  local directory, data, inputs, targets

  setup(function()
    directory = script.directory()
    data = data_module.open(script.write(directory .. "/t.txt", ("low tide. "):rep(50)),
      { context = 8 })
    inputs, targets = ffi.new("int32_t[16]"), ffi.new("int32_t[16]")
  end)
  teardown(function() script.remove(directory) end)

  local wrong = {
    { "more items than the buffers hold", function() data:batch(0, 3, inputs, targets) end },
    { "tables as buffers", function() data:batch(0, 1, {}, {}) end },
    { "no buffers", function() data:validation_batch(0, 1) end },
    { "half an item", function() data:batch(0, 1.5, inputs, targets) end },
    { "a negative position", function() data:validation_batch(-1, 1, inputs, targets) end },
    { "position NaN", function() data:batch(0 / 0, 1, inputs, targets) end },
    { "another object", function() data.batch({}, 0, 1, inputs, targets) end },
  }
  for _, case in ipairs(wrong) do
    it("with " .. case[1] .. ", refuses", function()
      local ok, err = pcall(case[2])
      assert.is_false(ok)
      assert.is_true(fail.is(err, "invalid argument"), tostring(err))
    end)
  end

  it("that fits, fills it", function()
    data:batch(0, 2, inputs, targets)
    assert.equal(inputs[1], targets[0])
  end)

  it("state.save and state.load without their parts refuse, too", function()
    for _, call in ipairs({ state.save, state.load }) do
      for _, arguments in ipairs({ {}, { directory .. "/s" }, { directory .. "/s", {} } }) do
        local ok, err = pcall(call, unpack(arguments))
        assert.is_false(ok)
        assert.is_true(fail.is(err, "invalid argument"), tostring(err))
      end
    end
  end)
end)
