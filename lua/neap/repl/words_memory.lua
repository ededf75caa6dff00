-- The words that look: profiles, memory over a step, the peak, what is kept and why, what is alive.
local answer = require("neap.repl.answer")
local bytes = require("neap.bytes")
local chart = require("neap.repl.chart")
local device_module = require("neap.device")
local fail = require("neap.fail")
local ffi_neap = require("neap.ffi")
local plan_table = require("neap.checkpoint.plan_table")
local plans = require("neap.checkpoint.plan")
local scope = require("neap.scope")
local tensor = require("neap.tensor")
local terminal = require("neap.repl.terminal")
local C = ffi_neap.C

local M = {}

local function in_use(session)
  session:need()
  local row = session:row(session:spec_of())
  local chunk = row.chunk
  return row, row.prediction.plans[chunk], row.forecast.profiles[chunk], chunk
end

-- median times of the stages on the device; nil and a sentence where keeping all does not fit
local function seconds_of(session, chunk)
  local trainer = session.trainer
  if not trainer.device:computes() then return nil end
  local function measure()
    local batch = trainer:upload(chunk, trainer.data.batch, trainer.position)
    return require("neap.checkpoint.timing").profile(trainer.model, batch, { cost = "seconds" })
  end
  local ok, profile = pcall(scope.run, measure)
  if ok then return profile end
  if not fail.is(profile, "out of memory") then error(profile, 0) end
  return nil, "times: not measured, keeping everything does not fit the device budget"
end

local function duration(nanoseconds)
  return nanoseconds and string.format("%.2f ms", nanoseconds / 1e6) or nil
end

--- Bytes and FLOPs of every stage; on a device that computes also how long they take.
function M.profile(session)
  local row, _, profile, chunk = in_use(session)
  local timed, note = seconds_of(session, chunk)
  local rows = { { "stage", "name", "makes", "residuals", "fwd extra", "bwd extra", "fwd MFLOPs",
    "bwd MFLOPs", timed and "fwd" or nil, timed and "bwd" or nil } }
  for i, stage in ipairs(profile.stages) do
    local t = timed and timed.stages[i] or {}
    rows[i + 1] = { tostring(i - 1), stage.name, bytes.format(stage.out_bytes),
      bytes.format(stage.saved_bytes), bytes.format(stage.forward_extra_bytes),
      bytes.format(stage.backward_extra_bytes), string.format("%.1f", stage.forward_cost / 1e6),
      string.format("%.1f", stage.backward_cost / 1e6), duration(t.forward_cost),
      duration(t.backward_cost) }
  end
  local made = answer.about(session, row, { string.format("a chunk of %d items:", chunk),
    chart.table(rows, 2), note })
  made.profile, made.timed = profile, timed
  return made
end

local function letter(action, seen)
  if action.op == "backward" then return "B" end
  if action.op == "free" then return " " end
  local again = seen[action.stage]
  seen[action.stage] = true
  return again and "R" or "F"
end

