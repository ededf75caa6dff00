-- step(n) at the prompt: Ctrl-C or an error anywhere in it takes all of it back.
local ffi_neap = require("neap.ffi")
local script = require("spec.support.script")
local support = require("spec.support.repl")
local C, ffi = ffi_neap.C, ffi_neap.ffi

ffi.cdef("int raise(int);")

describe("step at the prompt", function()
  local directory, data, repl
  setup(function()
    directory = script.directory()
    data = support.text(directory)
  end)
  teardown(function() script.remove(directory) end)
  after_each(function() repl.close() end)

  -- all that a training is
  local function state()
    local t, rng = repl.session.trainer, ffi.new("neap_rng_state")
    C.neap_rng_get(rng)
    return { hash = t:state_hash(), step = t.step, position = t.position, loss = t.loss,
      updates = t.optimizer.steps, rng = ffi.string(rng, ffi.sizeof(rng)),
      live = C.neap_memory_live(t.device.id), seconds = #t.seconds }
  end

  it("trains as train.lua does: two steps are two updates", function()
    repl = support.new(data)
    local said = repl.feed("step(2)")
    assert.matches("step 1/50 loss [%d.]+ gnorm", said)
    assert.matches("step 2/50 loss", said)
    assert.equal(2, repl.session.trainer.step)
    assert.equal(8, repl.session.trainer.position)
  end)

  -- each step of two chunks asks before both and at its end
  for stop = 1, 9 do
    it(string.format("stopped at the %d. question leaves everything as it was", stop), function()
      local asked, at = 0, math.huge
      repl = support.new(data, { stop_asked = function()
        asked = asked + 1
        return asked >= at
      end })
      repl.feed("step(1)")
      local before = state()
      asked, at = -1, stop -- the first question is whether to begin
      local said, complaint = repl.feed("step(3)")
      assert.matches(string.format("stopped by Ctrl%%-C in step %d of 3", math.ceil(stop / 3)),
        complaint)
      local _, lines = said:gsub("step %d/50", "")
      assert.equal(math.ceil(stop / 3) - 1, lines)
      assert.same(before, state())
      at = math.huge
      repl.feed("step(2)")
      local after = state().hash
      repl.close()
      repl = support.new(data)
      repl.feed("step(3)")
      assert.equal(state().hash, after)
    end)
  end

  it("stopped by a real SIGINT is as before, and the next line runs", function()
    repl = support.new(data)
    repl.feed("step(1)")
    local before, say = state(), repl.session.say
    repl.session.say = function(line)
      say(line)
      ffi.C.raise(2)
    end
    local _, complaint = repl.feed("step(5)")
    assert.matches("stopped by Ctrl%-C in step 2 of 5", complaint)
    assert.same(before, state())
    repl.session.say = say
    local _, second = repl.feed("step(1)")
    assert.is_nil(second)
    assert.equal(2, repl.session.trainer.step)
  end)

  it("that diverges takes back the steps before it too", function()
    repl = support.new(data, { keys = { lr = 1e18, clip = 0 } })
    local before = state()
    local _, complaint = repl.feed("step(9)")
    assert.matches("step %d: the loss is .*lower lr", complaint)
    assert.same(before, state())
  end)

  it("that does not fit runs nothing and says what would fit", function()
    repl = support.new(data, { keys = { budget = "200KiB" } })
    local before = state()
    local _, complaint = repl.feed("step(1)")
    assert.matches("checkpoint none needs %d+ bytes.*checkpoint = .* fits", complaint)
    assert.same(before, state())
    assert.is_nil(select(2, repl.feed("policy('all')\nstep(1)")))
  end)

  for _, argument in ipairs({ "0", "-1", "1.5", "0/0", "'two'", "{}" }) do
    it(string.format("refuses step(%s)", argument), function()
      repl = support.new(data)
      local _, complaint = repl.feed("step(" .. argument .. ")")
      assert.matches("step: its argument must be a whole number, 1 to", complaint)
    end)
  end
end)
