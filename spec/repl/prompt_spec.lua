-- The prompt's text between Lua and a line editor.
local ffi_neap = require("neap.ffi")
local failure_of = require("spec.support.failure_of")
local C, ffi = ffi_neap.C, ffi_neap.ffi

describe("the prompt's text", function()
  it("is a copy of what was set, for every editor", function()
    assert.equal(0, C.neap_prompt_set("tide> "))
    assert.equal("tide> ", ffi.string(C.neap_prompt(nil)))
  end)

  for name, text in pairs({ ["no text"] = false, ["64 bytes"] = ("x"):rep(64) }) do
    it("is not " .. name .. ", and stays what it was", function()
      assert.equal(0, C.neap_prompt_set(("y"):rep(63)))
      local message = failure_of("invalid argument", function()
        ffi_neap.check(C.neap_prompt_set(text or nil))
      end)
      assert.matches("at most 63 bytes", message)
      assert.equal(("y"):rep(63), ffi.string(C.neap_prompt(nil)))
    end)
  end
end)
