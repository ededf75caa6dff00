-- Modes: which ops of a stage keep their outputs while everything else is recomputed ("selective
-- recomputation"). A mode's name lists ops and groups of ops: "matmul", "linear,attention".
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.Mode
---@field name string
---@field ops integer[]|nil   ids of the ops whose outputs are kept
---@field keep (fun(op: neap.ModeOp): boolean)|nil  or a function that is asked op by op

---@class neap.ModeOp
---@field op string
---@field number integer    position in the stage's forward, from 1
---@field stage string
---@field shape integer[]   of its output
---@field bytes number
---@field recorded boolean  whether backward goes through it

-- every product of matrices: what costs FLOPs
M.groups = { matmul = { "linear", "matmul", "attention", "conv2d" } }

local function op_names()
  local names = { "matmul" }
  local i = 0
  while C.neap_op_name(i) ~= nil do
    local name = ffi.string(C.neap_op_name(i))
    if name ~= "matmul" and name ~= "checkpoint" then names[#names + 1] = name end
    i = i + 1
  end
  return names
end

local function add(ops, seen, name, who)
  local id = C.neap_op_find(name)
  if id < 0 or name == "checkpoint" then
    fail.usage("%s: %s", who, fail.unknown("op", name, op_names()))
  end
  if not seen[id] then ops[#ops + 1] = id end
  seen[id] = true
end

--- Reads a mode: a name, or { name =, keep = function }.
---@param mode string|neap.Mode
---@param who string|nil
---@return neap.Mode
function M.read(mode, who)
  who = who or "selective"
  if type(mode) == "table" then
    argument.options(mode, who, { "name", "keep", "ops" })
    argument.text(mode.name, who .. ": name")
    if mode.ops then return mode end
    argument.fn(mode.keep, who .. ": keep")
    return { name = mode.name, keep = mode.keep }
  end
  argument.text(mode, who .. ": the ops to keep")
  local ops, seen = {}, {}
  for word in (mode .. ","):gmatch("([^,]*),") do
    local group = M.groups[word]
    if group then
      for _, name in ipairs(group) do
        if C.neap_op_find(name) >= 0 then add(ops, seen, name, who) end
      end
    else
      add(ops, seen, word, who)
    end
  end
  return { name = mode, ops = ops }
end

local op_out = ffi.new("neap_trace_op")

--- Which ops of a traced forward a function wants to keep, as their numbers from 0.
---@param mode neap.Mode
---@param trace integer
---@param stage string
---@return integer[]
function M.positions(mode, trace, stage)
  local list = {}
  for i = 0, check(C.neap_trace_n_ops(trace)) - 1 do
    check(C.neap_trace_get_op(trace, i, op_out))
    local shape = {}
    for d = 1, op_out.n_dims do shape[d] = op_out.dims[d - 1] end
    local keeps = mode.keep({ op = ffi.string(C.neap_op_name(op_out.op)), number = i + 1,
      stage = stage, shape = shape, bytes = op_out.bytes, recorded = op_out.recorded == 1 })
    if type(keeps) ~= "boolean" then
      fail.usage("selective: keep must return true or false, found %s", argument.shown(keeps))
    end
    if keeps and op_out.is_view == 0 then list[#list + 1] = i end
  end
  return list
end

--- A new trace that keeps what the mode says.
---@param mode neap.Mode|nil
---@param positions integer[]|nil  of a mode with a function
---@param check_kind integer|nil
---@return integer trace
function M.trace(mode, positions, check_kind)
  local trace = check(C.neap_trace_new(check_kind or C.NEAP_CHECK_SHAPE, 0))
  for _, op in ipairs(mode and mode.ops or {}) do check(C.neap_trace_keep(trace, op)) end
  for _, position in ipairs(positions or {}) do check(C.neap_trace_keep_at(trace, position)) end
  return trace
end

return M
