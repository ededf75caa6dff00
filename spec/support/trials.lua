-- Small sweeps, run as a person runs them.
local json = require("neap.json")
local script = require("spec.support.script")

local M = {}

local SETS = { n_layer = 2, n_head = 2, width = 16, context = 16, chunk = 4, global_batch = 4,
  steps = 3, warmup = 0, lr = 1e-3, min_lr = "nil", budget = "nil", checkpoint = "none",
  eval_every = 0, final_eval_batches = 1, threads = 1 }

--- A text to learn from, in a directory.
function M.data(directory)
  return script.write(directory .. "/text.txt", ("the moon pulls, the water comes, "):rep(300))
end

--- The arguments of a small model's sweep; keys that these arguments sweep or set stand as they do.
---@param arguments string[]
---@param data string
---@return string[]
function M.arguments(arguments, data)
  local words, given = { unpack(arguments) }, {}
  for _, word in ipairs(arguments) do given[word:match("^([%w_]+)=") or word] = true end
  for key, value in pairs(SETS) do
    if not given[key] then
      words[#words + 1] = "--set"
      words[#words + 1] = key .. "=" .. value
    end
  end
  words[#words + 1] = "--set"
  words[#words + 1] = "data=" .. data
  return words
end

--- The same as one line for a shell.
function M.command(arguments, data)
  local words = { "env", "-u", "LUA_PATH", "luajit", script.root() .. "/examples/sweep.lua",
    unpack(M.arguments(arguments, data)) }
  for i, word in ipairs(words) do words[i] = "'" .. word:gsub("'", "'\\''") .. "'" end
  return table.concat(words, " ")
end

--- Runs a sweep in a directory that holds text.txt.
---@return { status: integer, out: string, err: string }
function M.run(arguments, directory)
  return script.run("examples/sweep.lua", M.arguments(arguments, directory .. "/text.txt"),
    directory)
end

--- The text of a file; nil where there is none.
function M.contents(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a")
  if file then file:close() end
  return text
end

--- The rows of results.jsonl in the grid's order, the last of each trial.
function M.rows(path)
  local by_trial, rows = {}, {}
  for line in M.contents(path .. "/results.jsonl"):gmatch("[^\n]+") do
    local row = assert(json.decode(line))
    by_trial[row.trial] = row
  end
  for trial in pairs(by_trial) do rows[#rows + 1] = trial end
  table.sort(rows)
  for i, trial in ipairs(rows) do rows[i] = by_trial[trial] end
  return rows
end

local TIMES = { "seconds", "step_seconds_median", "step_seconds_least", "step_seconds_most",
  "tokens_per_second" }

--- Rows without what differs from run to run.
function M.timeless(rows)
  for _, row in ipairs(rows) do
    for _, name in ipairs(TIMES) do row[name] = nil end
  end
  return rows
end

return M
