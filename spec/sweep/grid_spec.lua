-- Grids: lists, ranges, brackets, files; trials: all combinations, each with its config and id.
local grid = require("neap.sweep.grid")
local script = require("spec.support.script")
local trials = require("neap.sweep.trials")
local usage_of = require("spec.support.config_text").usage_of

local function values(text)
  local out = {}
  for i, value in ipairs(grid.read({ text })[1].values) do out[i] = value.text end
  return out
end

describe("a grid", function()
  it("is a list", function()
    assert.same({ "none", "segments:2", "all" }, values("checkpoint=none,segments:2,all"))
    assert.same({ "1", "2" }, values("seed=1, 2"))
  end)

  it("is a range by steps, with its end where it is hit", function()
    assert.same({ "1", "3", "5", "7", "9" }, values("n_layer=1:9:+2"))
    assert.same({ "1", "4" }, values("n_layer=1:6:+3"))
    assert.same({ "0.1", "0.2", "0.3" }, values("lr=0.1:0.3:+0.1"))
  end)

  it("is a range by factors", function()
    assert.same({ "0.001", "0.01", "0.1" }, values("lr=1e-3:1e-1:*10"))
    assert.same({ "16", "32", "64" }, values("width=16:64:*2"))
  end)

  it("is a range of bytes, in the unit that was written", function()
    assert.same({ "64MiB", "128MiB", "256MiB", "512MiB" }, values("budget=64MiB:512MiB:*2"))
    assert.same({ "1.5GiB", "2GiB" }, values("budget=1.5GiB:2GiB:+0.5GiB"))
  end)

  it("is a range behind a policy's name", function()
    assert.same({ "segments:1", "segments:2", "segments:3" }, values("checkpoint=segments:1:3:+1"))
    assert.same({ "none", "optimal:8MiB", "optimal:16MiB" },
      values("checkpoint=none,optimal:8MiB:16MiB:*2"))
  end)

  it("mixes lists and ranges", function()
    assert.same({ "7", "1", "2", "20" }, values("seed=7,1:2:+1,20"))
  end)

  it("in brackets holds values with commas", function()
    assert.same({ "none", "by_name:a,b" }, values("checkpoint=[none, by_name:a,b]"))
    assert.same({ "0.9,0.95", "0.9,0.99" }, values("betas=[0.9,0.95, 0.9,0.99]"))
  end)

  it("is several axes, the last one fastest", function()
    local list = trials.of(nil, {}, grid.read({ "n_layer=1,2", "seed=5,6" }))
    local texts = {}
    for i, trial in ipairs(list) do texts[i] = trial.text end
    assert.same({ "n_layer=1 seed=5", "n_layer=1 seed=6", "n_layer=2 seed=5", "n_layer=2 seed=6" },
      texts)
    assert.same({ 2, 5 }, { list[3].config.n_layer, list[3].config.seed })
  end)

  for text, message in pairs({
    ["chekpoint=none"] = "unknown key 'chekpoint', did you mean 'checkpoint'%?",
    ["checkpoint=none,segmnts:2"] = "unknown policy 'segmnts', did you mean 'segments'%?",
    ["n_layer=1,2.5"] = "n_layer is 2%.5; expected a whole number from 1",
    ["n_layer=1,,2"] = "a value is empty; expected key=a,b,c",
    ["n_layer="] = "a value is empty; expected key=a,b,c",
    ["seed=1,2,1"] = "the value 1 is there twice",
    ["seed=1:9:*1"] = "does not rise from its start to its end",
    ["seed=1:9:+0"] = "does not rise from its start to its end",
    ["seed=9:1:+1"] = "does not rise from its start to its end",
    ["seed=0:9:*2"] = "does not rise from its start to its end",
    ["seed=0:1000000:+1"] = "more than 10000 values",
    ["seed=1:x:+1"] = "'x' is no end of a range",
    ["budget=1MiB:1GiB:*2"] = "expected both ends in one unit",
    ["budget=1MiB:2MiB:+1"] = "expected both ends and the step in one unit",
    ["budget=1MiB:9XiB:*2"] = "'9XiB' is no end of a range",
    ["checkpoint=[none, all"] = "the '%]' is missing",
    ["n_layer=[1,2]"] = "in brackets a comma and a space separate values",
    ["betas=0.9,0.99"] = "as a grid: 'betas=%[0%.9,0%.95, 0%.9,0%.99%]'",
    ["out=a,b"] = "a sweep places its trials itself",
    ["none"] = "'none' names no values; expected key=a,b,c or a file%.lua",
  }) do
    it("of '" .. text .. "' is refused", function()
      assert.matches(message, usage_of(grid.read, { text }))
    end)
  end

  it("takes a key once", function()
    assert.matches("the key seed is there twice", usage_of(grid.read, { "seed=1", "seed=2" }))
    assert.matches("%-%-grid is missing", usage_of(grid.read, {}))
  end)

  describe("file", function()
    local directory
    setup(function() directory = script.directory() end)
    teardown(function() script.remove(directory) end)

    local function read(text)
      return grid.read({ script.write(directory .. "/grid.lua", text) })
    end

    it("holds lists of values, also of tables, and ranges as text", function()
      local axes = read("return { seed = '1:3:+1', checkpoint = { 'none', { policy = 'every_n', "
        .. "n = 2 } }, width = { 16, 32 } }")
      local keys = {}
      for i, axis in ipairs(axes) do keys[i] = axis.key .. #axis.values end
      assert.same({ "width2", "seed3", "checkpoint2" }, keys)
      assert.same({ policy = "every_n", n = 2 }, axes[3].values[2].value)
      assert.equal("every_n", trials.of(nil, {}, axes)[4].config.checkpoint.policy)
    end)

    it("is checked like a config", function()
      assert.matches("unknown key 'widht', did you mean 'width'",
        usage_of(read, "return { widht = { 1 } }"))
      assert.matches("value 2: width is 'x'; expected a whole number",
        usage_of(read, "return { width = { 16, 'x' } }"))
      assert.matches("width is 16; expected a list of values", usage_of(read,
        "return { width = 16 }"))
      assert.matches("unknown policy 'nope'", usage_of(read, "return { checkpoint = { 'nope' } }"))
      assert.matches("it reads 'os'", usage_of(read, "return { width = { os.time() } }"))
    end)
  end)
end)

