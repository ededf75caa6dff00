-- Wrong values by kind of argument, and the calls of the public Lua API to spoil with them.
local ffi = require("ffi")

local M = {}

local NAN, INF = 0 / 0, math.huge
local NIL = {} -- stands for nil in a list
M.NIL = NIL

-- { what it is called, the value }
local foreign = { "a foreign cdata", ffi.new("int[4]") }
local text, table_, yes = { "text", "text" }, { "a table", {} }, { "true", true }
local no, fn = { "false", false }, { "a function", function() end }
local five, digits, empty = { "5", 5 }, { "digits", "3" }, { "an empty text", "" }
local int64 = { "an int64", 5LL }
local none = { "nil", NIL }
local half, minus, zero = { "1.5", 1.5 }, { "-1", -1 }, { "0", 0 }
local nan, inf, ninf = { "NaN", NAN }, { "inf", INF }, { "-inf", -INF }
local huge, odd = { "1e300", 1e300 }, { "2^53 + 2", 2 ^ 53 + 2 }

local no_number = { text, digits, table_, yes, no, fn, foreign, int64 }

local function join(...)
  local all = {}
  for _, list in ipairs({ ... }) do
    for _, item in ipairs(list) do all[#all + 1] = item end
  end
  return all
end

M.kinds = {
  number = join(no_number, { none }), -- any number will do
  number_or_nil = no_number,
  finite = join(no_number, { none, nan, inf, ninf }),
  finite_or_nil = join(no_number, { nan, inf, ninf }),
  size = join(no_number, { none, nan, inf, ninf, minus }), -- finite and not negative
  size_or_nil = join(no_number, { nan, inf, ninf, minus }),
  positive_or_nil = join(no_number, { nan, inf, ninf, minus, zero }),
  whole = join(no_number, { none, nan, inf, ninf, half, odd, huge }),
  count = join(no_number, { none, nan, inf, ninf, half, odd, huge, minus }),
  count_or_nil = join(no_number, { nan, inf, ninf, half, odd, huge, minus }),
  counting = join(no_number, { none, nan, inf, ninf, half, odd, huge, minus, zero }), -- from 1
  counting_or_nil = join(no_number, { nan, inf, ninf, half, odd, huge, minus, zero }),
  u64 = { text, digits, table_, yes, no, fn, foreign, none, nan, inf, ninf, half, odd, huge,
    minus, { "-1LL", -1LL } },
  flag = { text, digits, table_, fn, five, foreign, nan },
  fn = { none, text, table_, yes, no, five, foreign, nan },
  text = { none, table_, yes, no, fn, five, foreign, nan, { "a zero byte", "a\0b" } },
  list = { none, text, yes, no, fn, five, foreign, nan },
  table = { none, text, yes, no, fn, five, foreign, nan },
  options = { text, yes, no, fn, five, foreign, nan,
    { "an unknown option", { bogus = 1 } }, { "a numbered option", { 1 } },
    { "an option that is a table", { [{}] = 1 } } },
  self = { none, text, table_, yes, fn, five, foreign, nan },
  dims = { none, text, yes, fn, five, foreign, nan, { "a negative one", { -1 } },
    { "half a one", { 1.5 } }, { "NaN in it", { NAN } }, { "inf in it", { INF } },
    { "1e300 in it", { 1e300 } }, { "2^53 + 2 in it", { 2 ^ 53 + 2 } },
    { "text in it", { "2" } }, { "a table in it", { {} } }, { "false in it", { 2, false } },
    { "an int64 in it", { 2LL } }, { "a foreign cdata in it", { ffi.new("int[1]") } },
    { "seven", { 1, 1, 1, 1, 1, 1, 1 } }, { "an overflow", { 4194305, 4194305, 211106198978564 } },
    { "2^50 elements", { 2 ^ 50 } } },
}

local function plus(list, ...) return join(list, { ... }) end

M.kinds.probability = plus(M.kinds.size, { "1", 1 })
M.kinds.probability_or_nil = plus(M.kinds.size_or_nil, { "1", 1 })
M.kinds.heads = plus(M.kinds.counting, { "3", 3 })
M.kinds.dimension = plus(M.kinds.counting_or_nil, { "3", 3 })
M.kinds.name = plus(M.kinds.text, { "an unknown name", "nowhere" })
M.kinds.index = plus(M.kinds.u64, { "2", 2 })

--- The kinds of tensors, once there are tensors to give.
---@param w table  freed, null, i32, bf16, odd: tensors; see misuse_spec.lua
function M.add_tensors(w)
  local kinds = M.kinds
  local tensor = { none, text, table_, yes, no, fn, five, foreign, nan,
    { "a table with an id", { id = 1 } }, { "a freed tensor", w.freed } }
  kinds.tensor = tensor -- of any dtype, alone
  kinds.f32 = join(tensor, { { "an i32 tensor", w.i32 }, { "a bf16 tensor", w.bf16 } })
  kinds.beside = join(kinds.f32, -- with others on its device, of a shape that must fit them
    { { "a tensor of another device", w.null }, { "a tensor of another shape", w.odd } })
  kinds.beside_or_nil = {}
  for _, item in ipairs(kinds.beside) do
    if item ~= none then kinds.beside_or_nil[#kinds.beside_or_nil + 1] = item end
  end
  kinds.ids = join(tensor, { { "an f32 tensor", w.x }, { "a tensor of another device", w.null_ids },
    { "ids that are too large", w.large_ids }, { "negative ids", w.negative_ids } })
  kinds.handle = join(tensor) -- as self of a tensor's methods
  kinds.device = { text, table_, yes, no, fn, five, foreign, nan, { "a table with an id",
    { id = 0 } }, { "a closed device", w.closed } }
  kinds.module = join(kinds.self, { { "a class", w.neap.nn.GELU }, { "a tensor", w.x } })
  kinds.chain = join(kinds.self, { { "a class", w.neap.nn.GELU }, { "a layer", w.layer } })
  kinds.parameters = { none, text, yes, no, fn, five, foreign, nan, { "a model", w.model },
    { "numbers", { 1, 2 } }, { "tensors without names", { w.leaf } },
    { "no tensor in it", { { name = "a" } } }, { "text for a tensor",
      { { name = "a", tensor = "b" } } }, { "no name", { { tensor = w.leaf } } },
    { "a freed tensor in it", { { name = "a", tensor = w.freed } } },
    { "no leaf in it", { { name = "a", tensor = w.x } } },
    { "an i32 tensor in it", { { name = "a", tensor = w.i32 } } } }
  kinds.policy = { none, yes, no, fn, five, foreign, nan, text, table_, empty,
    { "every_n:0", "every_n:0" }, { "every_n:-1", "every_n:-1" }, { "every_n:1.5", "every_n:1.5" },
    { "every_n:nan", "every_n:nan" }, { "every_n:1e300", "every_n:1e300" },
    { "every_n:", "every_n:" }, { "none:1", "none:1" }, { "by_name:", "by_name:" },
    { "greedy:-1", "greedy:-1" }, { "greedy:x", "greedy:x" }, { "segments:0", "segments:0" },
    { "an unknown word", { policy = "evry_n" } }, { "no n", { policy = "every_n" } },
    { "n is text", { policy = "every_n", n = "2" } }, { "n is NaN", { policy = "every_n",
      n = NAN } }, { "n is 2^53 + 2", { policy = "every_n", n = 2 ^ 53 + 2 } },
    { "a key too many", { policy = "all", n = 2 } }, { "names is text", { policy = "by_name",
      names = "a" } }, { "a name is a number", { policy = "by_name", names = { 1 } } },
    { "budget is inf", { policy = "greedy", budget = INF } },
    { "budget is a table", { policy = "greedy", budget = {} } },
    { "policy is a number", { policy = 5 } } }
  local function actions(...) return { n_stages = 3, actions = { ... } } end
  kinds.plan = { text, yes, fn, five, foreign, nan, { "no actions", { actions = {} } },
    { "actions of a number", { n_stages = 3, actions = 5 } }, { "another chain's",
      { n_stages = 9, actions = {} } }, { "an empty one", actions() },
    { "numbers for actions", actions(1, 2) }, { "no op", actions({ stage = 0 }) },
    { "an unknown op", actions({ op = "forwards", stage = 0, keep = "nothing" }) },
    { "no stage", actions({ op = "forward", keep = "nothing" }) },
    { "stage is text", actions({ op = "forward", keep = "nothing", stage = "0" }) },
    { "stage is 1.5", actions({ op = "forward", keep = "nothing", stage = 1.5 }) },
    { "stage is -1", actions({ op = "forward", keep = "nothing", stage = -1 }) },
    { "stage is NaN", actions({ op = "forward", keep = "nothing", stage = NAN }) },
    { "stage is 2^53 + 2", actions({ op = "backward", stage = 2 ^ 53 + 2 }) },
    { "stage is past the end", actions({ op = "forward", keep = "nothing", stage = 3 }) },
    { "no keep", actions({ op = "forward", stage = 0 }) },
    { "an unknown keep", actions({ op = "forward", stage = 0, keep = "all" }) },
    { "free of the input", actions({ op = "free", what = "x", stage = 0 }) },
    { "free of something", actions({ op = "free", what = "g", stage = 0 }) },
    { "backward first", actions({ op = "backward", stage = 2 }) },
    { "forward without its input", actions({ op = "forward", stage = 1, keep = "everything" }) },
    { "no backward", actions({ op = "forward", stage = 0, keep = "everything" },
      { op = "forward", stage = 1, keep = "everything" },
      { op = "forward", stage = 2, keep = "everything" }) },
    { "a forward twice", actions({ op = "forward", stage = 0, keep = "everything" },
      { op = "forward", stage = 0, keep = "everything" }) },
    { "a backward twice", actions({ op = "forward", stage = 0, keep = "everything" },
      { op = "forward", stage = 1, keep = "everything" },
      { op = "forward", stage = 2, keep = "everything" }, { op = "backward", stage = 2 },
      { op = "backward", stage = 2 }) },
    { "a record freed before its backward", actions(
      { op = "forward", stage = 0, keep = "everything" },
      { op = "forward", stage = 1, keep = "everything" },
      { op = "forward", stage = 2, keep = "everything" }, { op = "free", what = "r", stage = 2 },
      { op = "backward", stage = 2 }) } }
  local function stages(...) return { stages = { ... } } end
  local function stage(field, value)
    local out = { name = "a", out_bytes = 8, saved_bytes = 8, forward_extra_bytes = 0,
      backward_extra_bytes = 0, forward_cost = 1, backward_cost = 1 }
    if field then out[field] = value end
    return out
  end
  kinds.profile = { none, text, table_, yes, no, fn, five, foreign, nan,
    { "no stages", stages() }, { "text for stages", { stages = "abc" } },
    { "a number for a stage", stages(1) }, { "an empty stage", stages({}) },
    { "two of a name", stages(stage(), stage()) } }
  for _, item in ipairs(join(no_number, { nan, inf, half, minus, huge, odd })) do
    if item ~= int64 then
      kinds.profile[#kinds.profile + 1] = { item[1] .. " saved bytes",
        stages(stage("saved_bytes", item[2])) }
    end
  end
  kinds.batch = { none, text, table_, yes, no, fn, five, foreign, nan }
  for _, item in ipairs(join(tensor, { { "an i32 tensor", w.i32 },
    { "a tensor of another device", w.null }, { "another shape", w.odd } })) do
    local inputs, targets = { targets = w.x }, { inputs = w.x }
    if item[2] ~= NIL then inputs.inputs, targets.targets = item[2], item[2] end
    kinds.batch[#kinds.batch + 1] = { item[1] .. " as inputs", inputs }
    kinds.batch[#kinds.batch + 1] = { item[1] .. " as targets", targets }
  end
end

return M
