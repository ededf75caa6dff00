-- Numbers for specs: inputs that anyone can make again, and comparisons that say where they fail.
local ffi = require("ffi")
local reference = require("spec.support.reference")

local M = {}

--- The f32 nearest to x.
function M.f32(x)
  return tonumber(ffi.cast("float", x))
end

--- The formula of spec/support/torch_values.py.
function M.wave(dims, k, scale, offset)
  return reference.value(dims, function(i)
    return M.f32((scale or 1) * math.sin(0.7 * i + k) + (offset or 0))
  end)
end

--- A stream of numbers that depends on the seed alone.
function M.random(seed)
  local state = seed * 7919 % 2147483646 + 1
  local r = {}
  function r.uniform()
    state = state * 16807 % 2147483647
    return state / 2147483647
  end
  function r.int(least, most) return least + math.floor(r.uniform() * (most - least + 1)) end
  function r.value(dims, scale, offset)
    return reference.value(dims, function()
      return M.f32((r.uniform() * 2 - 1) * (scale or 1.5) + (offset or 0))
    end)
  end
  function r.ids(dims, n)
    local ids = reference.value(dims, function() return r.int(0, n - 1) end)
    ids.dtype = "i32"
    return ids
  end
  -- n dims, each 1 .. most
  function r.dims(n, most)
    local dims = {}
    for i = 1, n do dims[i] = r.int(1, most) end
    return dims
  end
  r.uniform()
  return r
end

--- Element by element, within tolerance of the larger of scale and the largest expected.
function M.close(what, expected, found, tolerance, scale)
  scale = scale or 0
  if #expected ~= #found then
    error(("%s: %d elements, expected %d"):format(what, #found, #expected), 2)
  end
  for i = 1, #expected do scale = math.max(scale, math.abs(expected[i])) end
  for i = 1, #expected do
    local off = math.abs(expected[i] - found[i])
    if off > tolerance * scale or off ~= off then
      error(("%s: element %d is %.9g, expected %.9g (largest %.3g, tolerance %.1g of it)"):format(
        what, i, found[i], expected[i], scale, tolerance), 2)
    end
  end
end

function M.same(what, expected, found)
  if #expected ~= #found then
    error(("%s: %d elements, expected %d"):format(what, #found, #expected), 2)
  end
  for i = 1, #expected do
    if expected[i] ~= found[i] then
      error(("%s: element %d has bits %x, expected %x"):format(what, i, found[i], expected[i]), 2)
    end
  end
end

--- All lists of n dims of 0, 1 or 3.
function M.shapes(n)
  local shapes = { {} }
  for _ = 1, n do
    local longer = {}
    for _, dims in ipairs(shapes) do
      for _, d in ipairs({ 0, 1, 3 }) do
        local more = { unpack(dims) }
        more[#more + 1] = d
        longer[#longer + 1] = more
      end
    end
    shapes = longer
  end
  return shapes
end

return M
