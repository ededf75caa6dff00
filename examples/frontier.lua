-- Draws the whole curve of memory against cost of a GPT, and where the policies lie beside it, as
-- SVG. Nothing is computed: luajit examples/frontier.lua [CONFIG.lua] [POLICY...] > frontier.svg
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = table.concat({ here .. "/../lua/?.lua", here .. "/../lua/?/init.lua",
  here .. "/../build/?.lua", here .. "/../../lua/5.1/?.lua",
  here .. "/../../lua/5.1/?/init.lua", package.path }, ";")
local cli = require("neap.cli")
local config_module = require("neap.config")
local fail = require("neap.fail")
local keeping = require("neap.checkpoint.keeping")
local neap = require("neap")
local policy = require("neap.checkpoint.policy")

local USAGE = "luajit examples/frontier.lua [CONFIG.lua] [POLICY...] > frontier.svg, e.g. "
  .. "examples/configs/small.lua segments:2 all"
local POLICIES = { "none", "every_n:2", "every_n:3", "segments:2", "segments:4", "segments:8",
  "segments:auto", "revolve:4", "selective:matmul", "all" }

local WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM, TOP = 760, 420, 64, 24, 52, 36

local function model_of(path)
  local c = path and config_module.load(path, {}, {})
    or { n_layer = 24, width = 384, n_head = 6, context = 256, chunk = 8 }
  local chunk = type(c.chunk) == "number" and c.chunk or 12
  local model = neap.nn.GPT({ vocabulary = 4096, context = c.context, width = c.width,
    n_layer = c.n_layer, n_head = c.n_head })
  local options = { dtype = "i32", tag = 4 }
  return model, { inputs = neap.empty({ chunk, c.context }, options),
    targets = neap.empty({ chunk, c.context }, options) },
    string.format("GPT of %d blocks, width %d, %d x %d tokens", c.n_layer, c.width, chunk,
      c.context)
end

