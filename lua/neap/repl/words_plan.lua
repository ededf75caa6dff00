-- The words that choose: policies, plans, budgets, chunks.
local answer = require("neap.repl.answer")
local argument = require("neap.argument")
local bytes = require("neap.bytes")
local chart = require("neap.repl.chart")
local chunk_search = require("neap.chunk_search")
local chunk_step = require("neap.chunk_step")
local compare = require("neap.checkpoint.plan_compare").compare
local fail = require("neap.fail")
local plan_table = require("neap.checkpoint.plan_table")
local terminal = require("neap.repl.terminal")

local M = {}

local function plan_of(row)
  return row.prediction.plans[row.chunk], row.forecast.profiles[row.chunk]
end

--- policy() tells, policy(spec) chooses.
function M.policy(session, spec)
  session:need()
  local row = spec == nil and session:row(session:spec_of()) or session:use(session:spec_of(spec))
  return answer.about(session, row)
end

--- segments(4), segments("auto"), segments{ "block.3" }; segments() tells.
function M.segments(session, value)
  session:need()
  if value == nil then return M.policy(session) end
  local spec = { policy = "segments", k = value }
  if type(value) == "table" then spec = { policy = "segments", starts = value } end
  return M.policy(session, spec)
end

--- The stages, what they make and keep, and what becomes of them under the policy in use.
function M.stages(session)
  local row = session:row(session:need() and session:spec_of())
  local plan, profile = plan_of(row)
  local made = session.trainer.model.stages
  local found = plan_table.rows(plan)
  local rows = { { "stage", "name", "kind", "keeps", "parameters", "makes", "residuals",
    "recomputed" } }
  for i, stage in ipairs(profile.stages) do
    local r = found[i - 1]
    rows[i + 1] = { tostring(i - 1), stage.name, made[i].module.kind, (r.keep or "-")
      .. (r.mode and " (" .. r.mode .. ")" or ""),
      string.format("%.0f", made[i].module:n_parameters()), bytes.format(stage.out_bytes),
      bytes.format(stage.saved_bytes), tostring(math.max(r.forwards - 1, 0)) }
  end
  return answer.about(session, row, { chart.table(rows, 4) })
end

--- The plan in use (or of another policy), a row a stage.
function M.plan(session, spec)
  session:need()
  local row = spec == nil and session:row(session:spec_of())
    or session:wanted(session:spec_of(spec))
  return answer.about(session, row, { tostring((plan_of(row))) })
end

