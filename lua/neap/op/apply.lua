-- The one way from Lua into an op. One closure per number of inputs, made from the same prototype
-- for every op, so that LuaJIT compiles one trace for all of them; the op's id is an upvalue.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local memory = require("neap.memory")
local scope = require("neap.scope")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

local tensor_t = ffi.typeof("neap_tensor")
local istype, gc, finalize = ffi.istype, ffi.gc, scope.finalize

local function misuse(op, place, value)
  fail.raise("invalid argument", string.format("%s: input %d must be a tensor, found %s",
    ffi.string(C.neap_op_name(op)), place, value == nil and "nil" or type(value)))
end

local function no_number(op, value)
  fail.raise("invalid argument", string.format("%s: expected a number, found %s",
    ffi.string(C.neap_op_name(op)), type(value)))
end

-- the slow path: out of memory is tried once more after a collection, anything else is raised
local function again1(code, op, a, p0, p1, p2, p3)
  if memory.make_room(code) then
    return check(C.neap_apply1(op, a.id, p0 or 0, p1 or 0, p2 or 0, p3 or 0))
  end
  return check(code)
end

local function again2(code, op, a, b, p0, p1)
  if memory.make_room(code) then
    return check(C.neap_apply2(op, a.id, b.id, p0 or 0, p1 or 0, 0, 0))
  end
  return check(code)
end

local function again3(code, op, a, b, c, p0, p1)
  if memory.make_room(code) then
    return check(C.neap_apply3(op, a.id, b.id, c.id, p0 or 0, p1 or 0, 0, 0))
  end
  return check(code)
end

--- A number that an op cannot do without.
---@param op string
---@param what string
function M.number(op, what, value)
  if type(value) ~= "number" then
    fail.raise("invalid argument", string.format("%s: %s must be a number, found %s", op, what,
      value == nil and "nil" or type(value)))
  end
  return value
end

local function find(name)
  return check(C.neap_op_find(argument.text(name, "op: its name")))
end

--- A function (a, p0, p1, p2, p3) that runs an op of one input with up to four numbers.
function M.bind1(name)
  local op = type(name) == "number" and name or find(name)
  return function(a, p0, p1, p2, p3)
    if not istype(tensor_t, a) then misuse(op, 1, a) end
    if p0 ~= nil and type(p0) ~= "number" then no_number(op, p0) end
    if p1 ~= nil and type(p1) ~= "number" then no_number(op, p1) end
    if p2 ~= nil and type(p2) ~= "number" then no_number(op, p2) end
    if p3 ~= nil and type(p3) ~= "number" then no_number(op, p3) end
    local id = C.neap_apply1(op, a.id, p0 or 0, p1 or 0, p2 or 0, p3 or 0)
    if id < 0 then id = again1(id, op, a, p0, p1, p2, p3) end
    if scope.depth == 0 then return gc(tensor_t(id), finalize) end
    return tensor_t(id)
  end
end

--- A function (a, b, p0, p1) that runs an op of two inputs.
function M.bind2(name)
  local op = type(name) == "number" and name or find(name)
  return function(a, b, p0, p1)
    if not istype(tensor_t, a) then misuse(op, 1, a) end
    if not istype(tensor_t, b) then misuse(op, 2, b) end
    if p0 ~= nil and type(p0) ~= "number" then no_number(op, p0) end
    if p1 ~= nil and type(p1) ~= "number" then no_number(op, p1) end
    local id = C.neap_apply2(op, a.id, b.id, p0 or 0, p1 or 0, 0, 0)
    if id < 0 then id = again2(id, op, a, b, p0, p1) end
    if scope.depth == 0 then return gc(tensor_t(id), finalize) end
    return tensor_t(id)
  end
end

--- A function (a, b, c, p0, p1) that runs an op of three inputs.
function M.bind3(name)
  local op = type(name) == "number" and name or find(name)
  return function(a, b, c, p0, p1)
    if not istype(tensor_t, a) then misuse(op, 1, a) end
    if not istype(tensor_t, b) then misuse(op, 2, b) end
    if not istype(tensor_t, c) then misuse(op, 3, c) end
    if p0 ~= nil and type(p0) ~= "number" then no_number(op, p0) end
    if p1 ~= nil and type(p1) ~= "number" then no_number(op, p1) end
    local id = C.neap_apply3(op, a.id, b.id, c.id, p0 or 0, p1 or 0, 0, 0)
    if id < 0 then id = again3(id, op, a, b, c, p0, p1) end
    if scope.depth == 0 then return gc(tensor_t(id), finalize) end
    return tensor_t(id)
  end
end

local inputs, attrs = ffi.new("double[6]"), ffi.new("double[8]")

--- A function (a, b, c, d, e, p0) that runs an op of five inputs.
function M.bind5(name)
  local op = find(name)
  return function(a, b, c, d, e, p0)
    if not istype(tensor_t, a) then misuse(op, 1, a) end
    if not istype(tensor_t, b) then misuse(op, 2, b) end
    if not istype(tensor_t, c) then misuse(op, 3, c) end
    if not istype(tensor_t, d) then misuse(op, 4, d) end
    if not istype(tensor_t, e) then misuse(op, 5, e) end
    if p0 ~= nil and type(p0) ~= "number" then no_number(op, p0) end
    inputs[0], inputs[1], inputs[2], inputs[3], inputs[4] = a.id, b.id, c.id, d.id, e.id
    attrs[0] = p0 or 0
    local id = C.neap_apply(op, 5, inputs, 1, attrs)
    if id < 0 then
      if not memory.make_room(id) then check(id) end
      inputs[0], inputs[1], inputs[2], inputs[3], inputs[4] = a.id, b.id, c.id, d.id, e.id
      id = check(C.neap_apply(op, 5, inputs, 1, attrs))
    end
    if scope.depth == 0 then return gc(tensor_t(id), finalize) end
    return tensor_t(id)
  end
end

--- Output k >= 1 (from 0) of the op that ran last; the first one is what a bound function returns.
function M.output(k)
  local id = check(C.neap_apply_output(k))
  if scope.depth == 0 then return gc(tensor_t(id), finalize) end
  return tensor_t(id)
end

return M
