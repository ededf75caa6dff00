-- What Tab offers, by what stands before the cursor.
local complete = require("neap.repl.complete")
local script = require("spec.support.script")
local support = require("spec.support.repl")

describe("Tab", function()
  local directory, repl
  setup(function()
    directory = script.directory()
    repl = support.new(support.text(directory))
    script.write(directory .. "/tuned.lua", "return {}")
    repl.feed("mine = { alpha = { beta = 1, bone = 2, f = print }, text = 'x' }")
    repl.feed("tensor = neap.zeros({ 2 })")
  end)
  teardown(function()
    repl.feed("tensor:free()")
    repl.close()
    script.remove(directory)
  end)

  local function offers(before)
    local word, list = complete.candidates(repl.repl.evaluator, before)
    return word, list
  end

  for before, expected in pairs({
    ["seg"] = "segments", ["1 + seg"] = "segments", ["sav"] = "save saved", ["mode"] = "model",
    ["min"] = "mine", ["retu"] = "return", ["f(fronti"] = "frontier",
    ["mine.alpha.b"] = "beta bone",
    ["mine.alpha:"] = "f", ["mine.al"] = "alpha", ["neap.nn.GP"] = "GPT",
    ["tensor:num"] = "numel", ["model:n_par"] = "n_parameters", ["mine.text:gsu"] = "gsub",
    ['policy("seg'] = "segments: segments:auto", ['policy "non'] = "none",
    ['compare("none", "optimal'] = "optimal: optimal:auto", ["plan('ev"] = "every_n:",
    ['policy("by_name:bl'] = "block.0 block.1 block.2",
    ['policy("by_name:block.0,he'] = "head", ['segments{ "he'] = "head",
    ['segments{ "block.0", "block.'] = "block.0 block.1 block.2",
    ["help 'prof"] = "profile", ['x = "block.2'] = "block.2",
    ["nothing.at.all"] = "", ["wholly_new"] = "", ["mine.alpha.beta.x"] = "", ["x = 3"] = "",
    ["f()"] = "", ["'closed'"] = "", ["-- 'seg"] = "", ["model."] = false,
  }) do
    it(string.format("after %q offers %s", before, expected or "something"), function()
      local _, list = offers(before)
      if expected then
        assert.equal(expected, table.concat(list, " "))
      else
        assert.is_true(#list > 0)
      end
    end)
  end

  it("inside load(\" offers files", function()
    local _, list = offers('load("' .. directory .. "/tu")
    assert.same({ directory .. "/tuned.lua" }, list)
  end)

  it("calls nothing to find out", function()
    repl.feed("trap = setmetatable({}, { __index = function() trapped = true end })")
    offers("trap.x.y")
    offers("trap.")
    assert.equal("nil", (repl.feed("rawget(_G, 'trapped')")))
  end)

  it("finds what all offers begin with", function()
    assert.equal("segments:", complete.common({ "segments:", "segments:auto" }))
    assert.equal("b", complete.common({ "beta", "bone" }))
    assert.equal("", complete.common({}))
  end)
end)

describe("the history", function()
  local history = require("neap.repl.history")
  local directory
  setup(function() directory = script.directory() end)
  teardown(function() script.remove(directory) end)

  it("keeps lines in order, making its directory", function()
    local path = directory .. "/state/neap/history"
    history.add(path, "stages()")
    history.add(path, "step(2)")
    assert.same({ "stages()", "step(2)" }, history.load(path))
  end)

  it("is bounded, also as a file", function()
    local path, lines = directory .. "/long", {}
    for i = 1, 2 * history.MOST + 5 do lines[i] = "x = " .. i end
    script.write(path, table.concat(lines, "\n") .. "\n")
    local list = history.load(path)
    assert.equal(history.MOST, #list)
    assert.equal("x = " .. 2 * history.MOST + 5, list[#list])
    local n = 0
    for _ in io.lines(path) do n = n + 1 end
    assert.equal(history.MOST, n)
  end)

  it("that cannot be kept is empty, and nobody minds", function()
    history.add("/proc/nowhere/history", "x")
    history.add(nil, "x")
    assert.same({}, history.load("/proc/nowhere/history"))
    assert.same({}, history.load(nil))
  end)
end)
