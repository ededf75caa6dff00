-- Charts as text, drawn by hand once.
local chart = require("neap.repl.chart")

describe("a chart of columns", function()
  it("fills cells by eighths", function()
    assert.equal("8 │   █\n  │  ▁█\n  │  ██\n0 │▁▂██\n   abcd", chart.columns({ rows = 4,
      values = { 0.25, 0.5, 4.25, 8 }, labels = { "8", [4] = "0" }, under = { "abcd" } }))
  end)

  it("in plain ASCII by thirds, something never as nothing, and nothing as nothing", function()
    assert.equal(" |  #\n | :#\n |.##", chart.columns({ values = { 0.001, 5, 9, 0 }, rows = 3,
      plain = true }))
  end)

  it("of nothing but zeros is empty", function()
    assert.equal(" |\n |", chart.columns({ values = { 0, 0 }, rows = 2, plain = true }))
  end)

  it("squeezed shows the largest of what falls into a column, stretched repeats", function()
    local values, from = chart.resample({ 1, 5, 2, 7, 3, 4 }, 3)
    assert.same({ 5, 7, 4 }, values)
    assert.same({ 2, 4, 6 }, from)
    assert.same({ 1, 1, 2, 2 }, (chart.resample({ 1, 2 }, 4)))
    assert.same({ 9, 9, 9 }, (chart.resample({ 9 }, 3)))
  end)

  it("loses no peak however it is squeezed", function()
    for n = 1, 50 do
      local list, most = {}, 0
      for i = 1, 37 do list[i] = i * 17 % 41 end
      for _, value in ipairs((chart.resample(list, n))) do most = math.max(most, value) end
      if n <= 37 then assert.equal(40, most) end
    end
  end)
end)

describe("a table", function()
  it("has columns as wide as their widest cell, the first ones on the left", function()
    assert.equal("  name     bytes\n  a       100000\n  longer       1",
      chart.table({ { "name", "bytes" }, { "a", "100000" }, { "longer", "1" } }, 1))
  end)
end)
