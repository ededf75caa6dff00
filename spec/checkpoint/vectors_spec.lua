local ffi = require("ffi")
local vectors = require("spec.support.vectors")

describe("the vectors' decoder", function()
  it("keeps unsigned 64-bit integers exact", function()
    local row = vectors.decode([[{"a": 18446744073709551615, "b": [9007199254740993,7], "c": -5,
      "d": "x: 18446744073709551615, \" 9007199254740993", "e": 0.3333333432674408, "f": 1e+30}]])
    assert.is_true(row.a == -1ULL and ffi.istype("uint64_t", row.a))
    assert.is_true(row.b[1] == 9007199254740993ULL)
    assert.equal(7, row.b[2])
    assert.equal(-5, row.c)
    assert.equal('x: 18446744073709551615, " 9007199254740993', row.d)
    assert.equal(0.3333333432674408, row.e)
    assert.equal(1e30, row.f)
  end)

  it("compares whole numbers and bits", function()
    assert.is_true(vectors.same(7, 7ULL))
    assert.is_false(vectors.same(-1ULL, 9007199254740993ULL))
    assert.equal("0x3eaaaaab", vectors.bits(1 / 3))
    assert.equal(0.3333333432674408, vectors.f32(1 / 3))
  end)

  it("reads every file of rows", function()
    for _, name in ipairs({ "planner", "revolve", "seed_policy", "seed_segment", "seed_stats",
      "segments_uniform" }) do
      assert.is_string(vectors.load(name).about)
    end
  end)
end)
