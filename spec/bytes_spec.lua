-- Sizes: what people may write, what is refused, how sizes are printed.
local bytes = require("neap.bytes")

describe("bytes.parse", function()
  for text, expected in pairs({
    ["0"] = 0, ["1000"] = 1000, ["1B"] = 1, ["64KiB"] = 65536, ["512MiB"] = 536870912,
    ["1.5GiB"] = 1610612736, ["2TiB"] = 2199023255552, ["10kB"] = 10000, ["10KB"] = 10000,
    ["3MB"] = 3000000, ["2.3GB"] = 2300000000, ["1TB"] = 1e12, ["512mib"] = 536870912,
    ["1.5 GiB"] = 1610612736, [".5KiB"] = 512, ["8192TiB"] = 2 ^ 53, ["1.1TB"] = 1100000000000,
  }) do
    it("reads " .. text, function()
      assert.equal(expected, (bytes.parse(text)))
    end)
  end

  it("rounds a fraction of a byte down", function()
    assert.equal(107374182, (bytes.parse("0.1GiB")))
    assert.equal(1, (bytes.parse("1.999")))
  end)

  it("takes a percentage of what is available", function()
    assert.equal(800, (bytes.parse("80%", 1000)))
    assert.equal(333, (bytes.parse("33.3%", 1001)))
    assert.equal(1000, (bytes.parse("100%", 1000)))
    assert.equal(0, (bytes.parse("80%", 0)))
  end)

  it("never takes more than is available", function()
    for _, available in ipairs({ 1, 3, 1023, 2 ^ 40 + 1, 2 ^ 53 }) do
      assert.equal(available, (bytes.parse("100%", available)))
    end
  end)

  it("refuses a percentage where the size is not known or unlimited", function()
    for _, available in ipairs({ -1, math.huge, 0 / 0, false }) do
      local size, message = bytes.parse("80%", available or nil)
      assert.is_nil(size)
      assert.matches("'80%%' is a share of a size that is not known here", message)
    end
  end)

  it("reads numbers and 64-bit integers as they are", function()
    assert.equal(1000, (bytes.parse(1000)))
    assert.equal(0, (bytes.parse(0)))
    assert.equal(2 ^ 53, (bytes.parse(2 ^ 53)))
    assert.equal(4096, (bytes.parse(4096ULL)))
  end)

  it("says what was found and what was expected", function()
    local size, message = bytes.parse("12 bananas")
    assert.is_nil(size)
    assert.equal("'12 bananas' is in an unknown unit 'bananas'; expected bytes like 512MiB, "
      .. "1.5GiB, 80%", message)
  end)

  for _, text in ipairs({
    "", " ", "-1", "-1GiB", "nan", "inf", "1e9", "0x10", "1..5MiB", "MiB", "5 %%", "5  MiB",
    "1,5GiB", "101%", "-5%", "%", "1.5.5", "12 bananas", "9007199254740994", "8193TiB",
    "1" .. ("0"):rep(400), "64KiB\n", "64KiB;",
  }) do
    it(string.format("refuses %q", text:sub(1, 40)), function()
      local size, message = bytes.parse(text, 1000)
      assert.is_nil(size)
      assert.matches("expected bytes like", message)
    end)
  end

  it("refuses numbers that are no sizes", function()
    for _, number in ipairs({ -1, 0 / 0, math.huge, -math.huge, 2 ^ 54 }) do
      assert.is_nil((bytes.parse(number)))
    end
  end)

  it("refuses other types", function()
    assert.is_nil((bytes.parse(nil)))
    assert.is_nil((bytes.parse({})))
    assert.is_nil((bytes.parse(true)))
  end)
end)

describe("bytes.format", function()
  for _, case in ipairs({
    { 0, "0 B" }, { 1023, "1023 B" }, { 1024, "1.0 KiB" }, { 123941683, "118.2 MiB" },
    { 1024 * 1024 - 1, "1.0 MiB" }, { 2 ^ 30, "1.0 GiB" }, { 1.5 * 2 ^ 40, "1.5 TiB" },
    { 2 ^ 53, "8.0 PiB" }, { -2048, "-2.0 KiB" }, { 4096ULL, "4.0 KiB" },
  }) do
    it("writes " .. tostring(case[1]) .. " as " .. case[2], function()
      assert.equal(case[2], bytes.format(case[1]))
    end)
  end

  it("writes what parse reads back, near enough", function()
    for exponent = 0, 52 do
      local size = math.floor(1.37 * 2 ^ exponent)
      local back = bytes.parse(bytes.format(size))
      assert.is_true(math.abs(back - size) <= 0.05 * size, bytes.format(size))
    end
  end)
end)
