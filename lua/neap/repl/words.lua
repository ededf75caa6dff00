-- The words of the REPL: what they are called with, what they do, and help on them.
local answer = require("neap.repl.answer")
local argument = require("neap.argument")
local fail = require("neap.fail")
local grammar = require("neap.checkpoint.grammar")
local memory = require("neap.repl.words_memory")
local plan = require("neap.repl.words_plan")
local run_module = require("neap.run")
local state = require("neap.state")

local M = {}

---@class neap.Word
---@field name string
---@field usage string
---@field about string   one line
---@field more string    what else there is to know, with an example
---@field run fun(session: neap.Session, ...): any

local function load_config(session, config)
  if config == nil then
    fail.usage("load: expected a config, load(\"examples/configs/small.lua\") or "
      .. "load{ n_layer = 2 }")
  end
  session:load(config)
  local t = session.trainer
  local lines = { string.format("%s: %.0f tokens, vocabulary %d; GPT of %.0f parameters; chunk %d "
    .. "of %d", t.data.name, t.data.n_tokens, t.data.n_vocabulary, t.forecast.n_parameters,
    t.chunk, t.config.global_batch) }
  return answer.about(session, session:row(session:spec_of()), lines)
end

local function step(session, n)
  if n == nil then n = 1 end
  local row = session:step(n)
  local t = session.trainer
  local made = answer.about(session, row, {})
  made.step, made.loss, made.grad_norm = t.step, t.loss, t.grad_norm
  return made
end

local function save(session, path)
  local t = session:need()
  argument.text(path, "save: the file's path")
  local notes = run_module.notes(t)
  if t.loss then notes.train_loss = string.format("%.17g", t.loss) end
  if t.grad_norm then notes.grad_norm = string.format("%.17g", t.grad_norm) end
  state.save(path, { model = t.model, optimizer = t.optimizer, notes = notes,
    counts = { step = t.step, position = t.position, seed = t.config.seed } })
  return answer.about(session, session:row(session:spec_of()),
    { string.format("saved to '%s' after step %d", path, t.step) })
end

local function quit(session) session.finished = true end

---@type neap.Word[]
M.LIST = {
  { name = "load", usage = "load(config)", run = load_config,
    about = "read a config (a path or a table of keys) and make its model",
    more = "The model before stays where that fails. load{ n_layer = 2, width = 64 }" },
  { name = "stages", usage = "stages()", run = plan.stages,
    about = "the stages: parameters, what they make, keep and recompute",
    more = "A row a stage, under the policy in use." },
  { name = "segments", usage = "segments(4)", run = plan.segments,
    about = "keep the boundaries of so many segments, recompute the rest",
    more = "segments(\"auto\"): the split with the least peak. segments{ \"block.3\", \"block.7\" }"
      .. ": segments that start at these stages. segments(): the policy in use" },
  { name = "policy", usage = "policy(spec)", run = plan.policy,
    about = "choose what is kept: " .. "\"none\", \"all\", \"every_n:2\", ...",
    more = "spec: " .. grammar.allowed() .. ", or a table { policy = \"every_n\", n = 2 }. "
      .. "policy(): the one in use. One that does not fit the device budget is refused" },
  { name = "profile", usage = "profile()", run = memory.profile,
    about = "bytes, FLOPs and times of every stage",
    more = "Bytes and FLOPs are exact; times are medians of three runs on the device." },
  { name = "plan", usage = "plan()", run = plan.plan,
    about = "the plan in use, a row a stage; plan(spec): another policy's",
    more = "plan().plan is the plan as data. plan(\"all\") changes nothing" },
  { name = "frontier", usage = "frontier()", run = plan.frontier,
    about = "the least cost at every plan budget, drawn",
    more = "All that plans can reach, from the least feasible peak to keep-all. "
      .. "frontier().points[1] is a point: peak_bytes, cost, plan" },
  { name = "whatif", usage = "whatif(budget)", run = plan.whatif,
    about = "the best plan within a plan budget, tried once",
    more = "The budget is of forward and backward alone: whatif(\"64MiB\"). The policy in use "
      .. "stays; policy(\"optimal:64MiB\") takes it" },
  { name = "step", usage = "step(n)", run = step,
    about = "train for n steps (1)",
    more = "Ctrl-C takes all of them back: the model is as before. step().loss" },
  { name = "timeline", usage = "timeline()", run = memory.timeline,
    about = "memory over one step, drawn",
    more = "Columns are actions of the plan, from the first forward to the last backward." },
  { name = "peak", usage = "peak()", run = memory.peak,
    about = "who is alive at the peak",
    more = "By tag, by stage, and what a step measured." },
  { name = "saved", usage = "saved()", run = memory.saved,
    about = "every byte that is kept for backward, and why",
    more = "A row a tensor: which op's backward reads it. saved().saved[1].why" },
  { name = "compare", usage = "compare(spec, spec)", run = plan.compare,
    about = "policies beside each other, each tried once",
    more = "compare(\"none\", \"segments:4\"): forward and backward without an update; the model "
      .. "and the policy in use stay" },
  { name = "chunk", usage = "chunk()", run = plan.chunk,
    about = "items one forward sees; chunk(8) sets, chunk(\"auto\") picks",
    more = "\"auto\" takes the largest whose step fits the device budget, and tries it once." },
  { name = "who", usage = "who()", run = memory.who,
    about = "what is alive now, by tag, and your own tensors by name",
    more = "Live bytes are counted where they are allocated." },
  { name = "save", usage = "save(file)", run = save,
    about = "write parameters, optimizer and position to a file",
    more = "A safetensors file, whole or not at all: save(\"tuned.safetensors\")" },
  { name = "quit", usage = "quit()", run = quit, about = "leave (or Ctrl-D)",
    more = "Nothing is saved by itself." },
}

local function names_of()
  local names = { "help" }
  for i, word in ipairs(M.LIST) do names[i + 1] = word.name end
  return names
end

local VALUES = "Values: neap, nn, op, model, optimizer, config, device, data, trainer; _ is the "
  .. "last value."

--- help(), help("segments").
function M.help(_, name)
  if name == nil then
    local lines = {}
    for i, word in ipairs(M.LIST) do
      lines[i] = string.format("  %-20s %s", word.usage, word.about)
    end
    lines[#lines + 1] = "  " .. string.format("%-20s %s", "help \"segments\"", "more on a word")
    lines[#lines + 1] = VALUES
    lines[#lines + 1] = "All else is Lua: expressions print themselves; Tab completes; Ctrl-C "
      .. "cancels a line or a step."
    return answer.new({}, lines)
  end
  argument.string(name, "help: the word")
  for _, word in ipairs(M.LIST) do
    if word.name == name then
      return answer.new({ word = word.name }, { word.usage .. ": " .. word.about, word.more })
    end
  end
  if name == "help" then return M.help() end
  fail.usage("help: %s", fail.unknown("word", argument.word(name), names_of()))
end

--- The words as functions of a session.
---@param session neap.Session
---@return table<string, function>
function M.functions(session)
  local out = { help = function(...) return M.help(session, ...) end }
  for _, word in ipairs(M.LIST) do
    out[word.name] = function(...) return word.run(session, ...) end
  end
  return out
end

return M
