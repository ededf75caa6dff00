-- A sweep's directory: what is swept (sweep.json), a line a trial (results.jsonl, appended), the
-- trials' runs. Whatever ends the process, the next one finds whole lines and goes on.
-- Shards write files of their own (results.2-of-8.jsonl); a run without --shard gathers them.
local ffi_neap = require("neap.ffi")
local config = require("neap.config")
local fail = require("neap.fail")
local files = require("neap.files")
local json = require("neap.json")
local lfs = require("lfs")
local row_module = require("neap.sweep.row")
local C, check = ffi_neap.C, ffi_neap.check

local M = {}

---@class neap.sweep.Store
---@field path string
---@field shard string|nil  "2-of-8"
local Store = {}
Store.__index = Store

local function lock(path, name, who)
  local ok, err = pcall(check, C.neap_file_lock(path .. "/" .. name))
  if ok then return end
  if fail.is(err, "wrong state") then
    fail.raise("failure", string.format("sweep directory '%s' is in use by another process%s", path,
      who or ""))
  end
  error(err, 0)
end

-- "results.2-of-8.jsonl" -> "2-of-8"
local function shards_of(path)
  local list = {}
  for name in lfs.dir(path) do
    local shard = name:match("^results%.(%d+%-of%-%d+)%.jsonl$")
    if shard then list[#list + 1] = shard end
  end
  table.sort(list)
  return list
end

local function results_name(shard)
  return shard and "results." .. shard .. ".jsonl" or "results.jsonl"
end

local function lock_name(shard) return shard and ".lock." .. shard or ".lock" end

-- whole lines only: a line without its end was being written when the process was killed
local function read_rows(path)
  local rows, n = {}, 0
  local text = files.read(path) or ""
  for line in text:gmatch("([^\n]*)\n") do
    n = n + 1
    local row, message = json.decode(line)
    if type(row) ~= "table" or type(row.id) ~= "string" or type(row.status) ~= "string" then
      fail.raise("failure", string.format("'%s', line %d: %s; expected a trial's row", path, n,
        message or "it is no row"))
    end
    rows[#rows + 1] = row
  end
  return rows, text
end

local function cut_torn_line(path)
  if not lfs.attributes(path, "mode") then return end
  local _, text = read_rows(path)
  local whole = text:match("^(.*\n)") or ""
  if #whole < #text then files.write(path, whole) end
end

local function text_of(spec)
  return json.encode(spec, { "config", "repeats", "grid", "ids" }) .. "\n"
end

local function spec_of(o)
  local spec = { config = o.config_path, repeats = o.repeats, grid = json.array({}),
    ids = json.array({}) }
  for a, axis in ipairs(o.axes) do
    local values = json.array({})
    for i, value in ipairs(axis.values) do values[i] = value.text end
    spec.grid[a] = json.object({ key = axis.key, values = values }, { "key", "values" })
  end
  for i, trial in ipairs(o.trials) do spec.ids[i] = trial.id end
  return spec
end

local function grid_text(grid)
  local words = {}
  for i, axis in ipairs(grid or {}) do
    words[i] = axis.key .. "=" .. table.concat(axis.values, ",")
  end
  return table.concat(words, " ")
end

-- what keeps the sweep of a directory from being this one; nil: nothing
local function difference(was, is)
  if grid_text(was.grid) ~= grid_text(is.grid) then
    return string.format("its grid is %s, not %s", grid_text(was.grid), grid_text(is.grid))
  end
  if was.repeats ~= is.repeats then
    return string.format("its --repeat is %s, not %d", tostring(was.repeats), is.repeats)
  end
  for i, id in ipairs(is.ids) do
    if (was.ids or {})[i] ~= id then return "its config or --set is another one" end
  end
  return nil
end

local function check_spec(self, o)
  local path, spec = self.path .. "/sweep.json", spec_of(o)
  if not lfs.attributes(path, "mode") then
    if o.resume then o.tell(string.format("nothing to resume in '%s': it starts", self.path)) end
    files.write(path, text_of(spec))
    return
  end
  local text, message = files.read(path)
  if not text then fail.raise("failure", message) end
  local was, no_json = json.decode(text)
  if type(was) ~= "table" then
    fail.raise("failure", string.format("'%s': %s; take another --out", path,
      no_json or "no sweep"))
  end
  local unlike = difference(was, spec)
  if unlike then
    fail.usage("'%s' holds another sweep: %s; take another --out", self.path, unlike)
  end
  -- shards start side by side: only one of them is the first
  local is_mine = not self.shard or lfs.attributes(self.path .. "/" .. self.name, "mode")
  if not o.resume and is_mine then
    fail.usage("'%s' holds this sweep already; go on with --resume, or take another --out",
      self.path)
  end
end

-- rows of shards that are done become those of results.jsonl
local function gather(self)
  local shards = shards_of(self.path)
  for _, shard in ipairs(shards) do
    lock(self.path, lock_name(shard), " (shard " .. shard:gsub("%-of%-", "/") .. ")")
  end
  for name in lfs.dir(self.path) do
    if name:find("%.tmp%-%d+$") then os.remove(self.path .. "/" .. name) end
  end
  if #shards == 0 then return end
  local lines = {}
  for _, row in ipairs(self:rows()) do
    lines[#lines + 1] = json.encode(row, row_module.COLUMNS) .. "\n"
  end
  files.write(self.path .. "/" .. self.name, table.concat(lines))
  for _, shard in ipairs(shards) do os.remove(self.path .. "/" .. results_name(shard)) end
end

--- Opens a sweep's directory for this process alone. Raises "usage" where it holds another sweep,
--- or this one and `resume` is false.
---@param path string
---@param o { config_path: string, axes: neap.sweep.Axis[], trials: neap.sweep.Trial[],
---  repeats: integer, resume: boolean, shard: string|nil, tell: fun(line: string) }
---@return neap.sweep.Store
function M.open(path, o)
  local shard = o.shard and o.shard:gsub("/", "-of-") or nil
  files.make_directory(path)
  local self = setmetatable({ path = path, shard = shard, name = results_name(shard),
    trials = o.trials }, Store)
  lock(path, lock_name(shard))
  check_spec(self, o)
  files.make_directory(path .. "/trials")
  cut_torn_line(path .. "/" .. self.name)
  if not shard then gather(self) end
  local results = path .. "/" .. self.name
  if not lfs.attributes(results, "mode") then files.write(results, "") end
  return self
end

--- The rows so far in the grid's order, of all shards: the last one of each trial.
---@return table[] rows
---@return table<string, table> by_id
function Store:rows()
  local by_id, rows = {}, {}
  local names = { "results.jsonl" }
  for _, shard in ipairs(shards_of(self.path)) do names[#names + 1] = results_name(shard) end
  for _, name in ipairs(names) do
    for _, row in ipairs((read_rows(self.path .. "/" .. name))) do by_id[row.id] = row end
  end
  for _, trial in ipairs(self.trials) do rows[#rows + 1] = by_id[trial.id] end
  return rows, by_id
end

--- Adds a trial's row, whole or not at all.
---@param row table
function Store:append(row)
  files.append(self.path .. "/" .. self.name, json.encode(row, row_module.COLUMNS) .. "\n")
end

local function remove_tree(path)
  if lfs.symlinkattributes(path, "mode") == "directory" then
    for name in lfs.dir(path) do
      if name ~= "." and name ~= ".." then remove_tree(path .. "/" .. name) end
    end
    lfs.rmdir(path)
  else
    os.remove(path)
  end
end

---@class neap.sweep.Paths
---@field config string
---@field out string        what it prints
---@field err string        what it says on stderr
---@field directory string  of the run

--- The paths of a trial's k-th run; nothing is left of an earlier one.
---@param trial neap.sweep.Trial
---@param k integer
---@return neap.sweep.Paths
function Store:prepare(trial, k)
  local base = string.format("%s/trials/%s%s", self.path, trial.id, k > 1 and "." .. k or "")
  remove_tree(base)
  local paths = { config = base .. ".lua", out = base .. ".json", err = base .. ".log",
    directory = base }
  files.write(paths.config, config.dump(trial.config))
  return paths
end

--- Removes the directory of a run that only was there to be timed.
---@param paths neap.sweep.Paths
function Store:forget(paths) remove_tree(paths.directory) end

return M
