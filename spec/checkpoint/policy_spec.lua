local names = require("neap.checkpoint.names")
local policy = require("neap.checkpoint.policy")
local failure_of = require("spec.support.failure_of")
local vectors = require("spec.support.vectors")

local KINDS = {
  All = "all", None = "none", EveryN = "every_n", ByName = "by_name", GreedyMemory = "greedy",
}

local function raw(row_policy)
  return {
    kind = assert(KINDS[row_policy.kind]), n = row_policy.n, names = row_policy.prefixes,
    budget = row_policy.budget_bytes,
  }
end

local function message_of(fn, ...) return failure_of("usage", fn, ...) end

describe("policy", function()
  local document = vectors.load("seed_policy")

  it("decides each row of seed_policy.json as it should", function()
    local n = 0
    for _, row in ipairs(document.rows.should_checkpoint) do
      local drops = policy.decides(raw(row.policy), row.layer_name, row.layer_idx,
        row.memory_bytes)
      assert.equal(row.right, drops, row.id)
      n = n + 1
    end
    assert.equal(96, n)
  end)

  it("fits each greedy sequence of seed_policy.json first come, first served", function()
    local n = 0
    for _, row in ipairs(document.rows.greedy_sequences) do
      local spec, stored = { kind = "greedy", budget = row.budget_bytes }, 0ULL
      for i, size in ipairs(row.sizes) do
        local drops = policy.decides(spec, "l" .. i, i - 1, size, stored)
        assert.equal(row.right[i], drops, row.id .. ", layer " .. i)
        if not drops then stored = stored + size end
      end
      assert.is_true(vectors.same(row.right_stored_bytes, stored), row.id)
      n = n + 1
    end
    assert.equal(8, n)
  end)

  it("reads text and tables as the same policy", function()
    for _, case in ipairs({
      { "none", { policy = "none" }, "none" },
      { "all", { policy = "all" }, "all" },
      { "every_n:2", { policy = "every_n", n = 2 }, "every_n:2" },
      { "every_n:02", { policy = "every_n:2" }, "every_n:2" },
      { "by_name:a,b.c", { policy = "by_name", names = { "a", "b.c" } }, "by_name:a,b.c" },
      { "by_name:a, b.c", { policy = "by_name:a,b.c" }, "by_name:a,b.c" },
      { "greedy:2MiB", { policy = "greedy", budget = "2MiB" }, "greedy:2097152" },
      { "greedy:2097152", { policy = "greedy", budget = 2 ^ 21 }, "greedy:2097152" },
      { "greedy:0", { policy = "greedy", budget = 0 }, "greedy:0" },
      { "segments:3", { policy = "segments", k = 3 }, "segments:3" },
    }) do
      local text, tab = policy.parse(case[1]), policy.parse(case[2])
      assert.equal(case[3], text.text)
      assert.same(text, tab)
      assert.equal(case[3], tostring(text))
      assert.equal(case[3], policy.parse(case[3]).text)
      assert.equal(text, policy.parse(text))
    end
  end)

  it("names the nearest word and the allowed ones for a misspelt policy", function()
    for word, near in pairs({ evry_n = "every_n", ["segment:2"] = "segments", nome = "none",
      ["greddy:1MiB"] = "greedy" }) do
      local message = message_of(policy.parse, word)
      assert.matches("did you mean '" .. near .. "'", message, 1, true)
      assert.matches("every_n:N, by_name:prefix,prefix, greedy:BYTES, segments:K", message, 1, true)
    end
    assert.matches("unknown policy 'qqqqqqq'; allowed", message_of(policy.parse, "qqqqqqq"), 1,
      true)
    assert.matches("did you mean", message_of(policy.parse, { policy = "evry_n", n = 2 }))
  end)

  it("sends every_n:0 to none", function()
    for _, spec in ipairs({ "every_n:0", "every_n:-0", { policy = "every_n", n = 0 } }) do
      assert.matches("every_n:%-?0 would drop nothing: say 'none'", message_of(policy.parse, spec))
    end
  end)

  it("refuses what is no whole number, with the allowed range", function()
    for _, value in ipairs({ "-1", "2.5", "nan", "1e3", "0x10", "99999999999999999999999", "2x",
      "2 ", " 2", "2:3", "inf" }) do
      local message = message_of(policy.parse, "every_n:" .. value)
      assert.equal("every_n:" .. value .. ": expected a whole number, 1 to 2^53", message)
      message = message_of(policy.parse, "segments:" .. value)
      assert.equal("segments:" .. value .. ": expected a whole number, 1 to the number of stages, "
        .. "or auto", message)
    end
    for _, value in ipairs({ -1, 2.5, 0 / 0, math.huge, 2 ^ 60, "2", true }) do
      assert.matches("expected a whole number, 1 to", message_of(policy.parse,
        { policy = "every_n", n = value }), 1, true)
      assert.matches("expected a whole number, 1 to", message_of(policy.parse,
        { policy = "segments", k = value }), 1, true)
    end
    assert.matches("1 to the number of stages", message_of(policy.parse, "segments:0"), 1, true)
  end)

  it("refuses missing, superfluous and unknown arguments", function()
    for spec, text in pairs({
      ["every_n"] = "expected every_n:N", ["every_n:"] = "expected every_n:N",
      ["by_name:"] = "expected by_name:prefix,prefix", ["segments"] = "expected segments:K",
      ["by_name:a,,b"] = "name 2 is ''", ["by_name:a,"] = "name 2 is ''",
      ["none:1"] = "'none' takes no argument", ["all:"] = "'all' takes no argument",
      ["greedy"] = "expected greedy:BYTES", ["greedy:lots"] = "'lots' is not a size",
      ["greedy:-1"] = "'-1' is not a size", ["greedy:80%"] = "expected bytes",
      [""] = "unknown policy",
    }) do
      assert.matches(text, message_of(policy.parse, spec), 1, true)
    end
    assert.matches("did you mean 'n'", message_of(policy.parse, { policy = "every_n", m = 2 }))
    assert.matches("needs 'n'", message_of(policy.parse, { policy = "every_n" }))
    assert.matches("unknown key 'n'", message_of(policy.parse, { policy = "all", n = 2 }))
    assert.matches("unknown key 'n'", message_of(policy.parse, { policy = "every_n:2", n = 2 }))
    assert.matches("names of stages", message_of(policy.parse, { policy = "by_name", names = {} }))
    assert.matches("name 1 is '7'", message_of(policy.parse, { policy = "by_name", names = { 7 } }))
    assert.matches("policy is a nil", message_of(policy.parse, { n = 2 }))
    assert.matches("policy is a number", message_of(policy.parse, 7))
    assert.matches("policy is a nil", message_of(policy.parse, nil))
  end)

  it("takes a percentage of what it is told", function()
    assert.equal("greedy:800", policy.parse("greedy:80%", 1000).text)
  end)
end)

