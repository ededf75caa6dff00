-- What words give back: fields to go on with, and a text that the prompt prints.
local bytes = require("neap.bytes")

local M = {}

---@class neap.Answer
---@field predicted_peak_bytes number|nil  of a step
---@field measured_peak_bytes number|nil
---@field extra_cost number|nil  a fraction of keep-all's FLOPs

local texts = setmetatable({}, { __mode = "k" })
local Answer = { __tostring = function(self) return texts[self] end }

--- Makes an answer of fields and lines.
---@param fields table
---@param lines string[]
---@return neap.Answer
function M.new(fields, lines)
  texts[fields] = table.concat(lines, "\n")
  return setmetatable(fields, Answer)
end

--- "+16.3%"
---@param row neap.SessionRow
---@return string
function M.cost(row) return string.format("%+.1f%%", 100 * row.extra_cost) end

local function measured_text(session, row)
  local found = session:measured_of(row)
  if found then
    local note = found.user_bytes > 0 and string.format(" (and %s of your own tensors)",
      bytes.format(found.user_bytes)) or ""
    return "measured " .. bytes.format(found.peak_bytes) .. note
  end
  local budget = session.trainer.device.budget_bytes
  if budget and row.prediction.peak_bytes > budget then
    return "not run: the device budget is " .. bytes.format(budget)
  end
  return "not measured yet (step(1) does)"
end

--- Predicted and measured peak, and the cost beside keep-all.
---@param session neap.Session
---@param row neap.SessionRow
---@return string[]
function M.summary(session, row)
  local p = row.prediction
  return {
    string.format("%s: predicted peak %s, %s; cost %s over keep-all (%s)",
      row.spec.text, bytes.format(p.peak_bytes), measured_text(session, row), M.cost(row),
      bytes.format(row.keep_all_bytes)),
    string.format("  of a step: %s fixed + %s in forward and backward, most in %s",
      bytes.format(row.forecast.fixed_bytes), bytes.format(p.plan_bytes), p.where),
  }
end

--- The fields that all answers about plans have.
---@param session neap.Session
---@param row neap.SessionRow
---@return table
function M.fields(session, row)
  local found, p = session:measured_of(row), row.prediction
  return { policy = row.spec.text, predicted_peak_bytes = p.peak_bytes,
    measured_peak_bytes = found and found.peak_bytes, plan_bytes = p.plan_bytes,
    extra_cost = row.extra_cost, keep_all_peak_bytes = row.keep_all_bytes,
    plan = p.plans[row.chunk] }
end

--- An answer about one policy: lines, then the summary.
---@param session neap.Session
---@param row neap.SessionRow
---@param lines string[]|nil
---@return neap.Answer
function M.about(session, row, lines)
  local all = { unpack(lines or {}) }
  for _, line in ipairs(M.summary(session, row)) do all[#all + 1] = line end
  return M.new(M.fields(session, row), all)
end

return M
