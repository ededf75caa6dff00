-- Line editing by libedit. It would call back for Tab and Ctrl-C; instead it reads in its
-- unbuffered mode, where el_gets returns after every key. Both keys are bound to insert themselves,
-- so that Lua finds them before the cursor, takes them out and acts. So C never calls Lua; all that
-- it needs of the library is a C function that gives the prompt's text.
local ffi_neap = require("neap.ffi")
local complete = require("neap.repl.complete")
local history = require("neap.repl.history")
local terminal = require("neap.repl.terminal")
local C, ffi = ffi_neap.C, ffi_neap.ffi

local M = {}

ffi.cdef([[
typedef struct neap_lineinfo { const char *buffer, *cursor, *lastchar; } neap_lineinfo;
typedef struct neap_histevent { int number; const char *text; } neap_histevent;
typedef struct neap_pollfd { int fd; short events, revents; } neap_pollfd;
void *el_init(const char *, void *, void *, void *);
void el_end(void *);
const char *el_gets(void *, int *);
int el_set(void *, int, ...);
int el_source(void *, const char *);
const neap_lineinfo *el_line(void *);
int el_insertstr(void *, const char *);
void el_deletestr(void *, int);
void el_push(void *, const char *);
void el_resize(void *);
void *history_init(void);
void history_end(void *);
int history(void *, neap_histevent *, int, ...);
int poll(neap_pollfd *, unsigned long, int);
char *setlocale(int, const char *);
]])

local EL_PROMPT, EL_EDITOR, EL_BIND, EL_SETTY, EL_HIST = 0, 2, 4, 8, 10
local EL_UNBUFFERED, EL_REFRESH = 15, 20
local H_SETSIZE, H_ENTER, H_SETUNIQUE = 1, 10, 20
local LC_CTYPE, POLLIN, POLLHUP = 0, 1, 0x10
local SIGINT, POLL_MILLISECONDS = 2, 500
local CTRL_C, CTRL_D, TAB, REDRAW = 3, 4, 9, "\28"

---@class neap.Editor
local Editor = {}
Editor.__index = Editor

local function int(x) return ffi.new("int", x) end
local null = ffi.cast("const char *", nil)

local function bind(self, key, command)
  self.lib.el_set(self.el, EL_BIND, key, command, null)
end

local function fill_history(self)
  local lib, event = self.lib, ffi.new("neap_histevent")
  self.history, self.event, self.path = lib.history_init(), event, history.path()
  lib.history(self.history, event, H_SETSIZE, int(history.MOST))
  lib.history(self.history, event, H_SETUNIQUE, int(1))
  for _, line in ipairs(history.load(self.path)) do
    lib.history(self.history, event, H_ENTER, line)
  end
  lib.el_set(self.el, EL_HIST, lib.history, self.history)
end

--- An editor on stdin and stdout; nil and a sentence where libedit is missing.
---@param evaluator neap.Evaluator  knows what Tab completes
---@return neap.Editor|nil
---@return string|nil message
function M.new(evaluator)
  local ok, lib = pcall(ffi.load, "libedit.so.2")
  if not ok then
    return nil, string.format("no line editing, history and Tab: cannot load libedit (%s); install "
      .. "the package libedit2", tostring(lib):match("^[^\n]*"))
  end
  -- letters beyond ASCII are one character each
  if ffi.C.setlocale(LC_CTYPE, "") == nil then ffi.C.setlocale(LC_CTYPE, "C.UTF-8") end
  local el = lib.el_init("neap", io.stdin, io.stdout, io.stderr)
  if el == nil then return nil, "no line editing, history and Tab: libedit finds no terminal" end
  local self = setmetatable({ lib = lib, el = el, evaluator = evaluator, n = ffi.new("int[1]") },
    Editor)
  lib.el_set(el, EL_PROMPT, C.neap_prompt)
  lib.el_set(el, EL_EDITOR, "emacs")
  lib.el_source(el, nil) -- ~/.editrc
  fill_history(self)
  bind(self, "^I", "ed-insert")
  bind(self, "^C", "ed-insert")
  bind(self, "^R", "em-inc-search-prev")
  bind(self, REDRAW, "ed-redisplay") -- pushed to show what was put into the line
  -- while a line is typed, Ctrl-C is a key and no signal
  lib.el_set(el, EL_SETTY, "-d", "-isig", null)
  return self
