-- Lines of Lua at the prompt: what prints itself, what goes on, what an error leaves.
local support = require("spec.support.repl")

describe("a line at the prompt", function()
  local repl
  before_each(function() repl = support.new() end)

  for line, shown in pairs({
    ["1 + 1"] = "2",
    ["0.1"] = "0.1",
    ["2^53"] = "9007199254740992",
    ["'a\\nb'"] = '"a\\nb"',
    ["nil"] = "nil",
    ["1, nil, 'x'"] = '1\tnil\t"x"',
    ["= 3"] = "3",
    ["return 4"] = "4",
    ["{ 1, 2, { a = 'b' } }"] = '{ 1, 2, {\n    a = "b"\n  } }',
    ["(function() end)()"] = "",
    ["x = 5"] = "",
    [""] = "",
    ["-- nothing"] = "",
    ["print('a', 1)"] = "a\t1",
  }) do
    it(string.format("%q prints %q", line, shown), function()
      local said, complaint = repl.feed(line)
      assert.is_nil(complaint)
      assert.equal(shown, said)
    end)
  end

  it("makes its value _ for the next one, but not a nil", function()
    repl.feed("6 * 7")
    repl.feed("x = 3")
    repl.feed("nil")
    assert.equal("43", (repl.feed("_ + 1")))
  end)

  it("may read a later text of several lines, and remembers globals and locals", function()
    repl.feed("local a, b = 1, 2\nlocal c\nlocal function f(x)\n  local y = x\n  return y + a\nend")
    assert.equal("3", (repl.feed("f(b)")))
    repl.feed("c = 9; local d = c")
    assert.equal("9", (repl.feed("d")))
    assert.equal("nil", (repl.feed("y")))
  end)

  it("keeps its globals out of the process's", function()
    repl.feed("neap_spec_global = 1; local string = 3")
    assert.is_nil(rawget(_G, "neap_spec_global"))
    assert.equal("table", type(string))
  end)

  for _, text in ipairs({ "for i = 1, 2 do", "f = function()", "x =", "{ 1,", "1 +", "print(",
    "y = [[", "if true then" }) do
    it(string.format("%q waits for more lines", text), function()
      local said, complaint = repl.feed(text)
      assert.equal("more", repl.outcome)
      assert.equal("", said)
      assert.is_nil(complaint)
    end)
  end

  it("that waits is forgotten when it is cancelled", function()
    repl.feed("for i = 1, 2 do")
    repl.repl.evaluator:cancel()
    assert.equal("7", (repl.feed("7")))
  end)

  it("that still waits at the end is an error", function()
    repl.feed("x = {")
    assert.equal("error", repl.repl.evaluator:finish())
    assert.matches("not whole", repl.complaints[1])
  end)

  for line, sentence in pairs({
    ["x = = 1"] = "unexpected symbol near '='",
    ["'abc"] = "unfinished string",
    ["stagse()"] = "unknown name 'stagse', did you mean 'stages'%? help%(%) lists the words",
    ["segmets"] = "unknown name 'segmets', did you mean 'segments'%?",
    ["wholly_new()"] = "unknown name 'wholly_new'; help%(%)",
    ["neap.saevd()"] = "unknown field 'saevd', did you mean 'saved'%?",
    ["error('mine\\nsecond')"] = "^error: mine$",
    ["error({})"] = "^error: table",
    ["local t = nil; t.x = 1"] = "unknown name 't';",
    ["error(setmetatable({}, { __tostring = error }))"] = "an error whose __tostring fails",
    ["string.rep()"] = "bad argument",
    ["neap.tensor('x')"] = "tensor: expected a list of numbers, found string",
    ["stages()"] = "no model is loaded; load%(",
    ["load()"] = "load: expected a config",
    ["load('nowhere.lua')"] = "cannot read 'nowhere.lua'",
    ["load{ n_layr = 2 }"] = "n_layr.*did you mean 'n_layer'",
    ["help('segmnts')"] = "did you mean 'segments'",
    ["help(3)"] = "help: the word must be text",
    ["step()"] = "no model is loaded",
  }) do
    it(string.format("%q is one sentence, and the session lives on", line), function()
      repl.feed("kept = 11")
      local _, complaint = repl.feed(line)
      assert.equal("error", repl.outcome)
      assert.matches(sentence, complaint)
      assert.matches("^error: ", complaint)
      assert.is_nil(complaint:find("\n"))
      assert.equal("11", (repl.feed("kept")))
    end)
  end

  it("in several lines says in which one it fails", function()
    local _, complaint = repl.feed("do\n  local x\n  x()\nend")
    assert.matches("^error: line 3: attempt to call local 'x'", complaint)
  end)

  it("without brackets tells that a word wants a call", function()
    assert.matches("stages is a word: call it", (repl.feed("stages")))
  end)

  it("may take a word's name for a value; nil gives the word back", function()
    repl.feed("plan = 3")
    assert.equal("3", (repl.feed("plan")))
    repl.feed("plan = nil")
    assert.matches("is a word", (repl.feed("plan")))
  end)

  it("that takes long is stopped by Ctrl-C", function()
    local asked = 0
    local stopped = support.new(nil, { stop_asked = function()
      asked = asked + 1
      return asked > 3
    end })
    local _, complaint = stopped.feed("for i = 1, 3e7 do n = i end")
    assert.equal("error: stopped by Ctrl-C", complaint)
    asked = -1e9
    assert.equal("true", (stopped.feed("n > 1000 and n < 3e7")))
    asked = 0
    assert.equal("error: stopped by Ctrl-C",
      select(2, stopped.feed("for i = 1, 1e5 do help() end")))
  end)

  it("shows a long table's first items and how many there are", function()
    local said = repl.feed("local t = {} for i = 1, 1000 do t[i] = i end return t")
    assert.matches("960 more", said)
    assert.is_true(#said < 2000)
  end)

  it("shows a table that holds itself, and one whose __tostring fails", function()
    assert.equal("ok", (repl.feed("t = {}; t.t = t") == "" and repl.outcome))
    assert.matches("table 1", (repl.feed("t")))
    local said, complaint = repl.feed("setmetatable({}, { __tostring = error })")
    assert.is_nil(complaint)
    assert.matches("__tostring fails", said)
  end)
end)

describe("help", function()
  local repl
  before_each(function() repl = support.new() end)

  it("lists every word with what it does", function()
    local said = repl.feed("help()")
    for _, word in ipairs({ "load", "stages", "segments", "policy", "profile", "plan", "frontier",
      "whatif", "step", "timeline", "peak", "saved", "compare", "chunk", "who", "save", "quit" }) do
      assert.matches("\n?  " .. word .. "%(", said)
    end
  end)

  it("on a word says more, without brackets too", function()
    assert.matches("segments%(4%): .*\n.*auto", (repl.feed('help "segments"')))
  end)
end)
