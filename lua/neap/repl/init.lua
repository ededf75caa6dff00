-- The REPL: a session, its words, and lines from a terminal or a pipe.
local ffi_neap = require("neap.ffi")
local evaluator_module = require("neap.repl.evaluator")
local session_module = require("neap.repl.session")
local terminal = require("neap.repl.terminal")
local words = require("neap.repl.words")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

---@class neap.Repl
---@field session neap.Session
---@field evaluator neap.Evaluator
local Repl = {}
Repl.__index = Repl

-- names beside the words: each knows where its value is
local VALUES = {
  neap = function() return require("neap") end,
  nn = function() return require("neap").nn end,
  op = function() return require("neap").op end,
  trainer = function(session) return session.trainer end,
}
for _, name in ipairs({ "model", "optimizer", "config", "device", "data" }) do
  VALUES[name] = function(session) return session.trainer and session.trainer[name] end
end

local function values_of(session)
  return function(name) return VALUES[name] and VALUES[name](session) or nil end
end

local function pending() return C.neap_signal_pending() ~= 0 end

--- A REPL without a terminal: `feed` it lines.
---@param o { say: fun(text: string), complain: fun(text: string), tell: nil|fun(line: string),
---  plain: boolean|nil, stop_asked: nil|fun(): boolean, options: table|nil, sets: string[]|nil }
---   options, sets: of the command line, over every config that is loaded
---@return neap.Repl
function M.new(o)
  local stop_asked = o.stop_asked or pending
  local session = session_module.new({ say = o.say, tell = o.tell or o.say,
    stop_asked = stop_asked, options = o.options, sets = o.sets })
  session.plain = terminal.is_plain(o.plain)
  local evaluator = evaluator_module.new({ words = words.functions(session), say = o.say,
    complain = o.complain, stop_asked = stop_asked, values = values_of(session) })
  session.env, evaluator.value_names = evaluator.env, {}
  for name in pairs(VALUES) do table.insert(evaluator.value_names, name) end
  return setmetatable({ session = session, evaluator = evaluator }, Repl)
end

--- One line; Ctrl-C and SIGTERM are watched while it runs.
---@param line string
---@return "ok"|"more"|"error" outcome
---@return integer signal  that asked to stop, 0: none
function Repl:feed(line)
  check(C.neap_signal_watch(1))
  local ok, outcome = pcall(self.evaluator.feed, self.evaluator, line)
  local signal = C.neap_signal_pending()
  C.neap_signal_watch(0)
  if not ok then error(outcome, 0) end
  return outcome, signal
end

local SIGTERM = 15

--- Reads lines to their end or quit(). Returns the exit status: 0; with `batch` 1 after the first
--- error; 143 after SIGTERM.
---@param o { read: fun(prompt: string): string|nil, string|number|nil, batch: boolean|nil,
---  forgives: boolean|nil }  read gives a line; nil: the end; nil, "cancel": Ctrl-C; nil, number: a
---  signal that ends. forgives: lines that are not whole at the end are no error
---@return integer
function Repl:run(o)
  while not self.session.finished do
    local line, why = o.read(self.evaluator.pending and "  ... " or "neap> ")
    if line then
      local outcome, signal = self:feed(line)
      if signal == SIGTERM then return 128 + SIGTERM end
      if outcome == "error" and o.batch then return 1 end
    elseif why == "cancel" then
      self.evaluator:cancel()
    elseif why then
      return 128 + why
    else
      break
    end
  end
  if o.forgives then self.evaluator:cancel() end
  return self.evaluator:finish() == "error" and o.batch and 1 or 0
end

-- lines of a pipe or a file, without a prompt
local function plain_reader(shows_prompt)
  return function(prompt)
    if shows_prompt then
      io.stdout:write(prompt)
      io.stdout:flush()
    end
    return (io.read("*l"))
  end
end

--- Reads stdin: with line editing where somebody sits at it. Returns the exit status.
---@param o { batch: boolean|nil }
---@return integer
function Repl:interact(o)
  if not terminal.is_terminal(0) then
    return self:run({ read = plain_reader(false), batch = o.batch })
  end
  local editor, message = require("neap.repl.editor").new(self.evaluator)
  if not editor then io.stderr:write("repl: ", message, "\n") end
  io.stdout:write("help() lists the words, Tab completes, Ctrl-D leaves\n")
  local ok, status = pcall(self.run, self, { batch = o.batch, forgives = true,
    read = editor and function(prompt) return editor:read(prompt) end or plain_reader(true) })
  if editor then editor:close() end
  if not ok then error(status, 0) end
  return status
end

return M
