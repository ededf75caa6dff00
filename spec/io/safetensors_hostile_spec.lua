-- Files made to break a reader. Each is refused by one sentence that names the file and, where it
-- is about one, the tensor; nothing crashes, hangs or stays behind.
local failure_of = require("spec.support.failure_of")
local make = require("spec.support.safetensors")
local neap = require("neap")
local safetensors = require("neap.safetensors")
local script = require("spec.support.script")
local f, e, length = make.file, make.entry, make.length

local function one(dtype, shape, offsets) return "{" .. e("w", dtype, shape, offsets) .. "}" end
local function meta(text, more)
  return '{"__metadata__":' .. text .. (more and "," .. more or "") .. "}"
end
local OK = e("w", "F32", "[1]", "[0,4]")

-- what it is, its bytes, what the sentence has to say
local cases = {
  { "no bytes", "", "has 0 bytes, expected at least the 8" },
  { "1 byte", "{", "has 1 bytes" },
  { "7 bytes", ("\0"):rep(7), "has 7 bytes" },
  { "a header of 0 bytes", length(0), "found the end of the header" },
  { "a header of 0 bytes before data", length(0) .. "{}", "found the end of the header" },
  { "a header one byte longer than the file", length(3) .. "{}", "3 bytes, expected at most 2" },
  { "a header of 100,000,001 bytes", length(100000001) .. "{}", "has 100000001 bytes" },
  { "a header of 2^32 bytes", length(2 ^ 32) .. "{}", "has 4294967296 bytes" },
  { "a header of 2^63 bytes", length(0, 2 ^ 31) .. "{}", "has 9223372036854775808 bytes" },
  { "a header of 2^64 - 8 bytes", length(2 ^ 32 - 8, 2 ^ 32 - 1) .. "{}", "18446744073709551608" },
  { "a header of 2^64 - 1 bytes", length(2 ^ 32 - 1, 2 ^ 32 - 1) .. "{}", "18446744073709551615" },
  { "a header that ends in its object", f('{"w":'), "found the end of the header" },
  { "a header that is an array", f("[]"), "expected '{', found '['" },
  { "a header that is null", f("null"), "expected '{', found 'null'" },
  { "a header that is a string", f('"a"'), "expected '{'" },
  { "white space before the header", f(" {}"), "expected '{', found 0x20" },
  { "a byte order mark", f("\239\187\191{}"), "expected '{', found 0xef" },
  { "zeros as header", f(("\0"):rep(64)), "expected '{', found 0x00" },
  { "a newline after the header", f("{}\n"), "expected only spaces" },
  { "zeros after the header", f("{}\0\0"), "expected only spaces" },
  { "a second object in the header", f("{}{}"), "expected only spaces" },
  { "a comma too many", f("{" .. OK .. ",}", 4), "expected a tensor's name in quotes, found '}'" },
  { "a comma too few", f("{" .. OK .. OK:gsub("w", "v") .. "}", 4), "expected ',' or '}'" },
  { "a comma alone", f("{,}"), "expected a tensor's name in quotes" },
  { "a name without quotes", f("{w:{}}"), "expected a tensor's name in quotes, found 'w'" },
  { "a name in single quotes", f("{'w':{}}"), "expected a tensor's name in quotes" },
  { "a comment", f("{/* */}"), "expected a tensor's name in quotes" },
  { "no colon", f('{"w"{}}'), "expected ':'" },
  { "an entry that is an array", f('{"w":[]}'), "tensor 'w': expected an object" },
  { "an entry that is null", f('{"w":null}'), "tensor 'w': expected an object" },
  { "an entry that is a string", f('{"w":"F32"}'), "tensor 'w': expected an object" },
  { "an empty entry", f('{"w":{}}'), "tensor 'w': it has no dtype" },
  { "no dtype", f('{"w":{"shape":[1],"data_offsets":[0,4]}}', 4), "it has no dtype" },
  { "no shape", f('{"w":{"dtype":"F32","data_offsets":[0,4]}}', 4), "it has no shape" },
  { "no offsets", f('{"w":{"dtype":"F32","shape":[1]}}', 4), "it has no data_offsets" },
  { "an unknown key", f('{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}', 4),
    "unknown key 'x'" },
  { "a key in capitals", f('{"w":{"DTYPE":"F32","shape":[1],"data_offsets":[0,4]}}', 4),
    "unknown key 'DTYPE'" },
  { "a dtype twice", f('{"w":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4),
    "'dtype' is there twice" },
  { "a dtype twice, once escaped", f('{"w":{"dtype":"F32","\\u0064type":"F32","shape":[1],'
    .. '"data_offsets":[0,4]}}', 4), "'dtype' is there twice" },
  { "offsets twice", f('{"w":{"data_offsets":[0,4],"dtype":"F32","shape":[1],'
    .. '"data_offsets":[0,4]}}', 4), "'data_offsets' is there twice" },
  { "a name twice", f("{" .. OK .. "," .. e("w", "F32", "[1]", "[4,8]") .. "}", 8),
    "tensor 'w': its name is there twice" },
  { "a name twice, once escaped", f("{" .. OK .. "," .. e("\\u0077", "F32", "[1]", "[4,8]") .. "}",
    8), "tensor 'w': its name is there twice" },
  { "an unknown dtype", f(one("F31", "[1]", "[0,4]"), 4), "unknown dtype 'F31'" },
  { "a dtype in small letters", f(one("f32", "[1]", "[0,4]"), 4), "unknown dtype 'f32'" },
  { "a dtype that is a number", f('{"w":{"dtype":32,"shape":[1],"data_offsets":[0,4]}}', 4),
    "expected a dtype in quotes, found '32'" },
  { "an empty dtype", f(one("", "[1]", "[0,4]"), 4), "unknown dtype ''" },
  { "half a byte of data", f(one("F4", "[3]", "[0,1]"), 1), "expected 1 and a part" },
  { "a shape that is a number", f(one("F32", "1", "[0,4]"), 4), "expected a list of dimensions" },
  { "a shape in a shape", f(one("F32", "[[1]]", "[0,4]"), 4), "found '['" },
  { "a dimension that is a string", f(one("F32", '["1"]', "[0,4]"), 4), "found '\"'" },
  { "a negative dimension", f(one("F32", "[-1]", "[0,4]"), 4), "from 0 to 2^53, found '-1'" },
  { "two negative dimensions", f(one("F32", "[-1,-1]", "[0,4]"), 4), "found '-1'" },
  { "a fractional dimension", f(one("F32", "[1.5]", "[0,4]"), 4), "found '1.5'" },
  { "a dimension of 1.0", f(one("F32", "[1.0]", "[0,4]"), 4), "found '1.0'" },
  { "a dimension of 1e0", f(one("F32", "[1e0]", "[0,4]"), 4), "found '1e0'" },
  { "a dimension of 1e30", f(one("F32", "[1e30]", "[0,4]"), 4), "found '1e30'" },
  { "a dimension of +1", f(one("F32", "[+1]", "[0,4]"), 4), "found '+1'" },
  { "a dimension of 01", f(one("F32", "[01]", "[0,4]"), 4), "found '01'" },
  { "a dimension of 0x1", f(one("F32", "[0x1]", "[0,4]"), 4), "found 'x1'" },
  { "a dimension that is true", f(one("F32", "[true]", "[0,4]"), 4), "found 'true'" },
  { "a dimension of NaN", f(one("F32", "[NaN]", "[0,4]"), 4), "found 'NaN'" },
  { "a dimension of 2^53 + 1", f(one("F32", "[9007199254740993]", "[0,4]"), 4), "to 2^53, found" },
  { "a dimension of 2^64 + 1", f(one("F32", "[18446744073709551617]", "[0,4]"), 4), "to 2^53" },
  { "a dimension of 400 digits", f(one("F32", "[" .. ("1"):rep(400) .. "]", "[0,4]"), 4),
    "to 2^53, found '1111" },
  { "dimensions that wrap to 4", f(one("F32", "[4194305,4194305,211106198978564]", "[0,16]"), 16),
    "the product of its 3 dimensions overflows" },
  { "dimensions that wrap to 0", f(one("F32", "[4294967296,4294967296]", "[0,0]")),
    "the product of its 2 dimensions overflows" },
  { "bytes that wrap to 0", f(one("F32", "[2147483648,4294967296]", "[0,0]")), "overflows" },
  { "65 dimensions", f(one("F32", "[" .. ("1,"):rep(64) .. "1]", "[0,4]"), 4),
    "more than 64 dimensions" },
  { "a comma at a shape's end", f(one("F32", "[1,]", "[0,4]"), 4), "found ']'" },
  { "a shape that does not end", f('{"w":{"shape":[1'), "found the end of the header" },
  { "one offset", f(one("F32", "[1]", "[4]"), 4), "expected ',' and a second offset" },
  { "three offsets", f(one("F32", "[1]", "[0,4,4]"), 4), "expected ']' after two offsets" },
  { "no offset", f(one("F32", "[1]", "[]"), 4), "found ']'" },
  { "an offset that is a string", f(one("F32", "[1]", '["0",4]'), 4), "found '\"'" },
  { "a negative offset", f(one("F32", "[1]", "[-4,0]"), 4), "found '-4'" },
  { "a begin after the end", f(one("F32", "[1]", "[4,0]"), 4), "begins at 4 and ends before" },
  { "an end beyond the file", f(one("F32", "[2]", "[0,8]"), 4), "ends at 8, expected at most" },
  { "an end of 2^53", f(one("U8", "[9007199254740992]", "[0,9007199254740992]"), 4),
    "ends at 9007199254740992" },
  { "an end of 2^64", f(one("F32", "[1]", "[0,18446744073709551616]"), 4), "to 2^53" },
  { "fewer bytes than the shape has", f(one("F32", "[2]", "[0,4]"), 4),
    "has 4 bytes, expected 8 for 2 elements of F32" },
  { "more bytes than the shape has", f(one("F32", "[1]", "[0,8]"), 8), "has 8 bytes, expected 4" },
  { "bytes for an empty shape", f(one("F32", "[0]", "[0,4]"), 4), "has 4 bytes, expected 0" },
  { "no bytes for a scalar", f(one("F32", "[]", "[0,0]")), "0 bytes, expected 4 for 1 elements" },
  { "data before the first tensor", f(one("F32", "[1]", "[4,8]"), 8), "begins at 4, expected 0" },
  { "data after the last tensor", f("{" .. OK .. "}", 5), "has 5 data bytes, expected the 4" },
  { "data without a tensor", f("{}", 1), "has 1 data bytes, expected the 0" },
  { "a hole", f("{" .. OK .. "," .. e("v", "F32", "[1]", "[8,12]") .. "}", 12),
    "tensor 'v': its data begins at 8, expected 4" },
  { "a hole in another order", f("{" .. e("v", "F32", "[1]", "[8,12]") .. "," .. OK .. "}", 12),
    "tensor 'v': its data begins at 8, expected 4" },
  { "two tensors of the same data", f("{" .. OK .. "," .. e("v", "F32", "[1]", "[0,4]") .. "}", 4),
    "tensor 'v': its data begins at 0, where that of another" },
  { "an overlap", f("{" .. e("a", "F32", "[2]", "[0,8]") .. "," .. e("v", "F32", "[2]", "[4,12]")
    .. "}", 12), "tensor 'v': its data begins at 4" },
  { "a tensor inside another", f("{" .. e("a", "F32", "[3]", "[0,12]") .. ","
    .. e("v", "F32", "[1]", "[4,8]") .. "}", 12), "tensor 'v': its data begins at 4" },
  { "an empty tensor inside another", f("{" .. e("a", "F32", "[2]", "[0,8]") .. ","
    .. e("v", "F32", "[0]", "[4,4]") .. "}", 8), "tensor 'v': it is empty and lies at 4" },
  { "an overlap that hides a hole", f("{" .. e("a", "U8", "[8]", "[0,8]") .. ","
    .. e("b", "U8", "[6]", "[2,8]") .. "}", 14), "begins at 2, expected nothing before" },
  { "metadata that is an array", f(meta("[]")), "expected an object as __metadata__" },
  { "metadata that is null", f(meta("null")), "expected an object as __metadata__" },
  { "metadata that is a tensor", f("{" .. e("__metadata__", "F32", "[1]", "[0,4]") .. "}", 4),
    "expected a string as value in __metadata__, found '['" },
  { "metadata with a number", f(meta('{"step":3}')), "expected a string as value in __metadata__" },
  { "metadata with null", f(meta('{"step":null}')), "found 'null'" },
  { "metadata in metadata", f(meta('{"a":{"b":"c"}}')), "found '{'" },
  { "a metadata key twice", f(meta('{"a":"b","c":"d","a":"b"}')), "the key 'a' of __metadata__" },
  { "metadata twice", f(meta("{}", '"__metadata__":{}')), "__metadata__ is there twice" },
  { "10,001 metadata keys", f(meta("{" .. (function()
    local list = {}
    for i = 1, 10001 do list[i] = '"' .. i .. '":""' end
    return table.concat(list, ",")
  end)() .. "}")), "more than 10000 keys" },
  { "a lone surrogate", f('{"\\ud800":{}}'), "expected both halves of a surrogate pair" },
  { "a low surrogate first", f('{"\\udc00\\ud800":{}}'), "expected both halves" },
  { "two high surrogates", f('{"\\ud800\\ud800":{}}'), "expected both halves" },
  { "an escaped zero", f('{"a\\u0000b":{}}'), "expected a string without \\u0000" },
  { "an unknown escape", f('{"\\x41":{}}'), "expected an escape that JSON knows" },
  { "an escape of three digits", f('{"\\u12g4":{}}'), "expected four hexadecimal digits" },
  { "an escape that the header cuts", f('{"\\u00'), "expected four hexadecimal digits" },
  { "a backslash at the end", f('{"\\'), "expected an escape" },
  { "a raw newline in a name", f('{"a\nb":{}}'), "expected a string without control characters" },
  { "a raw zero in a name", f('{"a\0b":{}}'), "expected a string without control characters" },
  { "a name that does not end", f('{"abc'), "found the end of the header" },
  { "bad UTF-8: a lone tail", f('{"\128":{}}'), "expected valid UTF-8, found 0x80" },
  { "bad UTF-8: overlong", f('{"\192\175":{}}'), "expected valid UTF-8, found 0xc0" },
  { "bad UTF-8: overlong in three", f('{"\224\128\175":{}}'), "expected valid UTF-8" },
  { "bad UTF-8: a surrogate", f('{"\237\160\128":{}}'), "expected valid UTF-8" },
  { "bad UTF-8: beyond U+10FFFF", f('{"\244\144\128\128":{}}'), "expected valid UTF-8" },
  { "bad UTF-8: five bytes", f('{"\248\136\128\128\128":{}}'), "expected valid UTF-8" },
  { "bad UTF-8: cut by the header", f('{"\240\159'), "expected valid UTF-8" },
  { "bad UTF-8 in metadata", f(meta('{"k":"\255"}')), "expected valid UTF-8, found 0xff" },
  { "bad UTF-8 outside strings", f('{\255}'), "found 0xff" },
  { "a name of terminal codes", f('{"\\u001b[2J\\u0007\\n":{}}'), "tensor '?[2J??'" },
  { "a name of 100,000 bytes", f('{"' .. ("n"):rep(100000) .. '":{}}'), "nnn...'" },
  { "arrays a million deep", f(("["):rep(1e6)), "expected '{'" },
  { "objects a million deep", f(('{"a":'):rep(1e6)), "unknown key 'a'" },
  { "a shape a million deep", f('{"w":{"shape":' .. ("["):rep(1e6)), "found '['" },
  { "metadata a million deep", f('{"__metadata__":' .. ('{"a":'):rep(1e6)), "found '{'" },
}

describe("a hostile safetensors file with", function()
  local directory, path

  setup(function()
    neap.device("cpu")
    directory = script.directory()
    path = directory .. "/bad.safetensors"
  end)
  teardown(function() script.remove(directory) end)

  for _, case in ipairs(cases) do
    it(case[1] .. " is refused by one sentence", function()
      collectgarbage()
      local before, start = make.n_descriptors(), os.clock()
      local opened, message = make.try(path, case[2])
      assert.is_false(opened)
      assert.is_truthy(message:find(case[3], 1, true), message)
      assert.is_true(os.clock() - start < 20) -- a hang, not speed
      assert.equal(before, make.n_descriptors())
    end)
  end

  it("a path that is no regular file is refused and not waited for", function()
    local pipe = directory .. "/pipe"
    os.execute("mkfifo '" .. pipe .. "'")
    for _, other in ipairs({ pipe, directory, "/dev/zero", directory .. "/none" }) do
      assert.is_truthy(failure_of("input/output", safetensors.open, other):find(other, 1, true))
    end
    failure_of("invalid argument", safetensors.open, "")
    failure_of("invalid argument", safetensors.open, nil)
  end)
end)
