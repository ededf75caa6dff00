-- Where random numbers are drawn: a key and a position, set by whoever drives; ops count their own
-- calls.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local fail = require("neap.fail")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

local state = ffi.new("neap_rng_state")
local names = { "seed", "step", "item", "n_items", "stage", "call" }

--- Sets the position: what is not named becomes 0 (seed: 1).
---@param position { seed?: number, step?: number, item?: number, n_items?: number,
---  stage?: number, call?: number }
function M.set(position)
  argument.options(argument.table(position, "rng: the position"), "rng", names, "key")
  for i = 1, #names do
    local value = position[names[i]]
    if value ~= nil and type(value) ~= "number" then
      fail.raise("invalid argument", string.format("rng: %s must be a number, found %s", names[i],
        argument.shown(value)))
    end
  end
  state.seed = position.seed or 1
  state.step = position.step or 0
  state.item = position.item or 0
  state.n_items = position.n_items or 0
  state.stage = position.stage or 0
  state.call = position.call or 0
  check(C.neap_rng_set(state))
end

--- The same for the step loop, without a table.
function M.place(seed, step, item, n_items)
  state.seed, state.step, state.item, state.n_items = seed, step, item, n_items
  state.stage, state.call = 0, 0
  check(C.neap_rng_set(state))
end

---@return table position
function M.get()
  check(C.neap_rng_get(state))
  local out = {}
  for _, name in ipairs(names) do out[name] = state[name] end
  return out
end

return M
