-- JSON: stable key order, exact numbers, only well-formed text.
local json = require("neap.json")

describe("json.encode", function()
  it("puts the named keys first and sorts the others", function()
    assert.equal('{"steps":1,"exit":0,"a":2,"b":3}',
      json.encode({ b = 3, exit = 0, a = 2, steps = 1 }, { "steps", "missing", "exit" }))
  end)

  it("sorts the keys of inner objects", function()
    assert.equal('{"x":{"a":1,"b":2,"c":3}}', json.encode({ x = { c = 3, a = 1, b = 2 } }))
  end)

  it("keeps the order of a marked object", function()
    assert.equal('{"x":{"z":1,"a":2}}', json.encode({ x = json.object({ a = 2, z = 1 }, { "z" }) }))
  end)

  it("leaves the table that it orders without a mark", function()
    local report = { a = 1 }
    json.encode(report, { "a" })
    assert.is_nil(getmetatable(report))
  end)

  it("writes whole numbers as integers", function()
    assert.equal("[0,1,-7,1000000,9007199254740992]", json.encode({ 0, 1, -7, 1e6, 2 ^ 53 }))
  end)

  it("writes 64-bit integers with all digits", function()
    assert.equal("[18446744073709551615,-9223372036854775808]",
      json.encode({ 18446744073709551615ULL, -9223372036854775807LL - 1LL }))
  end)

  it("writes fractions so that they read back exactly, and no longer than needed", function()
    assert.equal("[0.1,0.5,1e-05,0.30000000000000004]", json.encode({ 0.1, 0.5, 1e-5, 0.1 + 0.2 }))
    local random = 12345
    for _ = 1, 1000 do
      random = (random * 16807) % 2147483647
      local number = random / 2147483647 * 10 ^ (random % 60 - 30)
      assert.equal(number, tonumber(json.encode(number)))
    end
  end)

  it("writes NaN and infinities as null", function()
    assert.equal('{"a":null,"b":null,"c":null}',
      json.encode({ a = 0 / 0, b = math.huge, c = -math.huge }))
  end)

  it("writes null, true and false", function()
    assert.equal("[null,true,false]", json.encode({ json.null, true, false }))
    assert.equal("null", json.encode(nil))
  end)

  it("tells empty arrays from empty objects", function()
    assert.equal('{"a":[],"b":{}}', json.encode({ a = json.array({}), b = {} }))
  end)

  it("escapes quotes, backslashes and control characters", function()
    assert.equal([["\"\\\/\n\t\r\b\f\u0000\u001f\u007f"]],
      (json.encode('"\\/\n\t\r\b\f\0\31\127'):gsub("/", "\\/")))
  end)

  it("keeps well-formed UTF-8", function()
    -- the first and the last character of each length, and those around the surrogates
    local text = "\194\128\223\191\224\160\128\239\191\191\240\144\128\128\244\143\191\191"
      .. "\237\159\191\238\128\128äé€𝄞"
    assert.equal('"' .. text .. '"', json.encode(text))
  end)

  for name, case in pairs({
    ["a stray byte"] = { "a\255b", "a?b" },
    ["an overlong slash"] = { "\192\175", "??" },
    ["an overlong of three bytes"] = { "\224\128\175", "???" },
    ["a stray tail"] = { "\128\191", "??" },
    ["a long overlong slash"] = { "\193\175", "??" },
    ["an overlong of four bytes"] = { "\240\143\191\191", "????" },
    ["a byte that starts nothing"] = { "\245\128\128\128", "????" },
    ["a wrong tail"] = { "\226\130\192", "???" },
    ["a surrogate"] = { "\237\160\128", "???" },
    ["more than 10FFFF"] = { "\244\144\128\128", "????" },
    ["a sequence that is cut off"] = { "a\226\130", "a??" },
  }) do
    it("replaces " .. name, function()
      assert.equal('"' .. case[2]:gsub("%?", "\239\191\189") .. '"', json.encode(case[1]))
    end)
  end

  it("names the place of what it cannot hold", function()
    assert.has_error(function() json.encode({ a = { b = { 1, print } } }) end,
      "json: value.a.b[2] is a function, which JSON cannot hold")
  end)

  it("refuses a table that contains itself", function()
    local loop = {}
    loop.loop = loop
    assert.has_error(function() json.encode(loop) end, "json: value.loop contains itself")
  end)

  it("writes a table that occurs twice", function()
    local both = { 1 }
    assert.equal("[[1],[1]]", json.encode({ both, both }))
  end)

  it("refuses arrays with holes and mixed keys", function()
    assert.has_error(function() json.encode({ [1] = 1, [3] = 3 }) end)
    assert.has_error(function() json.encode({ 1, a = 2 }) end)
    assert.has_error(function() json.encode({ [true] = 2 }) end)
  end)
end)

describe("json.decode", function()
  it("reads what encode writes", function()
    local value = { a = { 1, 2.5, "x\n\"" }, b = { c = true }, d = json.array({}) }
    assert.same(value, (json.decode(json.encode(value))))
  end)

  it("says why text is no JSON", function()
    for _, text in ipairs({ "", "{", "[1,", "nonsense", '"open' }) do
      local value, message = json.decode(text)
      assert.is_nil(value)
      assert.matches("^not JSON: ", message)
    end
  end)

  it("refuses text after the value", function()
    local value, message = json.decode('{"a":1} x')
    assert.is_nil(value)
    assert.equal("not JSON: more text after the value at byte 9", message)
  end)

  it("survives deep nesting", function()
    local value = json.decode(("["):rep(100000))
    assert.is_nil(value)
  end)

  it("refuses what is no text", function()
    local value, message = json.decode(nil)
    assert.is_nil(value)
    assert.equal("JSON is read from text, found nil", message)
  end)
end)
