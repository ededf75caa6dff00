-- A run's directory: the resolved config, a manifest, one line a step in metrics.jsonl and
-- metrics.csv.
local config_module = require("neap.config")
local files = require("neap.files")
local json = require("neap.json")

local M = {}

local COLUMNS = { "step", "loss", "grad_norm", "lr", "seconds", "tokens_per_second",
  "predicted_peak_bytes", "measured_peak_bytes", "recomputed_forwards" }

---@class neap.RunDirectory
---@field path string
local RunDirectory = {}
RunDirectory.__index = RunDirectory

--- Makes the directory (out, or runs/<name>-<least free number>) and writes what is known at the
--- start.
---@param out string|nil
---@param name string
---@param config neap.Config
---@param manifest table
---@return neap.RunDirectory
function M.new(out, name, config, manifest)
  local path = out
  if path then
    files.make_directory(path)
  else
    path = files.make_numbered_directory("runs", name)
  end
  files.write(path .. "/config.lua", config_module.dump(config))
  files.write(path .. "/manifest.json", json.encode(manifest) .. "\n")
  files.write(path .. "/metrics.jsonl", "")
  files.write(path .. "/metrics.csv", table.concat(COLUMNS, ",") .. "\n")
  return setmetatable({ path = path }, RunDirectory)
end

local function cell(value)
  if value == nil or value ~= value then return "" end
  return value % 1 == 0 and string.format("%.0f", value) or string.format("%.9g", value)
end

--- One step's numbers.
function RunDirectory:step(row)
  files.append(self.path .. "/metrics.jsonl", json.encode(row, COLUMNS) .. "\n")
  local cells = {}
  for i, name in ipairs(COLUMNS) do cells[i] = cell(row[name]) end
  files.append(self.path .. "/metrics.csv", table.concat(cells, ",") .. "\n")
end

--- A validation result, in metrics.jsonl only.
function RunDirectory:validation(row)
  files.append(self.path .. "/metrics.jsonl", json.encode(row, { "step", "val_loss" }) .. "\n")
end

return M
