-- busted's plain output, then one last line that every CI reader knows: "N passed, N failed".
return function(options)
  local busted = require("busted")
  local handler = require("busted.outputHandlers.plainTerminal")(options)

  -- the runner's own status wraps at 256 failures and calls a run without specs a success
  busted.subscribe({ "exit" }, function()
    local passed = handler.successesCount
    local failed = handler.failuresCount + handler.errorsCount
    local pending = handler.pendingsCount
    io.write(pending > 0 and string.format("\n%d pending, named above\n", pending) or "\n")
    io.write(string.format("%d passed, %d failed\n", passed, failed))
    io.flush()
    if failed > 0 or passed == 0 then os.exit(1, true) end
    return nil, true
  end)

  return handler
end
