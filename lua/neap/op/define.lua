-- define{...}: an op written in Lua, with its own backward. For trying ideas; a C op costs less.
local argument = require("neap.argument")
local autograd = require("neap.autograd")
local fail = require("neap.fail")
local ffi_neap = require("neap.ffi")
local scope = require("neap.scope")
local tensor = require("neap.tensor")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local MOST = 16
local inputs, outputs, saved_ids = ffi.new("double[16]"), ffi.new("double[16]"),
  ffi.new("double[16]")
local keys = { "name", "n_inputs", "n_outputs", "forward", "backward" }

local function check_count(key, n, most)
  if type(n) ~= "number" or not (n >= 1 and n <= most) or n % 1 ~= 0 then
    fail.raise("invalid argument", string.format("define: %s must be a whole number, 1 to %d, "
      .. "found %s", key, most, argument.shown(n)))
  end
end

local function check_options(options)
  argument.options(argument.table(options, "define: its argument"), "define", keys)
  if type(options.name) ~= "string" or options.name:find("%z") then
    fail.raise("invalid argument", "define: name must be text without zero bytes, found "
      .. argument.shown(options.name))
  end
  if type(options.forward) ~= "function" or type(options.backward) ~= "function" then
    fail.usage("define: op %s needs the functions forward and backward",
      argument.shown(options.name))
  end
  check_count("n_inputs", options.n_inputs, C.NEAP_MAX_INPUTS)
  if options.n_outputs ~= nil then
    check_count("n_outputs", options.n_outputs, C.NEAP_MAX_OUTPUTS)
  end
end

local function ids_to(buffer, list, who)
  if #list > MOST then fail.raise("invalid argument", who .. ": too many tensors") end
  for i = 1, #list do buffer[i - 1] = tensor.id_of(list[i], who) end
  return #list
end

--- Registers an op. forward(save, ...) gets the inputs and returns new tensors; save(t, ...) keeps
--- tensors for backward(saved, grad, ...), which returns the gradient of each input (nil: none).
---@param options { name: string, n_inputs: integer, n_outputs?: integer, forward: function,
---  backward: function }
---@return function op
return function(options)
  check_options(options)
  local n_outputs = options.n_outputs or 1
  local op = check(C.neap_op_lua(options.name, options.n_inputs, n_outputs))
  autograd.lua_ops[op] = {
    name = options.name,
    n_inputs = options.n_inputs,
    n_outputs = n_outputs,
    backward = options.backward,
    n_saved = function(tape, node) return check(C.neap_tape_node_n_saved(tape, node)) end,
  }

  local function run(...)
    local saved = {}
    local function save(...)
      for k = 1, select("#", ...) do
        local t = select(k, ...)
        tensor.id_of(t, options.name .. " save")
        saved[#saved + 1] = t
      end
    end
    local given = { ... }
    for k = 1, options.n_inputs do tensor.id_of(given[k], options.name) end
    local tape = C.neap_tape_selected()
    check(C.neap_tape_select(0))
    local results = { pcall(options.forward, save, ...) }
    check(C.neap_tape_select(tape))
    if not results[1] then error(fail.with_place(options.name, results[2]), 0) end
    local made = {}
    for k = 1, n_outputs do made[k] = results[k + 1] end
    ids_to(outputs, made, options.name .. " output")
    if #made ~= n_outputs then
      fail.raise("invalid argument", string.format("%s: forward returned %d tensors, expected %d",
        options.name, #made, n_outputs))
    end
    if tape ~= 0 then
      ids_to(inputs, given, options.name)
      local n_saved = ids_to(saved_ids, saved, options.name .. " save")
      check(C.neap_tape_record_lua(tape, op, options.n_inputs, inputs, n_outputs, outputs, n_saved,
        saved_ids))
    end
    return unpack(made, 1, n_outputs)
  end

  return function(...)
    if select("#", ...) ~= options.n_inputs then
      fail.raise("invalid argument", string.format("%s: expected %d inputs, found %d", options.name,
        options.n_inputs, select("#", ...)))
    end
    return scope.run(run, ...)
  end
end
