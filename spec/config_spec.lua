-- Configs: defaults, precedence, the way back to text.
local config = require("neap.config")
local config_text = require("spec.support.config_text")
local failure_of = require("spec.support.failure_of")

local load_text, usage_of = config_text.load_text, config_text.usage_of

describe("config.load", function()
  it("without a file gives the defaults", function()
    local c = config.load()
    assert.same({
      n_layer = 4, n_head = 4, width = 128, context = 64, chunk = 12, global_batch = 12,
      dropout = 0, steps = 2000, lr = 1e-3, min_lr = 1e-4, warmup = 100, betas = { 0.9, 0.99 },
      weight_decay = 0.1, clip = 1, eval_every = 250, eval_batches = 20, final_eval_batches = 200,
      seed = 1, checkpoint = "none", dtype = "f32", device = "auto",
    }, c)
  end)

  it("gives every caller defaults of its own", function()
    config.load().betas[1] = 0.5
    assert.equal(0.9, config.load().betas[1])
  end)

  it("puts the file over the defaults, sets over the file, options over sets", function()
    local text = "return { width = 32, steps = 7, lr = 0.5, seed = 3 }"
    local c = load_text(text, { "steps=8", "lr=0.25" }, { lr = "0.125" })
    assert.same({ 32, 8, 0.125, 3 }, { c.width, c.steps, c.lr, c.seed })
  end)

  it("lets the last of two sets win", function()
    assert.equal(9, config.load(nil, { "steps=8", "steps=9" }).steps)
  end)

  it("reads the values of sets by their key's type", function()
    local c = config.load(nil, {
      "betas=0.8,0.95", "chunk=auto", "data=7", " dropout = 0.25", "checkpoint=by_name:a,b",
      "budget=64MiB", "lr=5e-4", "device=cuda:1",
    })
    assert.same({ 0.8, 0.95 }, c.betas)
    assert.equal("auto", c.chunk)
    assert.equal("7", c.data)
    assert.equal(0.25, c.dropout)
    assert.equal("by_name:a,b", c.checkpoint)
    assert.equal("64MiB", c.budget)
    assert.equal(5e-4, c.lr)
    assert.equal("cuda:1", c.device)
  end)

  it("reads betas in braces too", function()
    assert.same({ 0.5, 0.75 }, config.load(nil, { "betas={0.5, 0.75}" }).betas)
  end)

  it("takes zero where zero means never, none or nothing", function()
    for _, key in ipairs({ "dropout", "lr", "min_lr", "warmup", "weight_decay", "clip",
      "eval_every", "final_eval_batches", "seed" }) do
      assert.equal(0, config.load(nil, { "min_lr=0", key .. "=0" })[key])
    end
  end)

  it("unsets an optional key by nil", function()
    for key, value in pairs({ budget = "'1MiB'", data = "'x'", threads = "2", out = "'x'" }) do
      local text = string.format("return { %s = %s }", key, value)
      assert.is_not_nil(load_text(text)[key])
      assert.is_nil(load_text(text, { key .. "=nil" })[key])
    end
    assert.equal(1e-4, load_text("return { min_lr = 0 }", { "min_lr=nil" }).min_lr)
    assert.equal(12, load_text("return { global_batch = 7 }", { "global_batch=nil" }).global_batch)
    assert.matches("n_layer is 'nil'", usage_of(config.load, nil, { "n_layer=nil" }), 1, true)
  end)

  describe("global_batch", function()
    it("is the config's chunk where nothing names one", function()
      assert.equal(5, load_text("return { chunk = 5 }").global_batch)
    end)

    it("does not follow --chunk, which must not change the training", function()
      local c = load_text("return { chunk = 12 }", nil, { chunk = "3" })
      assert.same({ 3, 12 }, { c.chunk, c.global_batch })
    end)

    it("is 64 where the chunk is found automatically", function()
      assert.equal(64, load_text("return { chunk = 'auto' }").global_batch)
    end)

    it("is what the option says", function()
      assert.equal(40, load_text("return { global_batch = 20 }", nil, { global_batch = "40" })
        .global_batch)
    end)
  end)

  it("warms up to the end where there are fewer steps than warm-up", function()
    assert.equal(10, config.load(nil, { "steps=10", "warmup=100" }).warmup)
  end)

  it("takes a tenth of lr as min_lr where nothing names it", function()
    assert.equal(0.05, config.load(nil, { "lr=0.5" }).min_lr)
  end)

  it("names a missing file as a failure, not as wrong usage", function()
    assert.equal("config: cannot read '/none/x.lua': No such file or directory",
      failure_of("failure", config.load, "/none/x.lua"))
  end)
end)

describe("config.dump", function()
  it("writes text that loads to the same config", function()
    local c = load_text([[return {
      lr = 0.1 + 0.2, betas = { 1/3, 0.99 }, data = 'a "b"\n\\c\r', budget = "80%",
      checkpoint = { policy = "segments", starts = { 1, 5 }, ["odd key"] = true }, seed = 2^53,
      threads = 2, out = "x", min_lr = 1e-300,
    }]])
    assert.same(c, load_text(config.dump(c)))
  end)

  it("writes the keys in their order, one a line", function()
    local keys = {}
    for key in config.dump(config.load()):gmatch("\n  ([%w_]+) = ") do keys[#keys + 1] = key end
    assert.equal("n_layer n_head width context chunk global_batch dropout steps lr min_lr warmup "
      .. "betas weight_decay clip eval_every eval_batches final_eval_batches seed checkpoint dtype "
      .. "device", table.concat(keys, " "))
  end)
end)

describe("config.value", function()
  it("reads one key's text", function()
    assert.equal(64, config.value("width", "64"))
    assert.is_nil(config.value("data", "nil"))
    assert.matches("^%-%-set width=x: width is 'x'", usage_of(config.value, "width", "x"))
    assert.matches("^%-%-grid: width is 'x'", usage_of(config.value, "width", "x", "--grid"))
  end)
end)

describe("the example configs", function()
  it("load", function()
    for _, name in ipairs({ "small", "shakespeare_char_cpu" }) do
      assert.is_table(config.load("examples/configs/" .. name .. ".lua"))
    end
  end)

  it("hold the known CPU settings of the character model", function()
    local c = config.load("examples/configs/shakespeare_char_cpu.lua")
    local expected = {
      n_layer = 4, n_head = 4, width = 128, context = 64, chunk = 12, global_batch = 12,
      dropout = 0, steps = 2000, lr = 1e-3, min_lr = 1e-4, warmup = 100, betas = { 0.9, 0.99 },
      weight_decay = 0.1, clip = 1, eval_every = 250, eval_batches = 20, final_eval_batches = 200,
    }
    for key, value in pairs(expected) do assert.same(value, c[key], key) end
    assert.is_nil(c.data)
  end)

  it("give make train a budget and segments", function()
    local c = config.load("examples/configs/small.lua")
    assert.same({ "64MiB", "segments:2" }, { c.budget, c.checkpoint })
  end)
end)
