-- The REPL's core over a small model, fed by specs: what it said and what it complained about.
local repl_module = require("neap.repl")
local script = require("spec.support.script")

local M = {}

-- a budget means a device of its own, where no other spec's tensors are
M.TINY = { n_layer = 3, n_head = 2, width = 16, context = 8, chunk = 2, global_batch = 4,
  warmup = 0, lr = 0.01, threads = 1, dropout = 0.1, steps = 50,
  budget = 2 ^ 30 }

--- A text long enough for some steps; the caller removes the directory.
---@return string path
function M.text(directory)
  return script.write(directory .. "/text.txt", ("the moon pulls, the water comes, "):rep(60))
end

--- A REPL that collects lines; o: further options of neap.repl.new.
---@param data string|nil  loads the tiny model on this text
---@param o table|nil  and `keys`, over the tiny model's
function M.new(data, o)
  o = o or {}
  local self = { said = {}, complaints = {} }
  self.repl = repl_module.new({
    say = function(text) self.said[#self.said + 1] = text end,
    complain = function(text) self.complaints[#self.complaints + 1] = text end,
    tell = function() end, plain = o.plain, stop_asked = o.stop_asked })
  if data then
    local config = { data = data }
    for key, value in pairs(M.TINY) do config[key] = value end
    for key, value in pairs(o.keys or {}) do config[key] = value end
    self.repl.session:load(config)
  end
  self.session = self.repl.session

  --- Feeds one line (or several in one text); gives what was said, and the complaint or nil.
  function self.feed(text)
    self.said, self.complaints = {}, {}
    for line in (text .. "\n"):gmatch("(.-)\n") do self.outcome = self.repl:feed(line) end
    return table.concat(self.said, "\n"), self.complaints[1]
  end

  function self.close() self.session:close() end
  return self
end

return M
