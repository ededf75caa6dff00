-- Files: whole or not at all, directories, numbers, links.
local fail = require("neap.fail")
local files = require("neap.files")
local lfs = require("lfs")

describe("files", function()
  local directory

  before_each(function()
    directory = os.tmpname()
    os.remove(directory)
    lfs.mkdir(directory)
  end)

  after_each(function()
    os.execute("rm -rf '" .. directory .. "'")
  end)

  local function names()
    local list = {}
    for name in lfs.dir(directory) do
      if name ~= "." and name ~= ".." then list[#list + 1] = name end
    end
    table.sort(list)
    return list
  end

  local function failure_of(fn, ...)
    local ok, err = pcall(fn, ...)
    assert.is_false(ok)
    assert.is_true(fail.is(err))
    return err
  end

  describe("read", function()
    it("gives all bytes back, zeros too", function()
      local text = "a\0b\r\n\255"
      files.write(directory .. "/x", text)
      assert.equal(text, files.read(directory .. "/x"))
    end)

    it("gives an empty file as an empty string", function()
      files.write(directory .. "/x", "")
      assert.equal("", files.read(directory .. "/x"))
    end)

    it("names the path and the reason of a missing file", function()
      local text, message = files.read(directory .. "/none")
      assert.is_nil(text)
      assert.equal("cannot read '" .. directory .. "/none': No such file or directory", message)
    end)

    it("says that a directory is none", function()
      local text, message = files.read(directory)
      assert.is_nil(text)
      assert.equal("cannot read '" .. directory .. "': it is a directory, expected a file", message)
    end)

    it("does not read devices, which have no end", function()
      assert.is_nil((files.read("/dev/zero")))
    end)

    it("refuses more than the most it was told", function()
      files.write(directory .. "/x", "12345")
      assert.equal("12345", files.read(directory .. "/x", 5))
      assert.is_nil((files.read(directory .. "/x", 4)))
    end)
  end)

  describe("write", function()
    it("replaces what was there and leaves no other file", function()
      files.write(directory .. "/x", ("long "):rep(1000))
      files.write(directory .. "/x", "short")
      assert.equal("short", files.read(directory .. "/x"))
      assert.same({ "x" }, names())
    end)

    it("makes files with the permissions that the user's mask leaves", function()
      files.write(directory .. "/x", "text")
      io.open(directory .. "/y", "w"):close()
      assert.equal(lfs.attributes(directory .. "/y", "permissions"),
        lfs.attributes(directory .. "/x", "permissions"))
    end)

    it("raises input/output where the directory is missing", function()
      local err = failure_of(files.write, directory .. "/none/x", "text")
      assert.equal("input/output", err.kind)
      assert.matches("none/x.*No such file or directory", err.message)
    end)

    it("leaves the old file and no temp file when it cannot replace it", function()
      lfs.mkdir(directory .. "/x")
      files.write(directory .. "/x/y", "old")
      local err = failure_of(files.write, directory .. "/x", "text")
      assert.equal("input/output", err.kind)
      assert.same({ "x" }, names())
      assert.equal("old", files.read(directory .. "/x/y"))
    end)

    it("reports a full device", function()
      local err = failure_of(files.append, "/dev/full", "line\n")
      assert.matches("No space left on device", err.message)
    end)

    it("takes over the temp file of a process that died with our number", function()
      local pid = io.open("/proc/self/stat"):read("*n")
      local torn = io.open(directory .. "/x.tmp-" .. pid, "w")
      torn:write("torn")
      torn:close()
      files.write(directory .. "/x", "whole")
      assert.same({ "x" }, names())
    end)
  end)

  describe("append", function()
    it("adds whole lines", function()
      files.append(directory .. "/log", "one\n")
      files.append(directory .. "/log", "two\nthree\n")
      assert.equal("one\ntwo\nthree\n", files.read(directory .. "/log"))
    end)

    it("refuses what does not end in a newline, and adds nothing", function()
      files.append(directory .. "/log", "one\n")
      assert.equal("invalid argument", failure_of(files.append, directory .. "/log", "two").kind)
      assert.equal("invalid argument", failure_of(files.append, directory .. "/log", "").kind)
      assert.equal("one\n", files.read(directory .. "/log"))
    end)
  end)

  describe("directories", function()
    it("are made with those above them, again without complaint", function()
      files.make_directory(directory .. "/a/b/c")
      files.make_directory(directory .. "/a/b/c")
      assert.is_true(files.is_directory(directory .. "/a/b/c"))
    end)

    it("are not made through a file", function()
      files.write(directory .. "/a", "text")
      local err = failure_of(files.make_directory, directory .. "/a/b")
      assert.equal("input/output", err.kind)
      assert.matches("cannot make the directory", err.message)
    end)

    it("get the least free number", function()
      assert.equal(directory .. "/small-1", files.make_numbered_directory(directory, "small"))
      assert.equal(directory .. "/small-2", files.make_numbered_directory(directory, "small"))
      assert.equal(directory .. "/other-1", files.make_numbered_directory(directory, "other"))
      lfs.rmdir(directory .. "/small-1")
      assert.equal(1, files.least_free_number(directory, "small"))
      assert.equal(directory .. "/small-1", files.make_numbered_directory(directory, "small"))
      assert.equal(3, files.least_free_number(directory, "small"))
    end)

    it("are not numbered where none can be made", function()
      local err = failure_of(files.make_numbered_directory, "/proc", "small")
      assert.equal("input/output", err.kind)
      assert.matches("cannot make the directory '/proc/small%-1'", err.message)
    end)

    it("do not get the number of a link that leads nowhere", function()
      lfs.link("nowhere", directory .. "/small-1", true)
      assert.equal(directory .. "/small-2", files.make_numbered_directory(directory, "small"))
    end)
  end)

  describe("realpath", function()
    it("takes out links, dots and double slashes", function()
      files.make_directory(directory .. "/a/b")
      lfs.link("a/b", directory .. "/short", true)
      lfs.link(directory .. "/short/../x", directory .. "/absolute", true)
      local root = files.realpath(directory)
      assert.equal(root .. "/a/b/y", files.realpath(directory .. "//./short/y"))
      assert.equal(root .. "/a/x", files.realpath(directory .. "/absolute"))
      assert.equal("/", files.realpath("/.."))
    end)

    it("starts relative paths at the current directory", function()
      assert.equal(files.realpath(lfs.currentdir() .. "/lua"), files.realpath("lua"))
    end)

    it("refuses links that lead in a circle", function()
      lfs.link("b", directory .. "/a", true)
      lfs.link("a", directory .. "/b", true)
      local path, message = files.realpath(directory .. "/a")
      assert.is_nil(path)
      assert.matches("more than 40 links", message)
    end)
  end)

  it("give the last part of a path, without the extension when asked", function()
    assert.equal("small.lua", files.basename("examples/configs/small.lua"))
    assert.equal("small", files.basename("examples/configs/small.lua", ".lua"))
    assert.equal("small", files.basename("small/"))
    assert.equal(".lua", files.basename("a/.lua", ".lua"))
  end)
end)
