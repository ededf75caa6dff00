-- Lines typed before, in a file that stays short: one entry a line.
local files = require("neap.files")

local M = {}

M.MOST = 1000

--- Where the lines are kept: under XDG_STATE_HOME where that is set, else ~/.neap_history; nil
--- where there is no home either.
---@return string|nil
function M.path()
  local state, home = os.getenv("XDG_STATE_HOME"), os.getenv("HOME")
  if state and state ~= "" then return state .. "/neap/history" end
  return home and home ~= "" and home .. "/.neap_history" or nil
end

--- The last lines, oldest first. A file that has grown to twice the bound is cut down to it.
---@param path string|nil
---@return string[]
function M.load(path)
  local text = path and files.read(path, 2 ^ 24) or ""
  local lines = {}
  for line in text:gmatch("([^\n]+)") do lines[#lines + 1] = line end
  local kept = {}
  for i = math.max(1, #lines - M.MOST + 1), #lines do kept[#kept + 1] = lines[i] end
  if #lines > 2 * M.MOST then pcall(files.write, path, table.concat(kept, "\n") .. "\n") end
  return kept
end

--- Adds a line; a file that cannot be written is no reason to stop.
---@param path string|nil
---@param line string
function M.add(path, line)
  if not path then return end
  local directory = path:match("^(.*)/[^/]*$")
  if directory then pcall(files.make_directory, directory) end
  pcall(files.append, path, line .. "\n")
end

return M
