-- What is typed, as text: locals of the outermost level become globals of the session, so that the
-- next line still knows them; and whether a text is only the beginning of something.
local M = {}

local OPENS = { ["function"] = true, ["do"] = true, ["if"] = true, ["repeat"] = true }
local CLOSES = { ["end"] = true, ["until"] = true }

-- the end of a long bracket that opens at `at`, or nil
local function long_bracket(text, at)
  local level = text:match("^%[(=*)%[", at)
  if not level then return nil end
  local _, stop = text:find("]" .. level .. "]", at, true)
  return stop or #text
end

local function quoted(text, at)
  local quote, stop = text:sub(at, at), at + 1
  while stop <= #text do
    local c = text:sub(stop, stop)
    if c == "\\" then stop = stop + 1 elseif c == quote or c == "\n" then break end
    stop = stop + 1
  end
  return math.min(stop, #text)
end

-- the next token from `at` on: its first and last byte and its kind
local function token(text, at)
  at = text:find("%S", at)
  if not at then return nil end
  local c = text:sub(at, at)
  if text:sub(at, at + 1) == "--" then
    local stop = long_bracket(text, at + 2) or (text:find("\n", at, true) or #text + 1) - 1
    return at, stop, "comment"
  end
  if c:find("[%a_]") then return at, select(2, text:find("^[%w_]+", at)), "name" end
  if c == '"' or c == "'" then return at, quoted(text, at), "string" end
  local stop = c == "[" and long_bracket(text, at)
  if stop then return at, stop, "string" end
  if c:find("%d") then return at, select(2, text:find("^[%w_.]+", at)), "number" end
  return at, at, "symbol"
end

--- The tokens of a text, comments left out.
---@param text string
---@return { first: integer, last: integer, kind: string, text: string }[]
function M.tokens(text)
  local list, at = {}, 1
  while true do
    local first, last, kind = token(text, at)
    if not first then return list end
    if kind ~= "comment" then
      list[#list + 1] = { first = first, last = last, kind = kind, text = text:sub(first, last) }
    end
    at = last + 1
  end
end

-- "local a, b" without values: where the names end, when no "=" follows
local function names_end(tokens, i)
  while tokens[i] and tokens[i].kind == "name" and tokens[i + 1] and tokens[i + 1].text == "," do
    i = i + 2
  end
  local following = tokens[i + 1]
  if tokens[i] and tokens[i].kind == "name" and not (following and following.text == "=") then
    return tokens[i].last
  end
  return nil
end

--- The same text with the outermost `local` gone: `local x` is `x = nil`. Lines stay lines.
---@param text string
---@return string
function M.globalize(text)
  local tokens, depth, parts, from = M.tokens(text), 0, {}, 1
  for i, t in ipairs(tokens) do
    if t.kind == "name" then
      if OPENS[t.text] then depth = depth + 1 end
      if CLOSES[t.text] then depth = depth - 1 end
      if t.text == "local" and depth == 0 and tokens[i + 1] and tokens[i + 1].kind == "name" then
        parts[#parts + 1] = text:sub(from, t.first - 1)
        from = t.last + 1
        local stop = tokens[i + 1].text ~= "function" and names_end(tokens, i + 1)
        if stop then
          parts[#parts + 1] = text:sub(from, stop) .. " = nil;"
          from = stop + 1
        end
      end
    end
  end
  parts[#parts + 1] = text:sub(from)
  return table.concat(parts)
end

-- text in quotes ends on its line, unless a backslash ends the line
local function wants_more(message)
  return message:find("near '<eof>'$") ~= nil and not message:find("unfinished string", 1, true)
end

--- Compiles what was typed: an expression gives its values, a statement none.
---@param text string
---@param name string  of the chunk
---@param env table
---@return function|nil chunk
---@return string|nil message
---@return boolean is_incomplete  more lines may make it whole
function M.compile(text, name, env)
  local expression = text:gsub("^%s*=", "", 1)
  local chunk, first = load("return " .. expression, name, "t", env)
  if chunk then return chunk, nil, false end
  local message
  chunk, message = load(M.globalize(text), name, "t", env)
  if chunk then return chunk, nil, false end
  return nil, expression ~= text and first or message, wants_more(message) or wants_more(first)
end

return M
