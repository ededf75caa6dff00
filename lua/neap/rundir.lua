-- A run's directory: the resolved config, a manifest, a line a step in metrics.jsonl and
-- metrics.csv, state files. One process at a time.
local ffi_neap = require("neap.ffi")
local config_module = require("neap.config")
local argument = require("neap.argument")
local fail = require("neap.fail")
local files = require("neap.files")
local json = require("neap.json")
local lfs = require("lfs")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

local COLUMNS = { "step", "loss", "grad_norm", "lr", "seconds", "tokens_per_second",
  "predicted_peak_bytes", "measured_peak_bytes", "recomputed_forwards" }
local KEEP_LAST = 3

---@class neap.RunDirectory
---@field path string
local RunDirectory = {}
RunDirectory.__index = RunDirectory

-- what a process that was killed while it wrote left behind; the lock is ours, so nobody writes now
local function sweep(path)
  for name in lfs.dir(path) do
    if name:find("%.tmp%-%d+$") then os.remove(path .. "/" .. name) end
  end
end

local function lock(path)
  local ok, err = pcall(check, C.neap_file_lock(path .. "/.lock"))
  if ok then return sweep(path) end
  if fail.is(err, "wrong state") then
    fail.raise("failure", string.format("run directory '%s' is in use by another process", path))
  end
  error(err, 0)
end

--- Makes the directory (out, or runs/<name>-<least free number>) and writes what is known at the
--- start.
---@param out string|nil
---@param name string
---@param config neap.Config
---@param manifest table
---@return neap.RunDirectory
function M.new(out, name, config, manifest)
  if out ~= nil then argument.text(out, "rundir.new: the path") end
  argument.text(name, "rundir.new: the name")
  -- before anything is made
  local config_text = config_module.dump(config)
  local manifest_text = json.encode(argument.table(manifest, "rundir.new: the manifest")) .. "\n"
  local path = out
  if path then
    files.make_directory(path)
  else
    path = files.make_numbered_directory("runs", name)
  end
  lock(path)
  local self = setmetatable({ path = path }, RunDirectory)
  if #self:states() > 0 then
    fail.usage("run directory '%s' holds the state of an earlier run; continue it with "
      .. "--resume, or "
      .. "take another --out", path)
  end
  files.write(path .. "/config.lua", config_text)
  files.write(path .. "/manifest.json", manifest_text)
  files.write(path .. "/metrics.jsonl", "")
  files.write(path .. "/metrics.csv", table.concat(COLUMNS, ",") .. "\n")
  return self
end

--- Opens the directory of an earlier run.
---@param path string
---@return neap.RunDirectory
function M.open(path)
  if not files.is_directory(path) then
    fail.raise("failure", string.format("run directory '%s' does not exist", path))
  end
  lock(path)
  return setmetatable({ path = path }, RunDirectory)
end

--- The directory below `parent` whose newest state is the newest of all; nil where there is none.
---@param parent string
---@return string|nil
function M.newest(parent)
  local best, newest
  if not files.is_directory(parent) then return nil end
  for name in lfs.dir(parent) do
    local path = parent .. "/" .. name
    if name:sub(1, 1) ~= "." and files.is_directory(path) then
      local states = setmetatable({ path = path }, RunDirectory):states()
      local last = states[#states]
      local time = last and lfs.attributes(last.path, "modification")
      if time and (not newest or time > newest or (time == newest and path > best)) then
        best, newest = path, time
      end
    end
  end
  return best
end

--- State files by rising step.
---@return { step: integer, path: string }[]
function RunDirectory:states()
  argument.self(self, RunDirectory, "rundir:states")
  local list = {}
  for name in lfs.dir(self.path) do
    local step = name:match("^state%-(%d+)%.safetensors$")
    if step then list[#list + 1] = { step = tonumber(step), path = self.path .. "/" .. name } end
  end
  table.sort(list, function(a, b) return a.step < b.step end)
  return list
end

---@param step integer
---@return string
function RunDirectory:state_path(step)
  argument.self(self, RunDirectory, "rundir:state_path")
  argument.whole(step, "rundir:state_path: the step")
  return string.format("%s/state-%08d.safetensors", self.path, step)
end

--- Removes all state files but the last three.
function RunDirectory:prune()
  argument.self(self, RunDirectory, "rundir:prune")
  local list = self:states()
  for i = 1, #list - KEEP_LAST do os.remove(list[i].path) end
end

-- the whole lines that belong to steps up to `step`; a torn last line is cut
local function lines_until(text, step, step_of)
  local out = {}
  for line in text:gmatch("([^\n]*)\n") do
    local at = step_of(line)
    if not at or at <= step then out[#out + 1] = line end
  end
  return #out > 0 and table.concat(out, "\n") .. "\n" or ""
end

--- Takes back what the logs say of later steps than the one a run goes on from.
---@param step integer
function RunDirectory:rewind(step)
  argument.self(self, RunDirectory, "rundir:rewind")
  argument.whole(step, "rundir:rewind: the step")
  for name, pattern in pairs({ ["metrics.jsonl"] = '^{"step":(%d+)',
    ["metrics.csv"] = "^(%d+)," }) do
    local path = self.path .. "/" .. name
    local text = files.read(path) or ""
    files.write(path, lines_until(text, step, function(line)
      return tonumber(line:match(pattern))
    end))
  end
end

local function cell(value, name)
  if value == nil or value ~= value then return "" end
  if type(value) ~= "number" then argument.number(value, "rundir:step: " .. name) end
  return value % 1 == 0 and string.format("%.0f", value) or string.format("%.9g", value)
end

--- One step's numbers.
function RunDirectory:step(row)
  argument.self(self, RunDirectory, "rundir:step")
  argument.table(row, "rundir:step: the row")
  local cells = {}
  for i, name in ipairs(COLUMNS) do cells[i] = cell(row[name], name) end
  files.append(self.path .. "/metrics.jsonl", json.encode(row, COLUMNS) .. "\n")
  files.append(self.path .. "/metrics.csv", table.concat(cells, ",") .. "\n")
end

--- A validation result, in metrics.jsonl only.
function RunDirectory:validation(row)
  argument.self(self, RunDirectory, "rundir:validation")
  argument.table(row, "rundir:validation: the row")
  files.append(self.path .. "/metrics.jsonl", json.encode(row, { "step", "val_loss" }) .. "\n")
end

return M
