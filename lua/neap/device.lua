-- Devices: opening one makes it the default of the tensors and modules made afterwards.
local ffi_neap = require("neap.ffi")
local argument = require("neap.argument")
local bytes = require("neap.bytes")
local fail = require("neap.fail")
local memory = require("neap.memory")
local C, ffi, check = ffi_neap.C, ffi_neap.ffi, ffi_neap.check

local M = {}

---@class neap.Device
---@field id integer
---@field name string    the backend: "cpu", "null"
---@field reason string  how it was chosen, for the line on stderr
local Device = {}
Device.__index = Device
Device.__tostring = function(self) return "device " .. self.name end

local current -- the default device
local shared = {} -- devices opened without options, by name
local id_out = ffi.new("int[1]")

local function backend_names()
  local names, i = {}, 0
  while C.neap_backend_name(i) ~= nil do
    names[#names + 1] = ffi.string(C.neap_backend_name(i))
    i = i + 1
  end
  return names
end

--- Whether device memory of all tags is limited, and to what (nil: no limit).
---@param limit number|string|nil  bytes, "512MiB" or "80%" of the available memory
function Device:set_budget(limit)
  argument.self(self, Device, "device:set_budget")
  local amount = -1
  if limit ~= nil then
    local available = C.neap_memory_available(self.id)
    local parsed, message = bytes.parse(limit, available >= 0 and available or nil)
    if not parsed then fail.usage("budget: %s", message) end
    amount = parsed
  end
  check(C.neap_memory_budget(self.id, amount))
  self.budget_bytes = amount >= 0 and amount or nil
end

--- Counted memory of the device; see neap.memory.
function Device:memory()
  argument.self(self, Device, "device:memory")
  return memory.stats(self.id)
end

--- Restarts a high-water mark: "run", "step", "action" or "work".
function Device:restart_peak(meter)
  argument.self(self, Device, "device:restart_peak")
  local meters = { run = C.NEAP_METER_RUN, step = C.NEAP_METER_STEP,
    action = C.NEAP_METER_ACTION, work = C.NEAP_METER_WORK }
  if type(meter) ~= "string" or not meters[meter] then
    fail.usage("device: %s", fail.unknown("meter", argument.word(meter),
      { "run", "step", "action", "work" }))
  end
  check(C.neap_memory_restart(self.id, meters[meter]))
end

--- Gives cached free memory back to the system.
function Device:trim()
  argument.self(self, Device, "device:trim")
  check(C.neap_memory_trim(self.id))
end

--- Whether kernels run here (not on null).
function Device:computes()
  argument.self(self, Device, "device:computes")
  return C.neap_device_computes(self.id) == 1
end

--- Closes the device; an error while tensors on it are alive.
function Device:close()
  argument.self(self, Device, "device:close")
  check(C.neap_device_close(self.id))
  if shared[self.name] == self then shared[self.name] = nil end
  if current == self then current = nil end
end

local function open(name, options)
  local size = 0
  if options.size ~= nil then
    size = bytes.parse(options.size)
    if not size then
      fail.usage("device: size must be a number of bytes, found %s", argument.shown(options.size))
    end
  end
  check(C.neap_device_open(name, size, id_out))
  local device = setmetatable({ id = id_out[0], name = name }, Device)
  if options.budget ~= nil then
    local ok, err = pcall(device.set_budget, device, options.budget)
    if not ok then
      C.neap_device_close(device.id)
      error(err, 0)
    end
  end
  return device
end

local option_names = { "budget", "size" }

--- Opens a device and makes it the default. Without options the same one is given again.
---@param name "auto"|"cpu"|"null"
---@param options? { budget?: number|string, size?: number|string }
---@return neap.Device
function M.open(name, options)
  options = argument.options(options, "device", option_names)
  local reason = "asked for"
  if name == "auto" or name == nil then
    name, reason = "cpu", "auto: no CUDA backend is built, so the CPU"
  end
  local names = backend_names()
  local known = false
  for _, n in ipairs(names) do known = known or n == name end
  if not known then
    if type(name) == "string" and name:match("^cuda") then
      fail.raise("device", string.format("device '%s' is not available: no CUDA backend is built; "
        .. "use auto, cpu or null", name))
    end
    names[#names + 1] = "auto"
    fail.usage("device: %s", fail.unknown("device", argument.word(name), names))
  end
  local device
  if next(options) == nil then
    shared[name] = shared[name] or open(name, options)
    device = shared[name]
  else
    device = open(name, options)
  end
  device.reason = reason
  current = device
  return device
end

--- The default device; opens the cpu when none was opened.
---@return neap.Device
function M.current()
  return current or M.open("cpu")
end

--- An open device, or a usage error that begins with who.
---@return neap.Device
function M.checked(device, who)
  if getmetatable(device) ~= Device then
    fail.usage("%s must be what neap.device gave, found %s", who, argument.shown(device))
  end
  check(C.neap_device_computes(device.id))
  return device
end

--- Makes an open device the default.
---@param device neap.Device
function M.make_current(device)
  current = M.checked(device, "device")
end

--- Runs fn with another default device.
---@param device neap.Device
function M.with(device, fn, ...)
  M.checked(device, "with_device: the device")
  argument.fn(fn, "with_device: its second argument")
  local before = current
  current = device
  local function finish(ok, ...)
    current = before
    if not ok then error(..., 0) end
    return ...
  end
  return finish(pcall(fn, ...))
end

--- Sets the number of threads of the kernels, or tells it.
---@param n? integer
---@return integer
function M.threads(n)
  if n ~= nil then
    if type(n) ~= "number" or n % 1 ~= 0 then
      fail.usage("threads: expected a whole number from 1 to 1024, found %s",
        argument.shown(n))
    end
    check(C.neap_threads_set(math.max(-1, math.min(n, 1e6))))
  end
  return C.neap_threads_get()
end

return M