--- Memory over one step under the policy in use.
function M.timeline(session)
  local row, plan, profile, chunk = in_use(session)
  local sim = plans.simulate(plan, profile)
  local values, letters, seen = {}, {}, {}
  for a, moment in ipairs(sim.timeline) do
    values[a] = moment.peak_bytes
    letters[a] = letter(plan.actions[a], seen)
  end
  local label = bytes.format(sim.peak_bytes)
  local shown, from = chart.resample(values, terminal.width() - #label - 4)
  local under = {}
  for c, a in ipairs(from) do under[c] = letters[a] end
  local made = answer.about(session, row, { string.format("predicted bytes of forward and backward "
    .. "over one chunk of %d (%s beside them):", chunk, bytes.format(row.forecast.fixed_bytes
    + row.forecast.batch_bytes[chunk])),
    chart.columns({ values = shown, plain = session.plain, labels = { label, [10] = "0" },
      under = { table.concat(under) } }),
    "F forward, R forward again (recomputed), B backward; from the first action to the last" })
  made.timeline = sim.timeline
  return made
end

local WHAT = { x = "input of", r = "residuals of", g = "gradient at" }

local function alive_rows(sim, profile)
  local rows = {}
  for _, item in ipairs(sim.live) do
    local stage = profile.stages[item.stage + 1]
    rows[#rows + 1] = { WHAT[item.what] .. " " .. (stage and stage.name or "the end (the loss)"),
      item.bytes }
  end
  table.sort(rows, function(a, b)
    if a[2] ~= b[2] then return a[2] > b[2] end
    return a[1] < b[1]
  end)
  return rows
end

local MOST_ROWS = 16

--- Who is alive at the peak of a step.
function M.peak(session)
  local row, plan, profile = in_use(session)
  local sim = plans.simulate(plan, profile)
  local found, cells = session:measured_of(row), {}
  local alive = alive_rows(sim, profile)
  for i = 1, math.min(#alive, MOST_ROWS) do
    cells[i] = { alive[i][1], bytes.format(alive[i][2]) }
  end
  local lines = { row.forecast:memory_table(row.prediction), "alive there, by stage:",
    chart.table(cells, 1) }
  if #alive > MOST_ROWS then
    lines[#lines + 1] = string.format("  and %d smaller ones", #alive - MOST_ROWS)
  end
  if found then
    local parts = {}
    for tag, amount in pairs(found.tags) do
      if amount > 0 then parts[#parts + 1] = tag .. " " .. bytes.format(amount) end
    end
    table.sort(parts)
    lines[#lines + 1] = "measured by tag: " .. table.concat(parts, ", ")
  end
  local made = answer.about(session, row, lines)
  made.live, made.tags = sim.live, found and found.tags
  return made
end

local function token_batch(trainer)
  return function(n)
    local dims, options = { n, trainer.config.context }, { dtype = "i32", tag = C.NEAP_TAG_BATCH }
    return { inputs = tensor.empty(dims, options), targets = tensor.empty(dims, options) }
  end
end

-- the model once more where bytes are counted and nothing is computed
local function saved_on_null(trainer, n)
  local before = device_module.current()
  local device = device_module.open("null", { size = 0 })
  local ok, result = pcall(device_module.with, device, function()
    local model = trainer.build()
    local make_batch = trainer.forecast.options.batch or token_batch(trainer)
    local batch = make_batch(n)
    local found = require("neap.checkpoint.saved").saved(model, batch)
    batch.inputs:free()
    batch.targets:free()
    model:free()
    return found
  end)
  device_module.make_current(before)
  if ok then device:close() end
  if not ok then error(result, 0) end
  return result
end

--- Every byte that keep-all holds for backward, and why; what the policy in use drops of it.
function M.saved(session)
  local row, plan, _, chunk = in_use(session)
  local found = saved_on_null(session.trainer, chunk)
  local rows, dropped, sum = plan_table.rows(plan), {}, 0
  local is_dropped = {}
  for i, stage in ipairs(session.trainer.model.stages) do
    if rows[i - 1].keep ~= "everything" then
      dropped[#dropped + 1], is_dropped[stage.name] = stage.name, true
    end
  end
  for _, item in ipairs(found) do
    if is_dropped[item.stage] then sum = sum + item.bytes end
  end
  local made = answer.about(session, row, { tostring(found), #dropped == 0
    and row.spec.text .. " keeps all of it" or string.format("%s does not hold what %s in %s "
    .. "(%s): dropped in forward, made again in backward", row.spec.text, #dropped == 1 and "is"
    or "are", table.concat(dropped, ", "), bytes.format(sum)) })
  made.saved = found
  return made
end

-- tensors that the session's names hold
local function own_rows(env, device)
  local rows = {}
  for name, value in pairs(env or {}) do
    if tensor.is(value) and C.neap_tensor_alive(value.id) == 1
      and C.neap_tensor_device(value.id) == device then
      rows[#rows + 1] = { "  " .. name .. ": " .. tostring(value),
        bytes.format(C.neap_tensor_bytes(value.id)) }
    end
  end
  table.sort(rows, function(a, b) return a[1] < b[1] end)
  return rows
end

--- What is alive on the device now, by tag.
function M.who(session)
  local device = session:need().device
  local row, memory, cells = in_use(session), device:memory(), {}
  for tag, amount in pairs(memory.tags) do
    if amount > 0 then cells[#cells + 1] = { tag, amount } end
  end
  table.sort(cells, function(a, b)
    if a[2] ~= b[2] then return a[2] > b[2] end
    return a[1] < b[1]
  end)
  for i, cell in ipairs(cells) do cells[i] = { cell[1], bytes.format(cell[2]) } end
  cells[#cells + 1] = { "all", bytes.format(memory.live_bytes) }
  for _, own in ipairs(own_rows(session.env, device.id)) do cells[#cells + 1] = own end
  local made = answer.about(session, row, { string.format("%.0f tensors are alive on %s:",
    memory.n_tensors, device.name), chart.table(cells, 1), string.format("%s reserved, %s of it "
    .. "cached; %s", bytes.format(memory.reserved_bytes), bytes.format(memory.cached_bytes),
    memory.budget_bytes and "device budget " .. bytes.format(memory.budget_bytes)
    or "no device budget") })
  made.memory = memory
  return made
end

return M
