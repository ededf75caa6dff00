-- The window: how wide it is, whether somebody sits there, whether it draws Unicode blocks.
local ffi = require("neap.ffi").ffi

local M = {}

ffi.cdef([[
typedef struct neap_winsize { unsigned short rows, columns, x_pixels, y_pixels; } neap_winsize;
int ioctl(int fd, unsigned long request, ...);
int isatty(int fd);
]])

local TIOCGWINSZ = 0x5413
local LEAST, MOST, DEFAULT = 40, 200, 80

---@param fd integer|nil  0: stdin, 1: stdout
---@return boolean
function M.is_terminal(fd) return ffi.C.isatty(fd or 0) == 1 end

--- Columns of the window: COLUMNS where it is set, else what the terminal says, else 80.
---@return integer
function M.width()
  local columns = tonumber(os.getenv("COLUMNS") or "")
  if not columns then
    local size = ffi.new("neap_winsize")
    if ffi.C.ioctl(1, TIOCGWINSZ, size) == 0 and size.columns > 0 then columns = size.columns end
  end
  columns = columns == columns and columns or nil
  return math.max(LEAST, math.min(MOST, math.floor(columns or DEFAULT)))
end

--- Whether charts are drawn in plain ASCII: asked for, or a terminal that says it can do nothing.
---@param asked boolean|nil
---@return boolean
function M.is_plain(asked) return asked or os.getenv("TERM") == "dumb" end

return M
