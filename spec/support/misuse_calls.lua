-- Spoils calls: each argument in turn is replaced by the wrong values of its kind, and everything
-- has to be as before. The tensors, devices and model to do it with are made here.
local neap = require("neap")
local fail = require("neap.fail")
local misuse = require("spec.support.misuse")
local models = require("spec.support.models")
local native = require("neap.ffi")

local C = native.C
local NIL = misuse.NIL

-- what a person cannot act on
local UNCLEAR = { "cannot convert", "attempt to ", "bad argument", "nil value", "traceback" }

local M = { calls = 0, groups = 0, w = {} }

local w, device, null = M.w, nil, nil
local before_bits, wrong = nil, {}

local function check_sentence(what, ok, err)
  M.calls = M.calls + 1
  local message = not ok and fail.message(err) or nil
  local complaint
  if ok then
    complaint = "is accepted"
  elseif not fail.is(err) and type(err) ~= "string" then
    complaint = "raises a " .. type(err)
  elseif message == "" or message:find("\n") then
    complaint = "says no single sentence: " .. message
  end
  for _, pattern in ipairs(UNCLEAR) do
    if not complaint and message:find(pattern) then complaint = "says: " .. message end
  end
  if complaint then wrong[#wrong + 1] = what .. " " .. complaint end
end

local function collect()
  jit.flush()
  for _ = 1, 3 do collectgarbage() end
end

local function live() return { device:memory().live_bytes, null:memory().live_bytes } end

-- fn, the place of each argument's kind and valid value: { kind, value }; kind false: not spoilt
function M.spoil(name, fn, arguments)
  M.groups = M.groups + 1
  wrong = {}
  collect()
  local bytes, depth, tape = live(), C.neap_scope_depth(), C.neap_tape_selected()
  local n = #arguments
  local function one(what, ...)
    check_sentence(what, pcall(fn, ...))
    if C.neap_scope_depth() ~= depth then wrong[#wrong + 1] = what .. " leaves a scope" end
    if C.neap_tape_selected() ~= tape then wrong[#wrong + 1] = what .. " leaves a tape" end
    if require("neap.scope").depth ~= depth then wrong[#wrong + 1] = what .. " counts scopes" end
  end
  for place = 1, n do
    local kind = arguments[place][1]
    for _, item in ipairs(kind and misuse.kinds[kind] or {}) do
      local given = {}
      for i = 1, n do given[i] = arguments[i][2] end
      given[place] = item[2]
      if item[2] == NIL then given[place] = nil end
      one(string.format("%s with %s as argument %d", name, item[1], place), unpack(given, 1, n))
    end
  end
  collect()
  local after = live()
  if after[1] ~= bytes[1] or after[2] ~= bytes[2] then
    wrong[#wrong + 1] = string.format("%s leaves %d and %d bytes", name, after[1] - bytes[1],
      after[2] - bytes[2])
  end
  assert(#wrong == 0, table.concat(wrong, "\n"))
end

-- options one by one: { key = kind }
function M.spoil_options(name, fn, options, kinds)
  for key, kind in pairs(kinds) do
    M.spoil(name .. ": " .. key, function(value)
      local given = {}
      for k, v in pairs(options) do given[k] = v end
      given[key] = value
      return fn(given)
    end, { { kind, options[key] } })
  end
end

local function step_bits()
  local result = models.run(w.model, w.batch, "every_n:2")
  return { result.loss, result.gradients }
end

--- Makes the world: w holds it.
function M.open()
  device = neap.device("cpu", { budget = "256MiB" })
  null = neap.device("null", { size = "1GiB" })
  local closed = neap.device("null", { size = 4096 })
  closed:close()
  w.closed, w.neap = closed, neap
  require("neap.device").make_current(null)
  w.null = neap.zeros({ 4, 6 })
  w.null_ids = neap.zeros({ 4 }, { dtype = "i32" })
  require("neap.device").make_current(device)
  w.freed = neap.zeros({ 4, 6 })
  w.freed:free()
  w.x, w.y = neap.full({ 4, 6 }, 1), neap.full({ 4, 6 }, 2)
  w.odd = neap.zeros({ 5, 7 })
  w.i32 = neap.zeros({ 4, 6 }, { dtype = "i32" })
  w.bf16 = neap.empty({ 4, 6 }, { dtype = "bf16" })
  w.row = neap.zeros({ 6 })
  w.ids = neap.zeros({ 4 }, { dtype = "i32" })
  w.large_ids = neap.full({ 4 }, 2 ^ 31 - 1, { dtype = "i32" })
  w.negative_ids = neap.full({ 4 }, -1, { dtype = "i32" })
  w.weight = neap.zeros({ 3, 6 })
  w.leaf = neap.zeros({ 4, 6 }, { requires_grad = true })
  w.leaf:zero_grad()
  w.number = neap.full({}, 3)
  w.qkv = neap.zeros({ 1, 4, 6 })
  w.model, w.layer = models.chain(2, 6, 0.1), neap.nn.Linear(6, 6)
  w.batch = { inputs = w.x, targets = w.y }
  w.model:zero_grad()
  w.profile = neap.profile(w.model, w.batch, { cost = "flops" })
  w.plan = neap.plan("none", w.profile)
  w.executor = neap.executor(w.model)
  misuse.add_tensors(w)
  before_bits = step_bits()
  return device
end

--- Frees it.
function M.close()
  local names = {}
  for name, value in pairs(w) do
    if neap.is_tensor(value) then names[#names + 1] = name end
  end
  for _, name in ipairs(names) do w[name]:free() end
  w.model:free()
  w.layer:free()
  for name in pairs(w) do w[name] = nil end
  neap.device("cpu")
  neap.rng({})
end

--- A step of training, as bits, then and now.
function M.steps() return before_bits, step_bits() end

return M
