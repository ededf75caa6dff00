local plans = require("neap.checkpoint.plan")
local failure_of = require("spec.support.failure_of")

-- two measured stages: h is new, v a view of it; the second one passes v on and makes a loss
local function chain()
  return {
    stages = {
      {
        name = "body", out_bytes = 100, saved_bytes = 7, forward_extra_bytes = 0,
        backward_extra_bytes = 0, forward_cost = 5, backward_cost = 9, measured = true,
        forward_peak_bytes = { 130, 131, 140 }, backward_peak_bytes = 120, grad_bytes = 0,
        out = { { source = -1, bytes = 100 }, { source = -2 } }, saves_in = 1, saves_out = 2,
      },
      {
        name = "head", out_bytes = 4, saved_bytes = 30, forward_extra_bytes = 0,
        backward_extra_bytes = 0, forward_cost = 3, backward_cost = 6, measured = true,
        forward_peak_bytes = { 50, 50, 60 }, backward_peak_bytes = 110, grad_bytes = 100,
        out = { { source = 1 }, { source = -1, bytes = 4 } }, saves_in = 0, saves_out = 0,
      },
    },
  }
end

local function line(plan, profile)
  local words = {}
  for a, moment in ipairs(plans.simulate(plan, profile).timeline) do
    words[a] = moment.live_bytes .. "/" .. moment.peak_bytes
  end
  return table.concat(words, " ")
end

describe("the simulator on measured stages", function()
  it("counts a storage once, however many tensors and records hold it", function()
    local profile = chain()
    local plan = plans.build("none", profile)
    -- f0e: h 100 + r 7. f1e: + loss 4 + r 30 + gradient 4. free x2: loss goes, v is held elsewhere.
    -- b1: + 100 - r 30 - 4. free x1: the record of the first stage still saves the view. b0: all.
    assert.equal("107/140 145/167 141/145 207/251 207/207 0/327", line(plan, profile))
    local found = plans.simulate(plan, profile)
    assert.equal(327, found.peak_bytes)
    assert.equal(6, found.peak_action)
    assert.equal(23, found.cost)
    assert.equal(2, found.forwards)
  end)

  it("lets a passed-on storage live as long as the later boundary", function()
    local profile = chain()
    profile.stages[1].saves_out = 0
    local plan = {
      actions = {
        { op = "forward", stage = 0, keep = "nothing" },
        { op = "forward", stage = 1, keep = "nothing" },
        { op = "forward", stage = 0, keep = "input" },
        { op = "free", what = "x", stage = 2 },
        { op = "forward", stage = 1, keep = "everything" },
        { op = "free", what = "x", stage = 2 },
        { op = "backward", stage = 1 },
        { op = "free", what = "x", stage = 1 },
        { op = "forward", stage = 0, keep = "everything" },
        { op = "free", what = "x", stage = 1 },
        { op = "backward", stage = 0 },
      },
    }
    -- after action 2, x_1 is dropped, but x_2 passes its view on: 100 + loss 4 + gradient 4. The
    -- second h is another storage.
    assert.equal("100/130 108/150 208/239 104/208 138/164 134/138 200/244 100/200 207/240 107/207 "
      .. "0/227", line(plan, profile))
  end)

  it("takes the early-stopped peak and cost where a recomputation meets its backward", function()
    local profile = chain()
    local body = profile.stages[1]
    body.stops_early, body.recompute_cost, body.recompute_extra_bytes = true, 2, 0
    body.forward_peak_bytes[4], body.saves_out = 17, 0
    local plan = plans.build("by_name:body", profile)
    -- no h is made again: 7 of records beside the gradient of 100
    assert.equal("100/131 138/160 134/138 200/244 100/200 107/117 0/227", line(plan, profile))
    assert.equal(5 + 2 + 3 + 9 + 6, plans.simulate(plan, profile).cost)
  end)

  it("refuses measurements that make no sense", function()
    local function refused(kind, change)
      local profile = chain()
      change(profile.stages[2])
      return failure_of(kind, plans.build, "none", profile)
    end
    local function usage(change) return refused("usage", change) end
    assert.matches("forward_peak_bytes is nil",
      usage(function(s) s.forward_peak_bytes = nil end))
    assert.matches("field 'forward_peak_bytes%[2%]' is missing",
      usage(function(s) s.forward_peak_bytes = { 1 } end))
    assert.matches("backward_peak_bytes is %-1", usage(function(s) s.backward_peak_bytes = -1 end))
    assert.matches("field 'grad_bytes' is missing", usage(function(s) s.grad_bytes = nil end))
    assert.matches("1 to 8", usage(function(s) s.out = {} end))
    assert.matches("source of output 0 is nil", usage(function(s) s.out = { {} } end))
    assert.matches("'bytes of output 0' is missing", usage(function(s)
      s.out = { { source = -1 } }
    end))
    assert.matches("saves_in is 256", usage(function(s) s.saves_in = 256 end))
    assert.matches("saves_out is nil", usage(function(s) s.saves_out = nil end))
    local function invalid(change) return refused("invalid argument", change) end
    assert.matches("output 0 has source 2, allowed are %-1, inputs 0..1",
      invalid(function(s) s.out[1].source = 2 end))
    assert.matches("output 0 has source %-2", invalid(function(s) s.out[1].source = -2 end))
    assert.matches("saves_in 4 or saves_out 0", invalid(function(s) s.saves_in = 4 end))
    assert.matches("saves_in 0 or saves_out 4", invalid(function(s) s.saves_out = 4 end))
  end)
end)
