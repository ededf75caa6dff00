-- Learning rates as functions of the step (from 1): warm-up, then cosine, linear or constant.
local M = {}

--- Rises over `warmup` steps to lr, then falls to min_lr at step `steps` along half a cosine.
---@param o { lr: number, min_lr?: number, warmup?: integer, steps: integer }
---@return fun(step: integer): number
function M.cosine(o)
  local low, warmup = o.min_lr or 0, o.warmup or 0
  return function(step)
    if step <= warmup then return o.lr * step / math.max(warmup, 1) end
    local part = math.min(1, (step - warmup) / math.max(1, o.steps - warmup))
    return low + (o.lr - low) * 0.5 * (1 + math.cos(math.pi * part))
  end
end

--- Likewise, along a straight line.
function M.linear(o)
  local low, warmup = o.min_lr or 0, o.warmup or 0
  return function(step)
    if step <= warmup then return o.lr * step / math.max(warmup, 1) end
    local part = math.min(1, (step - warmup) / math.max(1, o.steps - warmup))
    return o.lr + (low - o.lr) * part
  end
end

--- Rises over `warmup` steps to lr and stays.
function M.constant(o)
  local warmup = o.warmup or 0
  return function(step) return o.lr * math.min(1, step / math.max(warmup, 1)) end
end

return M
