-- Data: splits, items by position, shuffling, vocabularies, what is refused.
local data = require("neap.data")
local fail = require("neap.fail")
local ffi = require("ffi")
local files = require("neap.files")
local lfs = require("lfs")
local text = require("neap.text")

describe("data", function()
  local directory

  before_each(function()
    directory = os.tmpname()
    os.remove(directory)
    lfs.mkdir(directory)
  end)

  after_each(function()
    os.execute("rm -rf '" .. directory .. "'")
  end)

  local function file(name, contents)
    files.write(directory .. "/" .. name, contents)
    return directory .. "/" .. name
  end

  local function u16(list)
    local array = ffi.new("uint16_t[?]", #list, list)
    return ffi.string(array, 2 * #list)
  end

  -- 0, 1, 2, ...: a token tells where it stands
  local function counting(n)
    local list = {}
    for i = 1, n do list[i] = i - 1 end
    return file("count.u16", u16(list))
  end

  local function batch(set, position, n, method)
    local size = n * set.context
    local inputs, targets = ffi.new("int32_t[?]", size), ffi.new("int32_t[?]", size)
    set[method or "batch"](set, position, n, inputs, targets)
    local a, b = {}, {}
    for i = 0, size - 1 do a[i + 1], b[i + 1] = inputs[i], targets[i] end
    return a, b
  end

  local function failure_of(fn, ...)
    local ok, err = pcall(fn, ...)
    assert.is_false(ok)
    assert.is_true(fail.is(err), tostring(err))
    assert.equal("failure", err.kind)
    return err.message
  end

  it("makes a vocabulary of the distinct bytes, sorted", function()
    local set = data.open(file("x.txt", "banana\255 a"), { context = 2 })
    assert.equal(5, set.n_vocabulary)
    assert.equal(" abn\255", set.tokens.characters)
    assert.same({ 2, 1, 3, 1, 3, 1, 4, 0, 1 }, set:encode("banana\255 a"))
  end)

  it("decodes what it encodes", function()
    local set = data.open(file("x.txt", "the quick brown fox\0\n"), { context = 2 })
    assert.equal("fox\0\n", set:decode(set:encode("fox\0\n")))
  end)

  it("says which byte of a prompt it does not know", function()
    local list, message = data.open(file("x.txt", "abcabc"), { context = 2 }):encode("abz")
    assert.is_nil(list)
    assert.matches('the byte 122 %("z"%) at position 3 is not in the vocabulary', message)
  end)

  it("reads 16-bit tokens, the vocabulary one more than the largest", function()
    local set = data.open(file("x.bin", u16({ 5, 65535, 0, 7, 1, 2 })), { context = 1 })
    assert.same({ 6, 65536 }, { set.n_tokens, set.n_vocabulary })
    assert.equal(10, data.open(file("first.bin", u16({ 9, 1, 2 })), { context = 1 }).n_vocabulary)
    assert.equal(10, data.open(file("last.bin", u16({ 1, 2, 9 })), { context = 1 }).n_vocabulary)
    assert.equal("5 7", set:decode({ 5, 7 }))
    assert.is_nil((set:encode("x")))
  end)

  it("gives the first nine tenths to training", function()
    local set = data.open(counting(1009), { context = 10 })
    assert.same({ 1009, 908, 101 }, { set.n_tokens, set.n_train, set.n_validation })
    assert.same({ 90, 10 }, { set.n_items, set.n_validation_items })
  end)

  it("counts only items whose last target is in the split", function()
    local set = data.open(counting(1100), { context = 10 })
    assert.same({ 990, 98, 10 }, { set.n_train, set.n_items, set.n_validation_items })
  end)

  it("gives training a whole item where nine tenths are none", function()
    local set = data.open(counting(12), { context = 10 })
    assert.same({ 11, 1, 1 }, { set.n_train, set.n_items, set.n_validation_items })
  end)

  it("shows the text itself, targets one byte ahead", function()
    local contents = "it was the best of times, it was the worst of times, it was the age of wisdom"
    local set = data.open(file("x.txt", contents), { context = 7 })
    for position = 0, 2 * set.n_items do
      local inputs, targets = batch(set, position, 1)
      local input, target = set:decode(inputs), set:decode(targets)
      assert.is_truthy(contents:find(input .. target:sub(-1), 1, true))
      assert.equal(input:sub(2), target:sub(1, -2))
    end
  end)

  it("takes 1 as the seed where none is given", function()
    local path = counting(1009)
    assert.same({ batch(data.open(path, { context = 10, seed = 1 }), 0, 5) },
      { batch(data.open(path, { context = 10 }), 0, 5) })
  end)

  it("shows every item of the training split once in the first epoch", function()
    local set = data.open(counting(1009), { context = 10 })
    local inputs, targets = batch(set, 0, set.n_items)
    local seen = {}
    for i = 1, #inputs do
      assert.equal(inputs[i] + 1, targets[i])
      assert.is_nil(seen[inputs[i]])
      seen[inputs[i]] = true
    end
    for token = 0, 899 do assert.is_true(seen[token], token) end
  end)

  it("shows them in another order each epoch and for each seed", function()
    local path = counting(1009)
    local set, other = data.open(path, { context = 10, seed = 1 }), data.open(path,
      { context = 10, seed = 2 })
    local first = batch(set, 0, set.n_items)
    assert.are_not.same(first, (batch(set, set.n_items, set.n_items)))
    assert.are_not.same(first, (batch(other, 0, set.n_items)))
    local sorted = true
    for i = 11, #first, 10 do sorted = sorted and first[i] > first[i - 10] end
    assert.is_false(sorted)
  end)

  it("cuts later epochs elsewhere, inside the training split", function()
    local set = data.open(counting(1009), { context = 10 })
    local cuts = {}
    for epoch = 1, 20 do
      local inputs, targets = batch(set, epoch * set.n_items, set.n_items)
      for i = 1, #inputs do
        assert.equal(inputs[i] + 1, targets[i])
        assert.is_true(targets[i] < set.n_train)
      end
      cuts[inputs[1] % 10] = true
      local starts, n_starts = {}, 0
      for i = 1, #inputs, 10 do
        if not starts[inputs[i]] then n_starts = n_starts + 1 end
        starts[inputs[i]] = true
      end
      assert.equal(set.n_items, n_starts)
    end
    local n = 0
    for _ in pairs(cuts) do n = n + 1 end
    assert.is_true(n >= 5, n)
  end)

  it("gives an item by its position alone, whatever else was asked", function()
    local path = counting(1009)
    local set = data.open(path, { context = 10 })
    local all = batch(set, 0, 300)
    local fresh = data.open(path, { context = 10 })
    for _, position in ipairs({ 299, 7, 90, 89, 180, 0 }) do
      local one = batch(fresh, position, 1)
      for t = 1, 10 do assert.equal(all[position * 10 + t], one[t]) end
    end
  end)

  it("goes on far from the start", function()
    local set = data.open(counting(1009), { context = 10 })
    local inputs = batch(set, 2 ^ 40, 3)
    for i = 1, #inputs do assert.is_true(inputs[i] >= 0 and inputs[i] < set.n_train) end
  end)

  it("keeps validation items in the last tenth, each once, the same for every seed", function()
    local path = counting(1009)
    local set = data.open(path, { context = 10, seed = 1 })
    local inputs, targets = batch(set, 0, 10, "validation_batch")
    local seen = {}
    for i = 1, #inputs do
      assert.equal(inputs[i] + 1, targets[i])
      assert.is_true(inputs[i] >= set.n_train)
      assert.is_nil(seen[inputs[i]])
      seen[inputs[i]] = true
    end
    local other = data.open(path, { context = 10, seed = 2 })
    assert.same(inputs, (batch(other, 0, 10, "validation_batch")))
    assert.same(inputs, (batch(set, 10, 10, "validation_batch")))
  end)

  it("lets the validation of a short text overlap its training", function()
    local set = data.open(counting(6), { context = 4 })
    assert.same({ 5, 1, 1 }, { set.n_train, set.n_items, set.n_validation_items })
    assert.same({ { 0, 1, 2, 3 }, { 1, 2, 3, 4 } }, { batch(set, 0, 1) })
    assert.same({ { 1, 2, 3, 4 }, { 2, 3, 4, 5 } }, { batch(set, 0, 1, "validation_batch") })
  end)

  it("knows the same bytes by the same hash and others by another", function()
    local a = data.open(file("a.txt", "some text"), { context = 2 })
    local b = data.open(file("b.txt", "some text"), { context = 3 })
    local c = data.open(file("c.txt", "some texT"), { context = 2 })
    assert.equal(a.hash, b.hash)
    assert.are_not.equal(a.hash, c.hash)
    assert.matches("^%x+$", a.hash)
    assert.equal(32, #a.hash)
  end)

  it("hashes as XXH3-128 does", function()
    local empty = ffi.new("char[33]")
    require("neap.ffi").C.neap_hash_bytes("", 0, empty)
    assert.equal("99aa06d3014798d86001c324468d497f", ffi.string(empty))
  end)

  it("refuses a missing file, a directory, an empty file", function()
    assert.equal("data: cannot read '" .. directory .. "/none': No such file or directory",
      failure_of(data.open, directory .. "/none", { context = 4 }))
    assert.matches("it is a directory", failure_of(data.open, directory, { context = 4 }))
    assert.equal("data: '" .. directory .. "/x' is empty",
      failure_of(data.open, file("x", ""), { context = 4 }))
  end)

  it("refuses fewer than context + 2 tokens, and takes as many", function()
    assert.matches("has 5 tokens, expected at least 6 for a context of 4",
      failure_of(data.open, file("x", "abcde"), { context = 4 }))
    assert.equal(1, data.open(file("x", "abcdef"), { context = 4 }).n_items)
  end)

  it("refuses half a 16-bit token", function()
    assert.matches("has 5 bytes, expected 16%-bit tokens",
      failure_of(data.open, file("x.bin", "abcde"), { context = 1 }))
  end)

  it("refuses options that it does not know, naming the nearest", function()
    assert.has_error(function() data.open(file("x", "abcdef"), { context = 2, sede = 1 }) end)
    assert.has_error(function() data.open(file("x", "abcdef"), { context = 0 }) end)
    assert.has_error(function() data.open(file("x", "abcdef"), {}) end)
  end)

  it("refuses to decode what is no token", function()
    local set = data.open(file("x", "abcabc"), { context = 2 })
    assert.has_error(function() set:decode({ 3 }) end)
    assert.has_error(function() set:decode({ -1 }) end)
  end)
end)

describe("the default text", function()
  local directory

  before_each(function()
    directory = os.tmpname()
    os.remove(directory)
    lfs.mkdir(directory)
  end)

  after_each(function()
    os.execute("rm -rf '" .. directory .. "'")
  end)

  it("is the regular files of the first place that has enough, sorted by name", function()
    files.write(directory .. "/b", ("b"):rep(1500))
    files.write(directory .. "/a", ("a"):rep(1500))
    lfs.link("a", directory .. "/c", true)
    lfs.mkdir(directory .. "/d")
    local contents, name = text.default({ { "/none", "." }, { directory, "." } })
    assert.equal(("a"):rep(1500) .. ("b"):rep(1500), contents)
    assert.equal(directory, name)
  end)

  it("takes only names that match", function()
    files.write(directory .. "/a.md", ("a"):rep(3000))
    files.write(directory .. "/b.txt", ("b"):rep(3000))
    assert.equal(("a"):rep(3000), (text.default({ { directory, "%.md$" } })))
  end)

  it("is a failure where there is none, naming the way out", function()
    local ok, err = pcall(text.default, { { directory, "." } })
    assert.is_false(ok)
    assert.equal("failure", err.kind)
    assert.matches("%-%-data FILE", err.message)
  end)

  it("is this machine's licences", function()
    if not files.is_directory(text.LICENCES) then
      pending("no " .. text.LICENCES .. " on this machine")
      return
    end
    local contents, name = text.default()
    assert.equal(text.LICENCES, name)
    assert.is_true(#contents > 100000)
    assert.is_true(data.open(nil, { context = 128 }).n_items > 100)
  end)
end)
