-- What every layer is: parameters in order, names, places in errors, training and evaluation.
local neap = require("neap")
local native = require("neap.ffi")
local fail = require("neap.fail")
local failure_of = require("spec.support.failure_of")

local C = native.C
local nn = neap.nn

-- on a stack of its own, so that no dead slot of this one keeps a handle alive
local function alone(name, body) it(name, function() coroutine.wrap(body)() end) end

describe("a layer", function()
  local device
  before_each(function()
    device = neap.device("cpu", { budget = "1GiB" })
    neap.manual_seed(1)
  end)
  after_each(function()
    jit.flush() -- compiled code may hold on to handles
    collectgarbage()
    collectgarbage()
    assert.equal(0, device:memory().n_tensors)
    device:close()
    neap.device("cpu")
  end)

  local function names(list)
    local out = {}
    for i, entry in ipairs(list) do out[i] = entry.name end
    return out
  end

  local Pair = nn.class("Pair")
  function Pair:init()
    self.second = nn.Linear(2, 3)
    self.scale = nn.parameter({ 4 }, { fill = 2 })
    self.first = nn.LayerNorm(3)
    self.count = neap.zeros({ 1 })
  end
  function Pair:forward(x) return self.first(self.second(x)) end

  alone("lists its parameters in the order they were set, with dotted names", function()
    local Outer = nn.class("Outer")
    function Outer:init()
      self.pair = Pair()
      self.last = nn.Embedding(5, 2)
    end
    local layer = Outer()
    assert.same({ "pair.scale", "pair.second.weight", "pair.second.bias", "pair.first.gain",
      "pair.first.bias", "last.weight" }, names(layer:parameters()))
    assert.same({ "pair.count" }, names(layer:buffers()))
    assert.equal(4 + 6 + 3 + 3 + 3 + 10, layer:n_parameters())
    layer:free()
    assert.is_false(layer.pair.scale:alive())
  end)

  alone("lists a shared parameter and a shared layer once", function()
    local Tied = nn.class("Tied")
    function Tied:init()
      self.a = nn.Linear(2, 2)
      self.b = self.a
      self.weight = self.a.weight
      self.c = nn.Linear(2, 2)
    end
    local layer = Tied()
    assert.same({ "weight", "a.bias", "c.weight", "c.bias" }, names(layer:parameters()))
    assert.equal(4 + 2 + 4 + 2, layer:n_parameters())
    layer.c.weight = layer.a.weight
    assert.same({ "weight", "a.bias", "c.bias" }, names(layer:parameters()))
  end)

  alone("has parameters that need gradients, live in no scope, counted as parameters", function()
    local layer
    neap.scope(function() layer = nn.Linear(4, 4) end)
    assert.equal(128, device:memory().tags.parameters)
    for _, p in ipairs(layer:parameters()) do
      assert.equal(1, C.neap_tensor_needs_grad(p.tensor.id))
      assert.equal(C.NEAP_TAG_PARAMETERS, C.neap_tensor_tag(p.tensor.id))
    end
    layer:zero_grad()
    assert.equal(128, device:memory().tags.gradients)
    layer:free()
    assert.equal(0, device:memory().live_bytes)
    layer = nil -- luacheck: ignore 311
  end)

  alone("starts as the seed says: the same again, others for other seeds and parameters", function()
    local function bits(seed)
      neap.manual_seed(seed)
      local a, b = nn.Linear(3, 3), nn.Linear(3, 3)
      return table.concat(a.weight:bits(), " "), table.concat(b.weight:bits(), " ")
    end
    local a, b = bits(7)
    local again, other = bits(7), bits(8)
    assert.equal(a, again)
    assert.are_not.equal(a, b)
    assert.are_not.equal(a, other)
    for _, bad in ipairs({ 0.5, 0 / 0, math.huge, "7", true, {} }) do
      failure_of("usage", neap.manual_seed, bad)
    end
    failure_of("usage", neap.manual_seed, nil)
  end)

  alone("starts parameters normal, uniform or with one value", function()
    local function moments(init)
      local sum, squares, least, most = 0, 0, math.huge, -math.huge
      local p = nn.parameter({ 4000 }, init)
      for _, v in ipairs(p:table()) do
        sum, squares, least, most = sum + v, squares + v * v, math.min(least, v), math.max(most, v)
      end
      return sum / 4000, math.sqrt(squares / 4000), least, most
    end
    local mean, deviation = moments({ normal = 0.5 })
    assert(math.abs(mean) < 0.04 and math.abs(deviation - 0.5) < 0.03)
    local least, most
    mean, deviation, least, most = moments({ uniform = 3 })
    assert(math.abs(mean) < 0.15 and math.abs(deviation - math.sqrt(3)) < 0.1)
    assert(least >= -3 and least < -2.9 and most < 3 and most > 2.9)
    mean, deviation = moments({ fill = 2 })
    assert.same({ 2, 2 }, { mean, deviation })
  end)

  alone("is called in a scope: only what forward returns is left", function()
    local layer = Pair()
    local before = device:memory().n_tensors
    local y = neap.no_grad(layer, neap.zeros({ 1, 2 }))
    jit.flush()
    collectgarbage()
    collectgarbage()
    assert.equal(before + 1, device:memory().n_tensors)
    assert.same({ 1, 3 }, y:dims())
  end)

  alone("passes all arguments on to forward, and all results back", function()
    local Both = nn.class("Both")
    function Both:forward(...) return select("#", ...), ... end -- luacheck: ignore 212
    assert.same({ 3, 1, nil, 3 }, { Both()(1, nil, 3) })
  end)

  alone("says in which layer an error happened, keeping its kind", function()
    local Block = nn.class("Block")
    function Block:init() self.up = nn.Linear(2, 4) end
    function Block:forward(x) return self.up(x) end
    local Faulty = nn.class("Faulty")
    function Faulty:init(what) self.what = what end
    function Faulty:forward() error(self.what) end
    local chain = nn.Sequential({ { "block.0", Block() }, { "block.1", Block() } })
    chain:parameters()
    local message = failure_of("shape mismatch", chain, neap.zeros({ 1, 2 }))
    assert.equal("Sequential: block.1 (Block): up (Linear): linear: ",
      message:match("^Sequential: block%.1 %(Block%): up %(Linear%): linear: "))
    for _, what in ipairs({ "boom", { 1 }, 5, true, print }) do
      local ok, err = pcall(nn.Sequential({ { "x", Faulty(what) } }), 1)
      assert.is_false(ok)
      assert.equal(1, fail.message(err):find("Sequential: x (Faulty): ", 1, true))
      assert.equal("error", err.kind)
      assert.equal(0, C.neap_scope_depth())
    end
    assert(fail.message(select(2, pcall(Faulty("boom"), 1))):find("^Faulty: boom$"))
    assert.equal("Block", tostring(Block()))
  end)

  alone("trains until told to evaluate, with all layers inside", function()
    local chain = nn.Sequential({ { "drop", nn.Dropout(0.5) }, { "act", nn.ReLU() } })
    local x = neap.full({ 200 }, 1)
    local function n_zeros()
      local n = 0
      for _, v in ipairs(chain(x):table()) do n = n + (v == 0 and 1 or 0) end
      return n
    end
    local first = n_zeros()
    assert(first > 60 and first < 140)
    assert.equal(chain, chain:eval())
    assert.equal(0, n_zeros())
    assert.is_false(chain.stages[1].module.training)
    assert.equal(chain, chain:train())
    assert(n_zeros() > 60)
    chain:train(false)
    assert.equal(0, n_zeros())
  end)

  alone("is of its own: two of a kind share nothing", function()
    local a, b = Pair(), Pair()
    assert.are_not.equal(a.scale.id, b.scale.id)
    a:eval()
    assert.is_true(b.training)
    assert.equal(5, #a:parameters())
  end)
end)

describe("Sequential", function()
  setup(function() neap.device("cpu") end)

  local function refused(list, ...)
    local message = failure_of("usage", nn.Sequential, list)
    for _, part in ipairs({ ... }) do
      assert(message:find(part, 1, true), ("'%s' does not say '%s'"):format(message, part))
    end
  end

  alone("runs its stages in order, each with the context", function()
    local Note = nn.class("Note")
    function Note:init(text) self.text = text end
    function Note:forward(x, ctx)
      ctx[#ctx + 1] = self.text
      return x .. self.text
    end
    local ctx = {}
    local chain = nn.Sequential({ { "a", Note("1") }, { "b", Note("2") }, { "c", Note("3") } })
    assert.equal("x123", chain("x", ctx))
    assert.same({ "1", "2", "3" }, ctx)
    for i, name in ipairs({ "a", "b", "c" }) do assert.equal(name, chain.stages[i].name) end
  end)

  alone("refuses empty chains, elements that are none, names that plans could not say", function()
    local layer = nn.ReLU()
    refused({}, "an empty one")
    refused(5, "found number")
    refused(nil, "found nil")
    refused({ { "a", layer }, { "b", layer }, { "a", layer } }, "1 and 3", "'a'", "unique")
    refused({ { "a,b", layer } }, "'a,b'", "comma")
    refused({ { "a b", layer } }, "'a b'", "space")
    for _, bad in ipairs({ layer, { layer }, { "", layer }, { 5, layer }, { "a" }, { "a", {} },
      { "a", 5 }, 7, "a" }) do
      refused({ { "ok", layer }, bad }, "element 2 must be { \"name\", layer }")
    end
  end)
end)
