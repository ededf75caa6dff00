-- What a forecast says to people: where the bytes of a step go, and what each policy would take.
local bytes = require("neap.bytes")
local plan_module = require("neap.checkpoint.plan")

local M = {}

local LITTLE = 0.1

--- A sentence where activations are so little of keep-all's peak that dropping them gains nothing
--- to speak of; nil elsewhere.
---@param self neap.Forecast
---@return string|nil
function M.no_gain(self)
  local all = self:predict("none")
  local share = all.plan_bytes / all.peak_bytes
  if share >= LITTLE then return nil end
  return string.format("activations are %.1f%% of the peak; parameters, gradients and optimizer "
    .. "dominate: no policy can gain more than that", 100 * share)
end

--- A row a policy, by falling peak: what it takes, what it costs, whether it fits.
---@param self neap.Forecast
---@param in_use string|neap.Policy
---@param budget number|nil
---@return string
function M.policies(self, in_use, budget)
  local rows, width = self:policies(in_use), 14
  for _, row in ipairs(rows) do width = math.max(width, math.min(#row.spec, 60)) end
  local name = "%-" .. width .. "s"
  local lines = { string.format("  " .. name .. " %14s %14s %12s  %s", "checkpoint",
    "peak of a step", "activations", "extra FLOPs",
    budget and "budget " .. bytes.format(budget) or "") }
  for _, row in ipairs(rows) do
    local p = row.prediction
    local fits = not p.infeasible and p.peak_bytes <= (budget or math.huge)
    local verdict = budget and (fits and "fits" or "does not fit") or ""
    lines[#lines + 1] = string.format("%s " .. name .. " %14s %14s %11.1f%%  %s",
      row.spec == tostring(in_use) and ">" or " ", row.spec, bytes.format(p.peak_bytes),
      bytes.format(p.plan_bytes), 100 * row.extra_cost, verdict)
  end
  lines[#lines + 1] = M.no_gain(self)
  return (table.concat(lines, "\n"):gsub(" +\n", "\n"):gsub(" +$", ""))
end

local function row(name, n_bytes, note)
  return string.format("  %-12s %14s%s", name, bytes.format(n_bytes), note and "  " .. note or "")
end

-- what is alive at the peak of a plan: there when its action begins, and made inside it
local function at_peak(plan, profile)
  local sim = plan_module.simulate(plan, profile)
  local before = sim.peak_action > 1 and sim.timeline[sim.peak_action - 1].live_bytes or 0
  return before, sim.peak_bytes - before
end

--- Where the bytes of a step go.
---@param self neap.Forecast
---@param prediction neap.Prediction
---@return string
function M.memory(self, prediction)
  local n = prediction.chunk
  local lines = { "memory of a step" .. (n and string.format(", in a chunk of %d:", n) or ":") }
  for _, tag in ipairs({ "parameters", "gradients", "optimizer", "buffers" }) do
    local amount = self.fixed[tag] or 0
    if amount > 0 or tag ~= "buffers" then lines[#lines + 1] = row(tag, amount) end
  end
  if n then
    local alive, inside = at_peak(prediction.plans[n], self.profiles[n])
    lines[#lines + 1] = row("batch", self.batch_bytes[n])
    lines[#lines + 1] = row("activations", alive, "alive when the largest action begins")
    lines[#lines + 1] = row("made inside", inside, "its outputs, residuals, gradients and scratch")
  else
    lines[#lines + 1] = row("scratch", self.update_bytes, "of clipping and the optimizer")
  end
  lines[#lines + 1] = row("peak", prediction.peak_bytes, "in " .. prediction.where)
  return table.concat(lines, "\n")
end

return M