local function read_arguments()
  local path, specs, modes = nil, {}, {}
  for i, word in ipairs(arg) do
    if i == 1 and word:match("%.lua$") then
      path = word
    else
      specs[#specs + 1] = tostring(policy.parse(word))
    end
  end
  if #specs == 0 then specs = POLICIES end
  for _, spec in ipairs(specs) do
    for _, mode in ipairs(policy.modes(spec)) do keeping.add(modes, mode, spec) end
  end
  for _, mode in ipairs(policy.modes("optimal:auto")) do
    keeping.add(modes, mode, "optimal:auto")
  end
  return path, specs, modes
end

-- MiB and % over keep-all
local function points_of(profile, specs)
  local base = neap.simulate(neap.plan("none", profile), profile).cost
  local function point(peak, cost)
    return { x = tonumber(peak) / 2 ^ 20, y = 100 * (tonumber(cost) / base - 1) }
  end
  local curve, marks, frontier = {}, {}, neap.frontier(profile)
  for k = 1, #frontier do curve[k] = point(frontier[k].peak_bytes, frontier[k].cost) end
  for i, spec in ipairs(specs) do
    local plan, message = neap.plan(spec, profile)
    if not plan then fail.raise("does not fit", message) end
    local found = neap.simulate(plan, profile)
    marks[i] = point(found.peak_bytes, found.cost)
    marks[i].name = spec
  end
  return curve, marks, frontier.knee
end

local function scale(most_x, most_y)
  return function(p)
    return LEFT + p.x / most_x * (WIDTH - LEFT - RIGHT),
      HEIGHT - BOTTOM - p.y / most_y * (HEIGHT - BOTTOM - TOP)
  end
end

local function axes(most_x, most_y, place)
  for k = 0, 5 do
    local x, y = place({ x = most_x * k / 5, y = most_y * k / 5 })
    print(string.format('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>'
      .. '<text x="%d" y="%.1f" text-anchor="end">%.0f%%</text><text x="%.1f" y="%d" '
      .. 'text-anchor="middle">%.0f</text>', LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4,
      most_y * k / 5, x, HEIGHT - BOTTOM + 18, most_x * k / 5))
  end
  print(string.format('<text x="%d" y="%d" text-anchor="middle">peak of forward and backward, MiB'
    .. "</text>", (LEFT + WIDTH) / 2, HEIGHT - 14))
  print(string.format('<text x="%d" y="%d">FLOPs of a step over keep-all</text>', LEFT, TOP - 12))
end

-- a label beside its point, moved down while it would cover another one
local function label(placed, x, y, text, color)
  local at_right, width = x > WIDTH - 140, 7 * #text
  local left = at_right and x - 7 - width or x + 7
  y = y - 6
  local moved = true
  while moved do
    moved = false
    for _, other in ipairs(placed) do
      if math.abs(other.y - y) < 13 and left < other.left + other.width
        and other.left < left + width then
        y, moved = other.y + 13, true
      end
    end
  end
  placed[#placed + 1] = { left = left, y = y, width = width }
  print(string.format('<text x="%.1f" y="%.1f" fill="%s"%s>%s</text>', at_right and x - 7 or x + 7,
    y, color, at_right and ' text-anchor="end"' or "", text))
end

local function draw(title, curve, marks, knee)
  local most_x, most_y = 0, 0
  for _, list in ipairs({ curve, marks }) do
    for _, p in ipairs(list) do
      most_x = math.max(most_x, p.x)
    end
  end
  for _, p in ipairs(marks) do most_y = math.max(most_y, p.y) end
  most_x, most_y = math.ceil(most_x / 50) * 50, math.ceil(most_y * 1.5 / 10) * 10
  local place, line = scale(most_x, most_y), {}
  print(string.format('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family='
    .. '"sans-serif" font-size="12" fill="#555">', WIDTH, HEIGHT))
  print('<rect width="100%" height="100%" fill="#fff"/>')
  axes(most_x, most_y, place)
  for _, p in ipairs(curve) do
    if p.y <= most_y then
      local x, y = place(p)
      -- steps: between two budgets of the curve the cheaper plan does not fit
      if #line > 0 then line[#line + 1] = string.format("%.1f,%s", x, line.last) end
      line[#line + 1], line.last = string.format("%.1f,%.1f", x, y), string.format("%.1f", y)
    end
  end
  print(string.format('<polyline fill="none" stroke="#2471a3" stroke-width="2" points="%s"/>',
    table.concat(line, " ")))
  local placed, kx, ky = {}, place(curve[knee])
  for _, p in ipairs(marks) do
    local x, y = place(p)
    print(string.format('<circle cx="%.1f" cy="%.1f" r="3.5" fill="#c0392b"/>', x, y))
    label(placed, x, y, p.name, "#c0392b")
  end
  print(string.format('<circle cx="%.1f" cy="%.1f" r="5" fill="none" stroke="#2471a3"/>', kx, ky))
  label(placed, kx, ky + 20, "optimal:auto", "#2471a3")
  print(string.format('<text x="%d" y="%d" text-anchor="end" fill="#2471a3">%s: all %d optimal '
    .. "plans</text>", WIDTH - RIGHT, TOP - 12, title, #curve))
  print("</svg>")
end

local function main()
  if arg[1] == "--help" or arg[1] == "-h" then
    print("Draws the curve of memory against cost of a GPT and the policies beside it.\n" .. USAGE)
    return 0
  end
  local path, specs, modes = read_arguments()
  local device = neap.device("null", { size = 0 })
  local model, batch, title = model_of(path)
  local profile = neap.profile(model, batch, { cost = "flops", modes = modes })
  local curve, marks, knee = points_of(profile, specs)
  draw(title, curve, marks, knee)
  model:free()
  batch.inputs:free()
  batch.targets:free()
  device:close()
  return 0
end

cli.run("frontier.lua", arg, main)