-- the least cost at each budget from the least feasible one to keep-all
local function curve(points, n)
  local values, at = {}, 1
  local low, high, base = points[1].peak_bytes, points[#points].peak_bytes, points[#points].cost
  for c = 1, n do
    local budget = low + (high - low) * (c - 1) / math.max(n - 1, 1)
    while at < #points and points[at + 1].peak_bytes <= budget do at = at + 1 end
    values[c] = base > 0 and points[at].cost / base - 1 or 0
  end
  local function column(amount)
    local c = high > low and math.floor((amount - low) / (high - low) * (n - 1) + 0.5) + 1 or 1
    return math.max(1, math.min(n, c))
  end
  return values, column
end

local function marks(n, list)
  local cells = {}
  for c = 1, n do cells[c] = " " end
  for _, mark in ipairs(list) do cells[mark[1]] = mark[2] end
  return table.concat(cells)
end

local function axis(n, points)
  local left, right = bytes.format(points[1].peak_bytes), bytes.format(points[#points].peak_bytes)
  return left .. string.rep(" ", math.max(1, n - #left - #right)) .. right
end

--- Least cost over plan budget, of forward and backward.
function M.frontier(session)
  session:need()
  local row = session:row(session:spec_of())
  row.forecast:predict("optimal:auto", row.chunks)
  local points, plan_bytes = row.forecast.frontiers[row.chunk], row.prediction.plan_bytes
  local n = terminal.width() - 12
  local values, column = curve(points, n)
  local knee = points[points.knee]
  local top = string.format("%+.1f%%", 100 * values[1])
  local lines = { string.format("least extra FLOPs over the plan budget (forward and backward), %d "
    .. "points%s:", #points, points.exact and ", exact" or ""),
    chart.columns({ values = values, plain = session.plain, rows = 8, labels = { top,
      [8] = "+0.0%" }, under = { axis(n, points),
      marks(n, { { column(knee.peak_bytes), "K" }, { column(plan_bytes), "*" } }) } }),
    string.format("least %s at %s; knee (K) %s at %+.1f%%; * is %s, %s at %s",
      bytes.format(points.least_bytes), top, bytes.format(knee.peak_bytes),
      100 * (knee.cost / points[#points].cost - 1), row.spec.text, bytes.format(plan_bytes),
      answer.cost(row)) }
  local made = answer.about(session, row, lines)
  made.points, made.least_bytes, made.knee = points, points.least_bytes, points.knee
  return made
end

--- The best plan within a plan budget, tried once; the policy in use stays.
function M.whatif(session, budget)
  session:need()
  if budget == nil then fail.usage("whatif: expected a plan budget like whatif(\"64MiB\")") end
  local row = session:row(session:spec_of({ policy = "optimal", budget = budget }))
  session:check_fits(row)
  session:trial(row)
  local plan = plan_of(row)
  local stages = 0
  for _, r in pairs(plan_table.rows(plan)) do stages = stages + (r.forwards > 1 and 1 or 0) end
  local made = answer.about(session, row, { string.format("within %s for forward and backward, %d "
    .. "of %d stages are recomputed", bytes.format(row.spec.budget == "auto"
    and row.prediction.plan_bytes or row.spec.budget), stages, plan.n_stages) })
  return made
end

local function compared(session, rows)
  local cells = { { "policy", "predicted peak", "measured", "in fwd+bwd", "extra FLOPs",
    "fwd+bwd" } }
  for i, row in ipairs(rows) do
    local found = session:trial(row)
    cells[i + 1] = { row.spec.text, bytes.format(row.prediction.peak_bytes),
      found and bytes.format(found.peak_bytes) or "does not fit",
      bytes.format(row.prediction.plan_bytes), answer.cost(row),
      found and found.seconds and string.format("%.0f ms", found.seconds * 1000) or "-" }
  end
  return chart.table(cells, 1)
end

--- Two or more policies beside each other, each tried once; the one in use stays.
function M.compare(session, ...)
  session:need()
  local specs, rows = {}, {}
  if select("#", ...) < 2 then
    fail.usage("compare: expected two policies, compare(\"none\", \"segments:4\")")
  end
  for i = 1, select("#", ...) do
    specs[i] = session:spec_of((select(i, ...)))
  end
  for i, spec in ipairs(specs) do rows[i] = session:wanted(spec, { with = specs }) end
  local lines = { compared(session, rows) }
  local plan, profile = plan_of(rows[1])
  local last = plan_of(rows[#rows])
  local fields = { rows = {} }
  for i, row in ipairs(rows) do fields.rows[i] = answer.fields(session, row) end
  if #rows == 2 then
    fields.difference = compare(plan, last, profile)
    for _, stage in ipairs(fields.difference.stages) do
      lines[#lines + 1] = string.format("  %s: %s -> %s", stage.name, stage.a, stage.b)
    end
  end
  lines[#lines + 1] = string.format("keep-all (none) peaks at %s",
    bytes.format(rows[1].keep_all_bytes))
  return answer.new(fields, lines)
end

-- the largest chunk whose step fits the device, by forecast
local function auto_chunk(session, spec)
  local trainer = session.trainer
  local limit = chunk_step.limit(trainer.device)
  if not limit then
    fail.usage("chunk: this device reports no memory and has no budget; say a number, chunk(8)")
  end
  local most = math.min(trainer.config.global_batch, trainer.data.n_items)
  local found = chunk_search.find({ cap = most, limit = limit, trial = function(n)
    local p = session:row(spec, { chunk = n }).prediction
    if p.infeasible then return nil, p.infeasible end
    return p.peak_bytes
  end })
  return found.n or 1, string.format("the largest of 1 to %d whose step stays within %s", most,
    bytes.format(limit))
end

--- chunk() tells, chunk(8) sets, chunk("auto") picks the largest that fits.
function M.chunk(session, n)
  local trainer = session:need()
  local row, note
  if n == nil then
    row = session:row(session:spec_of())
  else
    local spec, is_auto = session:spec_of(), n == "auto"
    if is_auto then n, note = auto_chunk(session, spec) end
    argument.whole(n, "chunk: its argument", 1, trainer.config.global_batch)
    row = session:use(spec, n)
    if is_auto then session:trial(row) end
  end
  local lines = { string.format("chunk %d of a global batch of %d: %d a step%s", trainer.chunk,
    trainer.config.global_batch, #trainer.chunks, note and "; " .. note or "") }
  local made = answer.about(session, row, lines)
  made.chunk = trainer.chunk
  return made
end

return M