end

-- the line, and the bytes before the cursor
local function text_of(self)
  local line = self.lib.el_line(self.el)
  return ffi.string(line.buffer, line.lastchar - line.buffer), line.cursor - line.buffer
end

local function columns(list)
  local widest = 0
  for _, word in ipairs(list) do widest = math.max(widest, #word + 2) end
  local each, lines = math.max(1, math.floor(terminal.width() / widest)), {}
  for i, word in ipairs(list) do
    local row = math.floor((i - 1) / each) + 1
    lines[row] = (lines[row] or "") .. word .. string.rep(" ", widest - #word)
  end
  return (table.concat(lines, "\n"):gsub(" +\n", "\n"):gsub(" +$", ""))
end

local MOST_SHOWN = 200

-- Tab stands before the cursor; it goes, and what it asked for comes. true: a key was pushed that
-- shows it
local function tab(self)
  self.lib.el_deletestr(self.el, 1)
  local text, cursor = text_of(self)
  local before = text:sub(1, cursor)
  if before:find("^%s*$") then -- pasted code
    self.lib.el_insertstr(self.el, "  ")
    self.lib.el_push(self.el, REDRAW)
    return true
  end
  local word, list = complete.candidates(self.evaluator, before)
  local common = complete.common(list)
  if #common > #word then
    self.lib.el_insertstr(self.el, common:sub(#word + 1))
  elseif #list > 1 then
    local shown = { unpack(list, 1, MOST_SHOWN) }
    if #list > MOST_SHOWN then shown[#shown + 1] = "..." end
    io.stdout:write("\n", columns(shown), "\n")
    io.stdout:flush()
    self.lib.el_set(self.el, EL_REFRESH)
    return false
  end
  self.lib.el_push(self.el, REDRAW)
  return true
end

local one = ffi.new("neap_pollfd", { fd = 0, events = POLLIN })

-- until a key was pressed: el_gets would not notice a signal, and libedit's own handling of signals
-- ends the whole process group. false: the terminal is gone, or a signal came
local function wait()
  while true do
    local n = ffi.C.poll(one, 1, POLL_MILLISECONDS)
    if C.neap_signal_pending() ~= 0 then return false end
    if n > 0 then return bit.band(one.revents, POLLIN + POLLHUP) == POLLIN end
  end
end

-- keys until there is a whole line
local function keys(self)
  local is_pushed = false
  while true do
    if not is_pushed and not wait() then return nil, "stopped" end
    is_pushed = false
    self.lib.el_resize(self.el)
    self.lib.el_gets(self.el, self.n)
    local text, cursor = text_of(self)
    local last = cursor > 0 and text:byte(cursor) or 0
    if text:sub(-1) == "\n" then return text:sub(1, -2) end
    if last == CTRL_C then
      return nil, "cancel"
    elseif text == string.char(CTRL_D) then
      return nil
    elseif last == TAB then
      is_pushed = tab(self)
    end
  end
end

-- compiled code must not be on the stack while libedit handles signals
jit.off(wait)
jit.off(keys)
jit.off(tab)

--- One line without its newline; nil at the end, nil and "cancel" after Ctrl-C, nil and a number
--- after another signal.
---@param prompt string
---@return string|nil
---@return string|number|nil why
function Editor:read(prompt)
  local lib, el = self.lib, self.el
  io.stdout:flush()
  ffi_neap.check(C.neap_prompt_set(prompt))
  ffi_neap.check(C.neap_signal_watch(1))
  lib.el_set(el, EL_UNBUFFERED, int(1))
  local ok, line, why = pcall(keys, self)
  lib.el_set(el, EL_UNBUFFERED, int(0))
  local signal = C.neap_signal_pending()
  C.neap_signal_watch(0)
  if not ok then error(line, 0) end
  if not line then io.stdout:write("\n") end
  if why == "stopped" then why = signal == SIGINT and "cancel" or signal > 0 and signal or nil end
  if line and line:find("%S") then
    lib.history(self.history, self.event, H_ENTER, line)
    history.add(self.path, line)
  end
  return line, why
end
jit.off(Editor.read)

--- Gives the terminal back.
function Editor:close()
  if not self.el then return end
  self.lib.el_end(self.el)
  self.lib.history_end(self.history)
  self.el = nil
end

return M
