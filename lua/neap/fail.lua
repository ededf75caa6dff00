-- Errors with a kind. Scripts map kinds to exit codes; everything else reads the message.
local M = {}

---@class neap.Failure
---@field kind string  short name: "usage", "out of memory", "does not fit", "stale handle", ...
---@field message string  one sentence
local Failure = {}
Failure.__index = Failure
Failure.__tostring = function(self) return self.message end
Failure.__concat = function(a, b) return tostring(a) .. tostring(b) end

--- Raises a Failure.
---@param kind string
---@param message string
function M.raise(kind, message)
  error(setmetatable({ kind = kind, message = message }, Failure), 0)
end

--- Raises a Failure of a wrong option, key or value (exit status 2).
function M.usage(format, ...)
  M.raise("usage", select("#", ...) > 0 and string.format(format, ...) or format)
end

--- Whether a caught error is a Failure (of that kind, when given).
---@return boolean
function M.is(err, kind)
  return getmetatable(err) == Failure and (kind == nil or err.kind == kind)
end

--- The sentence of any caught error, without a position.
---@return string
function M.message(err)
  if getmetatable(err) == Failure then return err.message end
  return (tostring(err):gsub("^[^\n]-%.lua:%d+: ", ""))
end

--- Puts a place in front of a caught error, keeping its kind.
function M.with_place(place, err)
  if getmetatable(err) == Failure then
    return setmetatable({ kind = err.kind, message = place .. ": " .. err.message }, Failure)
  end
  return setmetatable({ kind = "error", message = place .. ": " .. M.message(err) }, Failure)
end

--- Levenshtein distance, for "did you mean".
local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local previous = row[0]
    row[0] = i
    for j = 1, #b do
      local above = row[j]
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      row[j] = math.min(row[j] + 1, row[j - 1] + 1, previous + cost)
      previous = above
    end
  end
  return row[#b]
end

--- The nearest of a list of names, or nil when none is near.
---@param word string
---@param names string[]
---@return string|nil
function M.nearest(word, names)
  local best, least
  for _, name in ipairs(names) do
    local d = distance(word:lower(), name:lower())
    if not least or d < least then best, least = name, d end
  end
  if best and (least <= math.max(2, math.floor(#word / 3)) or best:find(word, 1, true) == 1) then
    return best
  end
  return nil
end

--- "unknown X 'foo'; did you mean 'bar'? allowed: a, b, c"
---@return string
function M.unknown(what, word, names)
  local near = M.nearest(tostring(word), names)
  return string.format("unknown %s '%s'%s; allowed: %s", what, tostring(word),
    near and string.format(", did you mean '%s'?", near) or "", table.concat(names, ", "))
end

return M
