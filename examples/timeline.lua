-- Draws the memory of one step under several policies, as predicted on the null device, as SVG:
-- luajit examples/timeline.lua CONFIG.lua POLICY... > timeline.svg
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = table.concat({ here .. "/../lua/?.lua", here .. "/../lua/?/init.lua",
  here .. "/../build/?.lua", here .. "/../../lua/5.1/?.lua",
  here .. "/../../lua/5.1/?/init.lua", package.path }, ";")
local cli = require("neap.cli")
local config_module = require("neap.config")
local data_module = require("neap.data")
local fail = require("neap.fail")
local forecast_module = require("neap.forecast")
local keeping = require("neap.checkpoint.keeping")
local neap = require("neap")
local policy = require("neap.checkpoint.policy")

local USAGE = "luajit examples/timeline.lua CONFIG.lua POLICY... > timeline.svg, e.g. "
  .. "examples/configs/small.lua none segments:2"

local WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 340, 64, 44, 24
local COLORS = { "#c0392b", "#2471a3", "#1e8449", "#b9770e", "#6c3483" }

-- live bytes before, inside and after each action, with the fixed bytes
local function points(plan, profile, fixed)
  local list = { { 0, fixed } }
  for a, moment in ipairs(neap.simulate(plan, profile).timeline) do
    list[#list + 1] = { a - 0.5, fixed + moment.peak_bytes }
    list[#list + 1] = { a, fixed + moment.live_bytes }
  end
  return list
end

local function polyline(list, most_bytes, color)
  local last, out = list[#list][1], {}
  for i, p in ipairs(list) do
    out[i] = string.format("%.1f,%.1f", LEFT + p[1] / last * (WIDTH - LEFT - 16),
      HEIGHT - BOTTOM - p[2] / most_bytes * (HEIGHT - BOTTOM - TOP))
  end
  return string.format('<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>', color,
    table.concat(out, " "))
end

local function axis(most_mib)
  local out = {}
  for k = 0, 4 do
    local y = HEIGHT - BOTTOM - k / 4 * (HEIGHT - BOTTOM - TOP)
    out[#out + 1] = string.format('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#8888" '
      .. 'stroke-width="0.5"/><text x="%d" y="%.1f" text-anchor="end">%.0f MiB</text>', LEFT,
      WIDTH - 16, y, y, LEFT - 6, y + 4, most_mib * k / 4)
  end
  out[#out + 1] = string.format('<text x="%d" y="%d" text-anchor="middle">actions of one step: '
    .. "forward, then backward with what has to be recomputed</text>", (WIDTH + LEFT) / 2,
    HEIGHT - 12)
  return table.concat(out, "\n")
end

local function forecast_of(config, modes)
  local data = data_module.open(config.data, { context = config.context })
  return forecast_module.new({ context = config.context,
    chunks = forecast_module.chunks(config.global_batch, config.chunk), modes = modes,
    build = function()
      return neap.nn.GPT({ vocabulary = data.n_vocabulary, context = config.context,
        width = config.width, n_layer = config.n_layer, n_head = config.n_head })
    end,
    optimizer = function(model) return neap.optim.AdamW(model:parameters()) end })
end

local function main()
  if arg[1] == "--help" then
    print("Draws the memory of one step under several policies, as predicted.\n" .. USAGE)
    return 0
  end
  if #arg < 2 then fail.usage("expected a config and one or more policies: %s", USAGE) end
  local modes = {}
  for i = 2, #arg do
    for _, mode in ipairs(policy.modes(arg[i])) do keeping.add(modes, mode, arg[i]) end
  end
  local forecast = forecast_of(config_module.load(arg[1], {}, {}), modes)
  local chunk = forecast.chunks[1]
  local fixed = forecast.fixed_bytes + forecast.batch_bytes[chunk]
  local lines, most = {}, 0
  for i = 2, #arg do
    local prediction = forecast:predict(arg[i])
    lines[i - 1] = { spec = arg[i], peak = prediction.peak_bytes,
      points = points(prediction.plans[chunk], forecast.profiles[chunk], fixed) }
    most = math.max(most, prediction.peak_bytes)
  end
  local most_mib = math.ceil(most / 2 ^ 20 / 16) * 16
  print(string.format('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family='
    .. '"sans-serif" font-size="12" fill="#777">', WIDTH, HEIGHT))
  print('<rect width="100%" height="100%" fill="#fff"/>')
  print(axis(most_mib))
  for i, line in ipairs(lines) do
    local color = COLORS[(i - 1) % #COLORS + 1]
    print(polyline(line.points, most_mib * 2 ^ 20, color))
    print(string.format('<text x="%d" y="%d" fill="%s">%s: peak %.1f MiB</text>', LEFT + 12,
      TOP + 4 + 16 * i, color, line.spec, line.peak / 2 ^ 20))
  end
  print("</svg>")
  return 0
end

cli.run("timeline.lua", arg, main)
