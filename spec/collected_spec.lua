-- The debug switch that tells of tensors which the collector freed because nobody else did.
local neap = require("neap")
local scope = require("neap.scope")

describe("a tensor that nobody frees", function()
  local sentences, before

  before_each(function()
    neap.device("cpu")
    sentences, before = {}, scope.on_collect
    collectgarbage()
    collectgarbage()
    scope.on_collect = function(sentence) sentences[#sentences + 1] = sentence end
  end)
  after_each(function() scope.on_collect = before end)

  it("is freed by the collector, and reported with its shape when the switch is on", function()
    local function forget() neap.full({ 3, 5 }, 1) end
    forget()
    collectgarbage()
    collectgarbage()
    assert.same({ "tensor f32 (3, 5) of 64 bytes was freed by the collector; free it, or make it "
      .. "inside a scope" }, sentences)
  end)

  it("is not reported when it was made inside a scope, or freed by hand", function()
    neap.scope(function() neap.full({ 3, 5 }, 1) end)
    local function free() neap.full({ 3, 5 }, 1):free() end
    free()
    collectgarbage()
    collectgarbage()
    assert.same({}, sentences)
  end)
end)
