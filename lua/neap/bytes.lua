-- Sizes as people write them: "1.5GiB", "512MiB", "80%"; and as we print them.
local argument = require("neap.argument")
local M = {}

local LARGEST = 2 ^ 53
local EXPECTED = "expected bytes like 512MiB, 1.5GiB, 80%"

local UNITS = {
  [""] = 1, b = 1,
  kib = 2 ^ 10, mib = 2 ^ 20, gib = 2 ^ 30, tib = 2 ^ 40, pib = 2 ^ 50,
  kb = 1e3, mb = 1e6, gb = 1e9, tb = 1e12, pb = 1e15,
}

local function refuse(found, why)
  local shown = type(found) == "number" and "'" .. found .. "'" or argument.shown(found)
  return nil, string.format("%s is %s; %s", shown, why, EXPECTED)
end

-- 2.3 * 1e9 is a hair below 2300000000: what rounding did is undone before the fraction goes
local function whole(bytes)
  local nearest = math.floor(bytes + 0.5)
  if math.abs(bytes - nearest) <= nearest * 2 ^ -51 then return nearest end
  return math.floor(bytes)
end

--- A number of bytes from text (or from a number, as configs may hold).
---@param size string|number  "1.5GiB", "64KiB", "10MB", "1000", "80%"; case and one space are free
---@param available number|nil  what a percentage is of
---@return number|nil bytes  whole, 0 to 2^53, a fraction rounded down
---@return string|nil message  one sentence: what was found, what was expected
function M.parse(size, available)
  if type(size) == "number" or type(size) == "cdata" then
    local number = type(size) == "number" and size or tonumber(size)
    if not number or number ~= number or number < 0 then return refuse(size, "not a size") end
    if number > LARGEST then return refuse(size, "more than 2^53 bytes") end
    return math.floor(number)
  end
  if type(size) ~= "string" then return refuse(size, "not a size") end
  local number, unit = size:match("^(%d+%.?%d*) ?(%%?%a*)$")
  if not number then number, unit = size:match("^(%.%d+) ?(%%?%a*)$") end
  if not number then return refuse(size, "not a size") end
  local value = tonumber(number)
  if unit == "%" then
    if value > 100 then return refuse(size, "more than all") end
    if not available or available < 0 or available == math.huge or available ~= available then
      return nil, string.format("'%s' is a share of a size that is not known here; expected bytes "
        .. "like 512MiB, 1.5GiB", size)
    end
    return math.min(whole(available * value / 100), math.floor(available))
  end
  local factor = UNITS[unit:lower()]
  if not factor then return refuse(size, string.format("in an unknown unit '%s'", unit)) end
  local bytes = value * factor
  if bytes > LARGEST then return refuse(size, "more than 2^53 bytes") end
  return whole(bytes)
end

local NAMES = { "KiB", "MiB", "GiB", "TiB", "PiB" }

--- "118.2 MiB"; below 1 KiB "512 B".
---@param bytes number
---@return string
function M.format(bytes)
  local number = (type(bytes) == "number" or type(bytes) == "cdata") and tonumber(bytes)
  bytes = argument.number(number or bytes, "bytes.format: its argument")
  if bytes < 0 then return "-" .. M.format(-bytes) end
  if bytes < 1024 then return string.format("%d B", math.floor(bytes)) end
  local value, name = bytes, 0
  -- 1023.96 KiB would print as 1024.0 KiB
  while value >= 1023.95 and name < #NAMES do value, name = value / 1024, name + 1 end
  return string.format("%.1f %s", value, NAMES[name])
end

return M
