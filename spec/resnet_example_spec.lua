-- examples/resnet.lua as a person runs it.
local json = require("neap.json")
local script = require("spec.support.script")

describe("examples/resnet.lua", function()
  local directory
  setup(function() directory = script.directory() end)
  teardown(function() script.remove(directory) end)

  local function run(...) return script.run("examples/resnet.lua", { ... }, directory) end

  local SMALL = { "--threads", "1", "--depth", "8", "--width", "2", "--batch", "8" }
  local function small(...)
    local words = { unpack(SMALL) }
    for _, word in ipairs({ ... }) do words[#words + 1] = word end
    return run(unpack(words))
  end

  it("trains 110 layers on images it makes: the loss falls, the peak is the predicted one",
    function()
      local result = run("--depth", "110", "--width", "4", "--batch", "32", "--lr", "0.05",
        "--steps", "20", "--threads", "1", "--checkpoint", "segments:4")
      assert.equal(0, result.status, result.err)
      local losses = {}
      for loss in result.out:gmatch("step %d+/20 loss ([%d.]+)") do
        losses[#losses + 1] = tonumber(loss)
      end
      assert.equal(20, #losses)
      local function mean(first)
        local sum = 0
        for i = first, first + 4 do sum = sum + losses[i] / 5 end
        return sum
      end
      assert(mean(16) < 0.8 * mean(1), result.out)
      local predicted, measured = result.out:match("(%d+) bytes predicted, (%d+) measured")
      assert.equal(predicted, measured)
      assert(result.out:find("> segments:4", 1, true))
      assert(result.out:find("held-out images: loss", 1, true))
    end)

  it("ends in one JSON object whose peaks agree under every plan, on cpu and null", function()
    local bits
    for _, spec in ipairs({ "none", "all", "segments:4" }) do
      local peaks = {}
      for _, device in ipairs({ "cpu", "null" }) do
        local result = small("--steps", "3", "--checkpoint", spec, "--device", device, "--json")
        assert.equal(0, result.status, result.err)
        local report = json.decode(result.out)
        assert.equal(report.predicted_peak_bytes, report.measured_peak_bytes)
        peaks[#peaks + 1] = report.measured_peak_bytes
        assert.equal(3, report.steps)
        if device == "cpu" then
          bits = bits or report.loss_bits
          assert.equal(bits, report.loss_bits)
        end
      end
      assert.equal(peaks[1], peaks[2])
    end
  end)

  it("trains on IDX files, in chunks", function()
    local pixels, labels = {}, {}
    for i = 0, 39 do
      for p = 0, 34 do pixels[#pixels + 1] = string.char((i % 2 * 90 + i + 7 * p) % 256) end
      labels[i + 1] = string.char(i % 2)
    end
    script.write(directory .. "/x", "\0\0\8\3\0\0\0\40\0\0\0\5\0\0\0\7" .. table.concat(pixels))
    script.write(directory .. "/y", "\0\0\8\1\0\0\0\40" .. table.concat(labels))
    local result = small("--images", "x", "--labels", "y", "--steps", "2", "--chunk", "3")
    assert.equal(0, result.status, result.err)
    assert.matches("x: 40 of 5x7, 2 classes; ResNet of 8 layers, %d+ parameters; chunk 3 of 8",
      result.out)
    script.write(directory .. "/y", "\0\0\8\1\0\0\0\41" .. table.concat(labels))
    result = small("--images", "x", "--labels", "y")
    assert.equal(1, result.status)
    assert.matches("^resnet.lua: images 'y': .+\n$", result.err)
  end)

  it("only says what it would take with --dry-run, also for 1,000 layers", function()
    local result = run("--depth", "1000", "--side", "32", "--device", "null", "--dry-run",
      "--budget", "100GiB")
    assert.equal(0, result.status, result.err)
    assert.matches("verdict: fits", result.out)
    assert.matches("block.498", result.out)
    assert(not result.out:find("step 1/", 1, true))
  end)

  it("refuses a budget that is too small with status 3 and what would fit", function()
    local result = small("--budget", "64KiB")
    assert.equal(3, result.status)
    assert.matches("checkpoint none needs %d+ bytes", result.err)
  end)

  it("refuses wrong options with status 2 and one sentence", function()
    for _, words in ipairs({ { "--depth", "9" }, { "--depth", "1002" }, { "--depth", "x" },
      { "--width", "0" }, { "--batch", "0" }, { "--chunk", "1" },
      { "--batch", "9", "--chunk", "8" }, { "--block", "post" }, { "--steps", "0" },
      { "--lr", "-1" }, { "--lr", "nan" }, { "--checkpoint", "sqrt" },
      { "--checkpoint", "segments:99" }, { "--budget", "much" }, { "--device", "tpu" },
      { "--threads", "0" }, { "--seed", "-1" }, { "--images", "x" }, { "--labels", "x" },
      { "--dept", "8" }, { "word" }, { "--side", "3" } }) do
      local result = small(unpack(words))
      local line = result.err:match("[^\n]*\n$") or ""
      assert.equal(2, result.status, table.concat(words, " ") .. ": " .. result.err)
      assert.matches("^resnet.lua: .+\n$", line)
    end
  end)

  it("has examples and exit statuses in --help", function()
    local result = run("--help")
    assert.equal(0, result.status)
    assert.matches("Examples:", result.out)
    assert.matches("Exit status: 0 done", result.out)
    for _, name in ipairs({ "images", "labels", "depth", "width", "chunk", "steps", "checkpoint",
      "budget", "threads", "seed", "json", "dry%-run" }) do
      assert.matches("%-%-" .. name, result.out)
    end
  end)
end)
