-- Every public function and method, found by looking and not by a list, called with wrong values in
-- every place: whatever it says is a sentence of ours.
local lfs = require("lfs")
local neap = require("neap")
local script = require("spec.support.script")
local sweep = require("spec.support.sweep")

-- what scripts require beside neap itself; the other modules are halves of these, called with
-- checked values
local MODULES = { "bytes", "config", "data", "device", "files", "json", "nn", "op", "optim", "rng",
  "rundir", "safetensors", "sample", "state", "text", "trainer" }
-- in reach, but for neap's own files
local INNER = {
  ["neap.device.checked"] = "its second argument says who asks",
  ["neap.rng.place"] = "in the step loop",
}

describe("wrong values everywhere", function()
  local before, directory, device, values, x
  local seen = {}

  setup(function()
    before, directory = lfs.currentdir(), script.directory()
    for _, module in ipairs(MODULES) do require("neap." .. module) end
    device = neap.device("cpu", { budget = "64MiB" })
    local freed = neap.zeros({ 2 })
    freed:free()
    values = sweep.values(function()
      if not x or not x:alive() then x = neap.zeros({ 2, 2 }, { device = device }) end
      return x
    end, freed)
    assert(lfs.chdir(directory)) -- some of the calls write files
  end)

  teardown(function()
    lfs.chdir(before)
    script.remove(directory)
    neap.rng({})
    neap.threads(tonumber(os.getenv("OMP_NUM_THREADS")) or 1)
    neap.manual_seed(1)
    neap.device("cpu")
  end)

  local function check(wrong)
    require("neap.device").make_current(device)
    local lines = {}
    for message, example in pairs(wrong) do
      lines[#lines + 1] = message .. " (" .. example .. ")"
    end
    table.sort(lines)
    assert.equal(0, #lines, table.concat(lines, "\n"))
  end

  -- classes of layers are called; what is in them are the layers' methods
  local function walk(name, value, wrong)
    if INNER[name] or (type(value) ~= "function" and type(value) ~= "table") or seen[value] then
      return
    end
    seen[value] = true
    if type(value) == "function" then
      sweep.each(name, value, values, wrong)
    elseif getmetatable(value) and getmetatable(value).__call then
      sweep.each(name, function(...) return value(...) end, values, wrong)
    else
      for key, inside in pairs(value) do
        if type(key) == "string" and key:sub(1, 2) ~= "__" then
          walk(name .. "." .. key, inside, wrong)
        end
      end
    end
  end

  it("in what require(\"neap\") gives", function()
    local wrong = {}
    walk("neap", neap, wrong)
    check(wrong)
    assert.is_true(sweep.functions >= 60, sweep.functions .. " functions")
  end)

  it("in the modules that scripts use", function()
    local wrong, n = {}, sweep.functions
    for _, module in ipairs(MODULES) do
      walk("neap." .. module, require("neap." .. module), wrong)
    end
    check(wrong)
    assert.is_true(sweep.functions - n >= 25, sweep.functions - n .. " functions")
  end)

  it("in the methods of what they make", function()
    local config = require("neap.config").load(nil, {}, {})
    local text = script.write(directory .. "/text.txt", ("the moon pulls, "):rep(20))
    require("neap.safetensors").save("one.safetensors", { { name = "a",
      tensor = neap.zeros({ 2 }) } })
    local layer, stage = neap.nn.Linear(2, 2), neap.nn.Linear(2, 2)
    local chain = neap.nn.Sequential({ { "one", stage } })
    local runs = 0
    local makers = {
      device = function() return neap.device("null", { size = 4096 }) end,
      tensor = function() return neap.zeros({ 2, 2 }) end,
      layer = function() return neap.nn.Linear(2, 2) end,
      sequential = function() return chain end,
      executor = function() return neap.executor(chain) end,
      manager = function() return neap.checkpoint_manager({ policy = "all" }) end,
      segments = function() return neap.segment_checkpointer(2, 4) end,
      adamw = function() return neap.optim.AdamW(layer:parameters()) end,
      sgd = function() return neap.optim.SGD(layer:parameters()) end,
      norm = function() return neap.optim.grad_norm(layer:parameters()) end,
      data = function() return neap.data.open(text, { context = 4 }) end,
      file = function() return require("neap.safetensors").open("one.safetensors") end,
      rundir = function()
        runs = runs + 1
        return require("neap.rundir").new(directory .. "/run" .. runs, "x", config, {})
      end,
    }
    local wrong, n = {}, sweep.functions
    for kind, make in pairs(makers) do
      local methods = kind == "tensor" and require("neap.tensor").methods
        or getmetatable(make()).__index
      if kind == "layer" or kind == "sequential" then
        methods = require("neap.nn.module").methods
      end
      for name, method in pairs(methods) do
        if type(method) == "function" and name:sub(1, 2) ~= "__" then
          sweep.each(kind .. ":" .. name, method, values, wrong)
          sweep.each(kind .. ":" .. name, method, values, wrong, make)
          require("neap.device").make_current(device)
        end
      end
    end
    check(wrong)
    assert.is_true(sweep.functions - n >= 150, sweep.functions - n .. " functions")
    print(string.format("\n%d calls of %d functions with wrong values", sweep.calls,
      sweep.functions))
  end)
end)
