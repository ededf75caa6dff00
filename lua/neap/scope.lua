-- Scopes: tensors made inside are freed at the end, except those that are returned.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {
  depth = 0, -- open scopes; at 0 a tensor gets a finalizer as a safety net
}

local tensor_t = ffi.typeof("neap_tensor")
local istype = ffi.istype
local MOST_KEPT, MOST_NESTED = 256, 32
local keep = ffi.new("double[?]", MOST_KEPT)
local n_keep = 0

--- Called with a sentence for each tensor that the collector frees because nobody else did; nil:
--- silently. A debug switch: set it, or NEAP_REPORT_COLLECTED=1 for lines on stderr.
---@type fun(sentence: string)|nil
M.on_collect = os.getenv("NEAP_REPORT_COLLECTED") == "1"
  and function(sentence) io.stderr:write("neap: ", sentence, "\n") end or nil

M.finalize = function(tensor)
  if C.neap_tensor_alive(tensor.id) == 0 then return end
  local sentence = M.on_collect and string.format("%s of %.0f bytes was freed by the "
    .. "collector; free "
    .. "it, or make it inside a scope", tostring(tensor), C.neap_tensor_bytes(tensor.id))
  C.neap_tensor_free(tensor.id)
  if sentence then M.on_collect(sentence) end
end

local function keep_one(value, level)
  if istype(tensor_t, value) then
    if n_keep >= MOST_KEPT then error("a scope returns at most " .. MOST_KEPT .. " tensors", 0) end
    keep[n_keep] = value.id
    n_keep = n_keep + 1
    -- a leaf's gradient is the leaf's, whoever returns it
    if M.depth == 1 and C.neap_tensor_scope(value.id) > 0 then ffi.gc(value, M.finalize) end
  elseif type(value) == "table" and getmetatable(value) == nil then
    if level > MOST_NESTED then
      error("a scope returns tables nested at most " .. MOST_NESTED .. " deep", 0)
    end
    for _, inner in pairs(value) do keep_one(inner, level + 1) end
  end
end

local function keep_all(n, first, ...)
  if n == 0 then return end
  keep_one(first, 1)
  return keep_all(n - 1, ...)
end

local function results(depth, ...)
  M.depth, n_keep = depth, 0
  keep_all(select("#", ...), ...)
  return ...
end

local function inside(depth, fn, ...)
  return results(depth, fn(...))
end

local function finish(depth, ok, ...)
  M.depth = depth - 1
  check(C.neap_scope_end(depth, ok and n_keep or 0, keep))
  if not ok then error((...), 0) end
  return ...
end

--- Runs fn(...); frees every tensor made inside except what it returns, also inside plain tables.
--- After an error everything made inside is freed and the error goes on.
function M.run(fn, ...)
  if type(fn) ~= "function" then argument.fn(fn, "scope: its argument") end
  local depth = check(C.neap_scope_begin())
  M.depth = depth
  return finish(depth, pcall(inside, depth, fn, ...))
end

--- By hand, for the executor: begin, then stop (frees all).
---@return integer depth
function M.begin()
  local depth = check(C.neap_scope_begin())
  M.depth = depth
  return depth
end

---@param depth integer  what begin returned
function M.stop(depth)
  M.depth = depth - 1
  check(C.neap_scope_end(depth, 0, keep))
end

return M
