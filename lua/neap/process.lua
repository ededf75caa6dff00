-- Other programs, started without a shell: words are passed as they are. They end when this process
-- does.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

M.SIGNALS = { interrupt = 2, kill = 9, terminate = 15 }

---@class neap.Process
---@field pid integer
---@field status integer|nil  exit status, or minus the signal that ended it; nil: it runs
local Process = {}
Process.__index = Process

local pid_out, ended_out, status_out = ffi.new("double[1]"), ffi.new("int[1]"), ffi.new("int[1]")

--- Starts a program with its output in two files. Raises "input/output" where it cannot run.
---@param words string[]  the program's path, then its arguments
---@param out_path string
---@param err_path string
---@return neap.Process
function M.start(words, out_path, err_path)
  argument.table(words, "process.start: words", "a list of text")
  argument.text(words[1], "process.start: the program")
  argument.text(out_path, "process.start: the path for its output")
  argument.text(err_path, "process.start: the path for its errors")
  local list = ffi.new("const char *[?]", #words + 1)
  for i, word in ipairs(words) do
    list[i - 1] = argument.path(word, "process.start: word " .. i)
  end
  check(C.neap_process_start(list, out_path, err_path, pid_out))
  return setmetatable({ pid = tonumber(pid_out[0]) }, Process)
end

--- Whether it has ended; `status` says how.
---@return boolean
function Process:has_ended()
  argument.self(self, Process, "process:has_ended")
  if self.status then return true end
  check(C.neap_process_status(self.pid, ended_out, status_out))
  if ended_out[0] == 1 then self.status = status_out[0] end
  return self.status ~= nil
end

--- Sends a signal; nothing where it has ended.
---@param name string  "interrupt", "terminate" or "kill"
function Process:signal(name)
  argument.self(self, Process, "process:signal")
  local number = M.SIGNALS[name]
  if not number then
    require("neap.fail").usage("process: %s", require("neap.fail").unknown("signal",
      argument.word(name), { "interrupt", "kill", "terminate" }))
  end
  -- one that has ended but was not asked about is still ours, so its number is nobody else's
  if not self.status then check(C.neap_process_signal(self.pid, number)) end
end

--- Waits, less when a signal comes.
---@param seconds number
function M.sleep(seconds) C.neap_sleep(argument.number(seconds, "process.sleep: seconds", 0)) end

return M
