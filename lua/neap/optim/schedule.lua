-- Learning rates as functions of the step (from 1): warm-up, then cosine, linear or constant.
local argument = require("neap.argument")

local M = {}

local names = { "lr", "min_lr", "warmup", "steps" }

local function checked(who, o, needs_steps)
  argument.options(argument.table(o, who .. ": its argument"), who, names)
  argument.number(o.lr, who .. ": lr", 0)
  if o.min_lr ~= nil then argument.number(o.min_lr, who .. ": min_lr", 0) end
  if o.warmup ~= nil then argument.whole(o.warmup, who .. ": warmup") end
  if needs_steps or o.steps ~= nil then argument.whole(o.steps, who .. ": steps") end
end

--- Rises over `warmup` steps to lr, then falls to min_lr at step `steps` along half a cosine.
---@param o { lr: number, min_lr?: number, warmup?: integer, steps: integer }
---@return fun(step: integer): number
function M.cosine(o)
  checked("schedule.cosine", o, true)
  local low, warmup = o.min_lr or 0, o.warmup or 0
  return function(step)
    argument.whole(step, "schedule.cosine: the step")
    if step <= warmup then return o.lr * step / math.max(warmup, 1) end
    local part = math.min(1, (step - warmup) / math.max(1, o.steps - warmup))
    return low + (o.lr - low) * 0.5 * (1 + math.cos(math.pi * part))
  end
end

--- Likewise, along a straight line.
function M.linear(o)
  checked("schedule.linear", o, true)
  local low, warmup = o.min_lr or 0, o.warmup or 0
  return function(step)
    argument.whole(step, "schedule.linear: the step")
    if step <= warmup then return o.lr * step / math.max(warmup, 1) end
    local part = math.min(1, (step - warmup) / math.max(1, o.steps - warmup))
    return o.lr + (low - o.lr) * part
  end
end

--- Rises over `warmup` steps to lr and stays.
function M.constant(o)
  checked("schedule.constant", o, false)
  local warmup = o.warmup or 0
  return function(step)
    argument.whole(step, "schedule.constant: the step")
    return o.lr * math.min(1, step / math.max(warmup, 1))
  end
end

return M
