-- Right safetensors files that were damaged, and right ones of great size.
local bit = require("bit")
local make = require("spec.support.safetensors")
local neap = require("neap")
local safetensors = require("neap.safetensors")
local script = require("spec.support.script")

local long = os.getenv("NEAP_LONG")
-- seconds of processor time that only a hang or quadratic work takes; speed is for benchmarks
local HANG = 20

describe("a safetensors file", function()
  local directory, path, sample, n_header

  setup(function()
    neap.device("cpu")
    directory = script.directory()
    path = directory .. "/damaged.safetensors"
    sample, n_header = make.sample()
  end)
  teardown(function() script.remove(directory) end)

  it("opens as it was made", function()
    assert.is_true((make.try(path, sample)))
  end)

  it("is refused when it is cut anywhere, or longer", function()
    for n = 0, #sample - 1 do
      assert.is_false((make.try(path, sample:sub(1, n))), n)
    end
    for n = 1, 20 do assert.is_false((make.try(path, sample .. ("\0"):rep(n)))) end
  end)

  it("is refused when its header's text is cut anywhere and its length says so", function()
    local text = sample:sub(9, 8 + n_header)
    for n = 0, #text - 1 do
      assert.is_false((make.try(path, make.file(text:sub(1, n), 32))), n)
    end
  end)

  it("is refused or right after any bit of the header flipped", function()
    local n_opened, n_flips = 0, 0
    for byte = 1, 8 + n_header do
      for number = 0, 7 do
        n_flips = n_flips + 1
        if make.try(path, make.flip(sample, byte, number)) then n_opened = n_opened + 1 end
      end
    end
    -- letters of names and metadata are anybody's
    assert.is_true(n_flips > 2000 and n_opened > 20 and n_opened < n_flips / 8, n_opened)
  end)

  it("is refused or right after any byte became another", function()
    for byte = 9, 8 + n_header do
      for _, other in ipairs({ "\0", " ", '"', "\\", "{", "}", "[", "]", ",", ":", "0", "9", "-",
        ".", "e", "\127", "\128", "\255" }) do
        make.try(path, sample:sub(1, byte - 1) .. other .. sample:sub(byte + 1))
      end
    end
  end)

  it("is refused or right after parts of it were mixed", function()
    local seed = 12345
    local function random(n)
      -- a fixed sequence, so that a failure comes again
      seed = (seed * 16807) % 2147483647
      return seed % n + 1
    end
    local text = sample:sub(9, 8 + n_header)
    local opened = 0
    for _ = 1, long and 100000 or 3000 do
      local from, size, to = random(#text), random(60), random(#text)
      local part = text:sub(from, from + size)
      local mixed = text:sub(1, to) .. part .. text:sub(to + 1 + (random(2) - 1) * #part)
      if make.try(path, make.file(mixed, 32)) then opened = opened + 1 end
    end
    assert.is_true(opened > 0)
  end)

  it("is refused after every length of header but its own", function()
    for n = 0, 2 * #sample do
      if n ~= bit.bor(sample:byte(1), sample:byte(2) * 256) then
        assert.is_false((make.try(path, make.length(n) .. sample:sub(9))), n)
      end
    end
  end)

  -- entries of n tensors of one f32, in an order
  local function many(n, index)
    local entries = {}
    for i = 1, n do
      local k = index(i)
      local offsets = string.format("[%d,%d]", 4 * k, 4 * k + 4)
      entries[i] = make.entry("layer." .. k, "F32", "[1]", offsets)
    end
    return make.file("{" .. table.concat(entries, ",") .. "}", 4 * n)
  end

  local orders = {
    { "in order", function(i) return i - 1 end },
    { "in the opposite order", function(i) return 100000 - i end },
    { "in no order", function(i) return i * 61803 % 100000 end },
  }
  for _, order in ipairs(orders) do
    it("of 100,000 tensors " .. order[1] .. " opens at once", function()
      make.write(path, many(100000, order[2]))
      collectgarbage()
      local start = os.clock()
      local file = safetensors.open(path)
      local seconds = os.clock() - start
      assert.is_true(seconds < HANG, seconds .. " s")
      start = os.clock()
      assert.equal(100000, #file:names())
      for k = 0, 99999 do assert.is_true(file:has("layer." .. k)) end
      assert.is_true(os.clock() - start < HANG)
      local into = neap.zeros({ 1 })
      file:read_into("layer.99999", into)
      assert.same({ 0x78787878 }, into:bits())
      file:close()
    end)
  end

  it("of 100,000 tensors with one wrong is refused at once", function()
    local entries = {}
    for i = 1, 100000 do
      entries[i] = make.entry(i == 99999 and "n5" or "n" .. i, "U8", "[0]", "[0,0]")
    end
    local contents = make.file("{" .. table.concat(entries, ",") .. "}")
    make.write(path, contents)
    local start = os.clock()
    local ok, err = pcall(safetensors.open, path)
    assert.is_true(os.clock() - start < HANG)
    assert.is_false(ok)
    assert.is_truthy(err.message:find("tensor 'n5': its name is there twice", 1, true))
  end)

  it("of more than 1,000,000 tensors is refused, of as many is not", function()
    local entries = {}
    for i = 1, 1000001 do
      entries[i] = string.format('"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}', i)
    end
    make.write(path, make.file("{" .. table.concat(entries, ",", 1, 1000000) .. "}"))
    local file = safetensors.open(path)
    assert.is_true(file:has("f4240"))
    file:close()
    make.write(path, make.file("{" .. table.concat(entries, ",") .. "}"))
    local ok, err = pcall(safetensors.open, path)
    assert.is_false(ok)
    assert.is_truthy(err.message:find("more than 1000000 tensors", 1, true))
  end)

  it("takes less than twice its header to open", function()
    if os.getenv("ASAN_OPTIONS") then
      pending("memory is counted without sanitizers")
      return
    end
    local entries = {}
    for i = 1, 200000 do
      entries[i] = string.format('"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}', i)
    end
    local contents = make.file("{" .. table.concat(entries, ",") .. "}")
    make.write(path, contents)
    make.write(directory .. "/child.lua", [[
      local safetensors = require("neap.safetensors")
      local function peak()
        for line in io.lines("/proc/self/status") do
          local kib = line:match("^VmHWM:%s*(%d+) kB")
          if kib then return kib * 1024 end
        end
      end
      local before = peak()
      local file = safetensors.open(arg[1])
      print(peak() - before)]])
    local pipe = io.popen(string.format("LUA_PATH='%s' luajit '%s/child.lua' '%s'", package.path,
      directory, path))
    local grown = tonumber(pipe:read("*l"))
    pipe:close()
    assert.is_true(grown > #contents and grown < 2 * #contents + 512 * 1024, grown)
  end)
end)
