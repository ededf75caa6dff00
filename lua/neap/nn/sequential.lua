-- Sequential{ { "name", layer }, ... }: the chain. Its elements are the stages that plans speak of.
local argument = require("neap.argument")
local fail = require("neap.fail")
local module = require("neap.nn.module")

local Sequential = module.class("Sequential")

---@class neap.Chain : neap.Module
---@field stages { name: string, module: neap.Module }[]

local function check_stage(i, stage, seen)
  local name, layer = nil, nil
  if type(stage) == "table" then name, layer = stage[1], stage[2] end
  if type(name) ~= "string" or name == "" or type(layer) ~= "table"
    or not rawget(layer, "_children") then
    fail.usage("Sequential: element %d must be { \"name\", layer } with a layer that was "
      .. "made, nn.GELU() and not nn.GELU", i)
  end
  if name:find("[,%s%z]") then
    fail.usage("Sequential: stage name %s has a comma, a space or a zero byte in it",
      argument.shown(name))
  end
  if seen[name] then
    fail.usage("Sequential: stages %d and %d are both called '%s'; names are unique", seen[name], i,
      name)
  end
  seen[name] = i
end

---@param list { [1]: string, [2]: neap.Module }[]
function Sequential:init(list)
  if type(list) ~= "table" or #list == 0 then
    fail.usage("Sequential: expected a list of { \"name\", layer }, found %s",
      type(list) == "table" and "an empty one" or type(list))
  end
  local stages, seen = {}, {}
  for i, stage in ipairs(list) do
    check_stage(i, stage, seen)
    stages[i] = { name = stage[1], module = stage[2] }
    self._children[i] = stages[i]
    rawset(stage[2], "_name", stage[1])
  end
  rawset(self, "stages", stages)
end

--- All stages one after another, without a plan; ctx reaches each of them.
function Sequential:forward(x, ctx)
  for i = 1, #self.stages do x = self.stages[i].module(x, ctx) end
  return x
end

return Sequential
