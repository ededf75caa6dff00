-- Each argument of the functions about chunks and layers replaced by what it must refuse.
local neap = require("neap")
local ffi = require("ffi")
local calls = require("spec.support.misuse_calls")
local misuse = require("spec.support.misuse")

local spoil, spoil_options = calls.spoil, calls.spoil_options
local NIL = misuse.NIL

describe("misuse of", function()
  setup(function() calls.open() end)
  teardown(calls.close)

  it("the auto-chunk prober", function()
    misuse.kinds.target = { { "text", "0.5" }, { "a table", {} }, { "true", true },
      { "NaN", 0 / 0 }, { "a cdata", ffi.new("int[1]") }, { "a function", print } }
    misuse.kinds.u64_or_nil = {}
    for _, item in ipairs(misuse.kinds.u64) do
      if item[2] ~= NIL then
        misuse.kinds.u64_or_nil[#misuse.kinds.u64_or_nil + 1] = item
      end
    end
    spoil("chunk_from_measurements", neap.chunk_from_measurements, { { "u64", 1000 }, { "u64", 1 },
      { "u64", 8 }, { "u64_or_nil", 1 }, { "target", 0.5 } })
    misuse.kinds.memory = { { "text", "machin" }, { "5", 5 }, { "true", true }, { "false", false },
      { "a table", {} }, { "NaN", 0 / 0 } }
    misuse.kinds.told = { { "text", "5" }, { "true", true }, { "false", false }, { "-1", -1 },
      { "NaN", 0 / 0 }, { "inf", math.huge }, { "1e300", 1e300 }, { "a table", {} },
      { "-1LL", -1LL }, { "a cdata", ffi.new("int[1]") } }
    misuse.kinds.log = { { "text", "x" }, { "5", 5 }, { "true", true }, { "a table", {} } }
    misuse.kinds.chunk_device = { { "text", "cpu" }, { "5", 5 }, { "true", true },
      { "a table", {} }, { "a closed device", calls.w.closed } }
    misuse.kinds.fn_or_nil = { { "text", "x" }, { "5", 5 }, { "true", true }, { "a table", {} } }
    local options = { cap = 2, forward_at = function(n) return neap.zeros({ n, 16 }) end,
      log = false }
    spoil("auto_chunk", neap.auto_chunk, { { "table", options } })
    spoil_options("auto_chunk", neap.auto_chunk, options, { cap = "u64", floor = "u64_or_nil",
      target = "target", forward_at = "fn", memory = "memory", settle = "fn_or_nil", log = "log",
      device = "chunk_device" })
    for place = 1, 2 do
      spoil("what memory tells", function(value)
        options.memory = function()
          if place == 1 then return value end
          return 5, value
        end
        return neap.auto_chunk(options)
      end, { { "told", 5 } })
    end
  end)

  it("policies over layers and the activation buffer", function()
    local layers = { { bytes = 5, kind = "ffn" }, { bytes = 7 } }
    misuse.kinds.layer_policy = { { "nil", NIL }, { "text", "largst:2" }, { "5", 5 },
      { "true", true }, { "an empty table", {} }, { "a number too many", "all:2" },
      { "a number missing", "largest" }, { "a fraction", "largest:1.5" },
      { "a number", { policy = 5 } }, { "an unknown key", { policy = "all", n = 2 } },
      { "a bad kind", "by_kind:x" }, { "a bad size", "fewest:x" }, { "a bad ratio", "ratio:2" },
      { "a NaN ratio", { policy = "ratio", ratio = 0 / 0 } }, { "every 0", "every_n:0" },
      { "a list with text", { policy = "specific", layers = { "x" } } },
      { "no list", { policy = "specific", layers = 5 } }, { "too small a budget", "budget:3" } }
    misuse.kinds.layer_list = { { "nil", NIL }, { "text", "x" }, { "5", 5 }, { "a number", { 5 } },
      { "bytes -1", { { bytes = -1 } } }, { "an unknown key", { { byte = 1 } } },
      { "an unknown kind", { { kind = "x" } } }, { "a kind that is a table", { { kind = {} } } },
      { "an index twice", { { index = 1 }, { index = 1 } } },
      { "too many bytes", { { bytes = -1ULL }, { bytes = 1 } } },
      { "flops as text", { { flops = "5" } } } }
    spoil("layer_plan", neap.layer_plan, { { "layer_policy", "largest:1" },
      { "layer_list", layers } })
    spoil("layer_planner", neap.layer_planner, { { "table", { policy = "all", sizes = { 1 } } } })
    misuse.kinds.sizes = { { "text", "x" }, { "5", 5 }, { "true", true }, { "-1", { -1 } },
      { "half", { 0.5 } }, { "text in it", { "1" } } }
    misuse.kinds.layer_count = { { "text", "5" }, { "-1", -1 }, { "1.5", 1.5 }, { "NaN", 0 / 0 },
      { "2^40", 2 ^ 40 }, { "a table", {} }, { "true", true } }
    misuse.kinds.size_policy = { { "nil", NIL }, { "by kind", "by_kind:ffn" },
      { "budget", "budget:5" }, { "text", "al" } }
    spoil_options("layer_planner", neap.layer_planner, { policy = "all", sizes = { 1, 2 } },
      { policy = "size_policy", sizes = "sizes", n_layers = "layer_count" })
    local plan = neap.layer_plan("all", layers)
    local me = { "self", plan }
    spoil("plan:drops_layer", plan.drops_layer, { me, { "u64", 0 } })
    spoil("plan:stats", plan.stats, { me })
    spoil("plan:cost_ratio", plan.cost_ratio, { me, { "count", 0 } })
    local buffer = neap.activation_buffer(5)
    local us = { "self", buffer }
    spoil("activation_buffer", neap.activation_buffer, { { "u64", 5 } })
    spoil("buffer:push", buffer.push, { us, { "u64", 0 }, { "u64", 1 } })
    spoil("buffer:evict", buffer.evict, { us, { "u64", 0 } })
    spoil("buffer:holds", buffer.holds, { us, { "u64", 0 } })
    for _, name in ipairs({ "bytes", "count", "pressure" }) do
      spoil("buffer:" .. name, buffer[name], { us })
    end
    assert.equal(0, buffer:count())
  end)
end)