describe("a trial", function()
  local function of(grids, sets) return trials.of(nil, sets or {}, grid.read(grids)) end

  it("has the id of its config, whatever grid it came from", function()
    local a, b = of({ "seed=1,2" }), of({ "n_layer=4", "seed=2" })
    assert.equal(a[2].id, b[1].id)
    assert.not_equal(a[1].id, a[2].id)
    assert.matches("^%x+$", a[1].id)
  end)

  it("with another chunk has the config's global batch", function()
    local list = of({ "chunk=2,6" })
    assert.same({ 12, 12 }, { list[1].config.global_batch, list[2].config.global_batch })
  end)

  it("that is the same run as another one is refused", function()
    assert.matches("trials 'warmup=20' and 'warmup=30' are the same run",
      usage_of(of, { "warmup=20,30" }, { "steps=10" }))
  end)

  it("whose values do not go together is named", function()
    assert.matches("trial n_head=2 width=17: width 17 is not a multiple of n_head 2",
      usage_of(of, { "n_head=1,2", "width=17" }))
  end)

  it("is refused beside a set that would have no effect", function()
    assert.matches("%-%-set seed=3: %-%-grid has the key seed too",
      usage_of(of, { "seed=1,2" }, { "seed=3" }))
    assert.matches("%-%-set out=x: a sweep places its trials itself",
      usage_of(of, { "seed=1,2" }, { "out=x" }))
  end)

  it("is one of at most 10000", function()
    assert.matches("1000000 trials are too many", usage_of(of, { "seed=1:1000:+1",
      "steps=1:1000:+1" }))
  end)
end)