describe("the stages that a policy drops", function()
  local stages = {}
  for i, name in ipairs({ "embed", "block.0", "block.1", "block.1.attn", "block.10", "head" }) do
    stages[i] = { name = name, saved_bytes = i * 100 }
  end

  local function dropped(spec)
    local list = {}
    for i, drop in ipairs(policy.drops(spec, stages)) do
      if drop then list[#list + 1] = stages[i].name end
    end
    return table.concat(list, " ")
  end

  it("are those of the rule", function()
    assert.equal("", dropped("none"))
    assert.equal("embed block.0 block.1 block.1.attn block.10 head", dropped("all"))
    assert.equal("embed block.1 block.10", dropped("every_n:2"))
    assert.equal("embed", dropped("every_n:100"))
    assert.equal("embed block.1.attn", dropped({ policy = "every_n", n = 3 }))
  end)

  it("are what does not fit a greedy budget, first come, first served", function()
    assert.equal("block.1.attn block.10 head", dropped("greedy:600"))
    assert.equal("block.1 block.1.attn block.10 head", dropped("greedy:599"))
    assert.equal("embed block.0 block.1 block.1.attn block.10 head", dropped("greedy:0"))
    assert.equal("", dropped("greedy:1GiB"))
  end)

  it("match a name as a whole or up to a separator", function()
    assert.equal("block.1 block.1.attn", dropped("by_name:block.1"))
    assert.equal("block.0 block.1 block.1.attn block.10", dropped("by_name:block"))
    assert.equal("block.0 block.1 block.1.attn block.10", dropped("by_name:block."))
    assert.equal("embed block.10 head", dropped("by_name:head,embed,block.10"))
    assert.is_true(names.matches("attention", "attention_0"))
    assert.is_false(names.matches("layer1", "layer10"))
    assert.is_false(names.matches("block.1.attn", "block.1"))
  end)

  it("may be named by two prefixes", function()
    assert.equal("block.1 block.1.attn", dropped("by_name:block.1,block.1.attn"))
  end)

  it("are refused with close names when a prefix matches none", function()
    local message = message_of(policy.drops, "by_name:head,blok.1", stages)
    assert.matches("by_name:blok.1 matches no stage; close: block.1", message, 1, true)
    message = message_of(policy.drops, "by_name:bl", stages)
    assert.matches("close: block.0, block.1, block.1.attn", message, 1, true)
    message = message_of(policy.drops, "by_name:zzzzzzzz", stages)
    assert.matches("stages: embed, block.0, block.1, block.1.attn, block.10, head", message, 1,
      true)
  end)

  it("are not asked of segments", function()
    assert.matches("decides over segments", message_of(policy.drops, "segments:2", stages))
  end)
end)
