-- Every op of a recomputation that fails, in turn.
local C = require("neap.ffi").C
local models = require("spec.support.models")
local neap = require("neap")
local regions = require("spec.support.regions")
local op = neap.op

describe("an op that fails in a recomputation", function()
  local device, batch
  before_each(function()
    device = neap.device("cpu")
    batch = models.tokens()
    collectgarbage()
    collectgarbage()
  end)

  -- the k-th op of a recomputation raises; wraps the ops that a transformer's layers call
  local fuse = { left = math.huge, seen = 0 }
  local function wrap(fn)
    return function(...)
      if neap.is_recomputing() then
        fuse.seen = fuse.seen + 1
        if fuse.seen == fuse.left then error("the fuse burnt") end
      end
      return fn(...)
    end
  end

  -- layers that call wrapped ops: the transformer's block, spelt out
  local linear, gelu, layernorm, attention, add, dropout = wrap(op.linear), wrap(op.gelu),
    wrap(op.layernorm), wrap(op.attention), wrap(op.add), wrap(op.dropout)
  local Block = neap.nn.class("Block")
  function Block:init()
    self.norm1, self.norm2 = neap.nn.LayerNorm(16), neap.nn.LayerNorm(16)
    self.qkv, self.out = neap.nn.Linear(16, 48), neap.nn.Linear(16, 16)
    self.up, self.down = neap.nn.Linear(16, 64), neap.nn.Linear(64, 16)
  end
  local function apply(layer, x) return linear(x, layer.weight, layer.bias) end
  local function norm(layer, x) return layernorm(x, layer.gain, layer.bias, 1e-5) end
  local function body(self, x)
    local a = apply(self.out, attention(apply(self.qkv, norm(self.norm1, x)), 2, true))
    x = add(x, dropout(a, 0.1))
    return add(x, dropout(apply(self.down, gelu(apply(self.up, norm(self.norm2, x)))), 0.1))
  end
  function Block:forward(x)
    if self.by_hand then
      return neap.checkpoint({ name = "in " .. rawget(self, "_name") }, body, self, x)
    end
    return body(self, x)
  end

  local function build(by_hand)
    neap.manual_seed(3)
    Block.by_hand = by_hand
    local donor = models.gpt(0)
    return neap.nn.Sequential({ { "embed", donor.stages[1].module }, { "block.0", Block() },
      { "block.1", Block() }, { "head", donor.stages[2].module } })
  end

  for _, how in ipairs({ "all", "segments:2", "regions" }) do
    it("is one error with its place, for every op of " .. how .. ", and a clean step follows",
      function()
      local chain = build(how == "regions")
      local profile = neap.profile(chain, batch, { cost = "flops" })
      local plan = neap.plan(how == "regions" and "none" or how, profile)
      fuse.left, fuse.seen = math.huge, 0
      local clean = models.run(chain, batch, plan)
      local n = fuse.seen
      assert.equal(how == "segments:2" and 12 or 24, n)
      local before, position = regions.state(device), neap.rng
      for k = 1, n do
        fuse.left, fuse.seen = k, 0
        position({ seed = 9, step = 4, call = 7 })
        before.rng = regions.state(device).rng
        chain:zero_grad()
        local message = regions.failure("error", function() neap.step(chain, batch, plan) end)
        assert.same(before, regions.state(device))
        local place = how == "regions" and "^stage 'block.[01]' backward: region 'in block.[01]': "
          or "^stage 'block.[01]': "
        assert.matches(place .. "the fuse burnt$", message)
        if k % 4 == 1 then
          fuse.left = math.huge
          local again = models.run(chain, batch, plan)
          assert.same(clean.gradients, again.gradients)
          assert.equal(clean.loss, again.loss)
        end
      end
      fuse.left = math.huge
      rawget(chain, "_executor"):free()
      chain:free()
    end)
  end

  it("may be memory that runs out at any allocation of a step with regions", function()
    local chain = build(true)
    local plan = neap.plan("every_n:2", neap.profile(chain, batch, { cost = "flops" }))
    local clean = models.run(chain, batch, plan)
    local before, k = regions.state(device), 0
    repeat
      k = k + 7
      C.neap_memory_fail(k, -1)
      local ok, err = pcall(models.run, chain, batch, plan)
      local reached = C.neap_memory_n_attempts() >= k
      C.neap_memory_fail(0, 0)
      assert.equal(not reached, ok)
      if not ok then assert.equal("out of memory", err.kind) end
      neap.rng({ seed = 5, step = 1, n_items = 2 })
      local now = regions.state(device)
      before.rng = now.rng
      assert.same(before, now)
    until not reached
    assert.same(clean.gradients, models.run(chain, batch, plan).gradients)
    rawget(chain, "_executor"):free()
    chain:free()
  end)
end)
