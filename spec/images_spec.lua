-- Images: IDX files read to the byte, and images made from a seed; batches by position.
local ffi = require("ffi")
local images = require("neap.images")
local failure_of = require("spec.support.failure_of")
local script = require("spec.support.script")
require("neap")

local function u32(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256,
    math.floor(n / 256) % 256, n % 256)
end

local function idx(dims, data)
  local parts = { string.char(0, 0, 8, #dims) }
  for _, d in ipairs(dims) do parts[#parts + 1] = u32(d) end
  return table.concat(parts) .. data
end

describe("images", function()
  local directory
  setup(function() directory = script.directory() end)
  teardown(function() script.remove(directory) end)

  local function file(name, contents) return script.write(directory .. "/" .. name, contents) end

  -- 20 images of 2 x 3, image i full of i * 10, labels 0, 1, 2, 0, ..
  local function open(seed)
    local pixels, labels = {}, {}
    for i = 0, 19 do
      pixels[i + 1] = string.char(i * 10):rep(6)
      labels[i + 1] = string.char(i % 3)
    end
    return images.open(file("x", idx({ 20, 2, 3 }, table.concat(pixels))),
      file("y", idx({ 20 }, table.concat(labels))), seed or 1)
  end

  -- the numbers (from the brightness) and labels of n images
  local function batch(data, position, n, method)
    local host, labels = ffi.new("float[?]", n * data.pixels), ffi.new("int32_t[?]", n)
    data[method or "batch"](data, position, n, host, labels)
    local out = {}
    for k = 0, n - 1 do
      for p = 1, data.pixels - 1 do
        assert.equal(host[k * data.pixels], host[k * data.pixels + p])
      end
      out[k + 1] = { value = host[k * data.pixels], label = labels[k] }
    end
    return out
  end

  it("of IDX files have their sizes and classes, and the last tenth held out", function()
    local data = open()
    assert.same({ 20, 18, 2, 3, 3 }, { data.n, data.n_train, data.height, data.width,
      data.classes })
    local held = batch(data, 0, 2, "held_out")
    assert.same({ 0, 1 }, { held[1].label, held[2].label }) -- images 18 and 19
  end)

  it("are moved to mean 0 and deviation 1 over the training images", function()
    -- of 0, 10, .. 170: mean 85, deviation 10 * sqrt((18^2 - 1) / 12)
    local deviation = 10 * math.sqrt(323 / 12)
    local held = batch(open(), 0, 2, "held_out")
    assert(math.abs(held[1].value - (180 - 85) / deviation) < 1e-6)
    assert(math.abs(held[2].value - (190 - 85) / deviation) < 1e-6)
  end)

  it("come once an epoch, in an order of the seed and the epoch, with their labels", function()
    local data, deviation = open(), 10 * math.sqrt(323 / 12)
    local function numbers(position, from)
      local out, seen = {}, {}
      for k, image in ipairs(batch(from or data, position, 18)) do
        local number = math.floor((image.value * deviation + 85) / 10 + 0.5)
        assert.equal(number % 3, image.label)
        assert(not seen[number] and number < 18)
        out[k], seen[number] = number, true
      end
      return out
    end
    local first, second = numbers(0), numbers(18)
    assert.are_not.same(first, second)
    assert.same(first, numbers(0))
    assert.are_not.same(first, numbers(0, open(2)))
    -- a batch depends on its position alone
    assert.equal(first[6] % 3, batch(data, 5, 1)[1].label)
  end)

  it("made from a seed are the same for it, others for another, learnable by their class",
    function()
      local function numbers(seed, n)
        local data = images.generated({ n = 40, side = 5, classes = 4, seed = seed })
        assert.same({ 40, 36, 5, 5, 4 }, { data.n, data.n_train, data.height, data.width,
          data.classes })
        local host, labels = ffi.new("float[?]", n * 25), ffi.new("int32_t[?]", n)
        data:batch(0, n, host, labels)
        local out = {}
        for i = 0, n * 25 - 1 do out[i + 1] = host[i] end
        return out, labels
      end
      local one, labels = numbers(1, 36)
      assert.same(one, (numbers(1, 36)))
      assert.are_not.same(one, (numbers(2, 36)))
      -- images of one class are nearer to each other than to those of others
      local sums, counts = { [true] = 0, [false] = 0 }, { [true] = 0, [false] = 0 }
      for a = 0, 35 do
        for b = 0, a - 1 do
          local same = labels[a] == labels[b]
          counts[same] = counts[same] + 1
          for p = 1, 25 do
            sums[same] = sums[same] + (one[a * 25 + p] - one[b * 25 + p]) ^ 2
          end
        end
      end
      assert(sums[true] / counts[true] < 0.85 * sums[false] / counts[false])
    end)

  it("refuses a file that is no IDX file of its kind, or not as long as it says", function()
    local good = idx({ 2, 2, 2 }, ("a"):rep(8))
    for name, case in pairs({
      empty = { "", "0 bytes" },
      short = { "\0\0\8", "3 bytes" },
      text = { "hello world, no images here", "68 65 6c 6c" },
      floats = { "\0\0\13\3" .. good:sub(5), "00 00 0d 03" },
      ["not zero"] = { "\1\0\8\3" .. good:sub(5), "01 00 08 03" },
      labels = { idx({ 2 }, "ab"), "3 dimensions" },
      ["cut header"] = { good:sub(1, 13), "inside its header, after 13 of 16" },
      truncated = { good:sub(1, -2), "need 8 bytes of data, it has 7" },
      ["with more"] = { good .. "a", "need 8 bytes of data, it has 9" },
      none = { idx({ 0, 2, 2 }, ""), "0 x 2 x 2 hold nothing" },
      ["no width"] = { idx({ 2, 2, 0 }, ""), "hold nothing" },
      overflow = { idx({ 2 ^ 32 - 1, 2 ^ 32 - 1, 2 ^ 32 - 1 }, "aaaa"), "it has 4" },
    }) do
      local message = failure_of("failure", images.open, file("bad", case[1]), "y", 1)
      assert(message:find(case[2], 1, true), name .. ": " .. message)
      assert(message:find("/bad'", 1, true) and not message:find("\n"), message)
    end
    assert.matches("No such file", failure_of("failure", images.open, directory .. "/no", "y", 1))
    assert.matches("directory", failure_of("failure", images.open, directory, "y", 1))
  end)

  it("refuses labels of another number, or of one class", function()
    local x = file("x", idx({ 2, 2, 2 }, ("a"):rep(8)))
    assert.matches("3 labels for the 2 images",
      failure_of("failure", images.open, x, file("y", idx({ 3 }, "\0\1\2")), 1))
    assert.matches("two classes",
      failure_of("failure", images.open, x, file("y", idx({ 2 }, "\0\0")), 1))
    assert.matches("1 dimension$", failure_of("failure", images.open, x, x, 1))
  end)

  it("takes images that are all of one grey", function()
    local data = images.open(file("x", idx({ 2, 1, 2 }, "cccc")), file("y", idx({ 2 }, "\0\1")), 1)
    assert.equal(0, batch(data, 0, 1)[1].value)
  end)

  it("refuses wrong options of images that are made", function()
    local function refused(key, value)
      local o = { n = 10, side = 4, classes = 2, seed = 1 }
      o[key] = value
      failure_of("usage", images.generated, o)
    end
    for _, key in ipairs({ "n", "side", "classes", "seed" }) do
      for _, value in ipairs({ -1, 0.5, 0 / 0, 1e300, "4", false }) do refused(key, value) end
    end
    refused("classes", 1)
    refused("size", 4)
    failure_of("usage", images.generated)
    failure_of("usage", images.open, 5, "y", 1)
  end)
end)
