-- Sanitized builds guard the blocks that the core cuts out of a segment (src/cpu/guard.c). That and
-- a small program are compiled alone here: in the library itself there is no overrun to show.
local script = require("spec.support.script")

local PROGRAM = [[
#include "cpu/cpu.h"
#include <stdlib.h>
#include <string.h>

/* as a kernel without instrumentation writes */
__attribute__((no_sanitize_address)) static void write_unseen(volatile char *at) { *at = 1; }

int main(int argc, char **argv) {
  char *segment = aligned_alloc(64, 256);
  const char *what = argc > 1 ? argv[1] : "";
  neap__cpu_guard(NULL, segment, 0, 256);
  neap__cpu_guard(NULL, segment, 10, 128);
  volatile char *block = segment;
  float number;
  memcpy(&number, segment, 4);
  if (number == number) {
    return 2;
  }
  memset(segment, 0, 10);
  if (strcmp(what, "overrun") == 0) {
    block[10] = 1;
  } else if (strcmp(what, "unseen overrun") == 0) {
    write_unseen(block + 127);
  } else if (strcmp(what, "unseen write to free memory") == 0) {
    write_unseen(block + 200);
  }
  neap__cpu_guard(NULL, segment, 0, 128);
  if (strcmp(what, "read of freed memory") == 0) {
    return block[0];
  }
  neap__cpu_unguard(segment, 256);
  memset(segment, 0, 256);
  free(segment);
  return 0;
}
]]

describe("the guard of device memory in sanitized builds", function()
  local directory, is_built

  setup(function()
    directory = script.directory()
    script.write(directory .. "/program.c", PROGRAM)
    is_built = os.execute(string.format("cd %s && LD_PRELOAD= cc -std=gnu11 -O1 -DNEAP_GUARD "
      .. "-fsanitize=address -Isrc src/cpu/guard.c %s/program.c -o %s/program 2>/dev/null",
      script.root(), directory, directory)) == 0
  end)
  teardown(function() script.remove(directory) end)

  local function run(what)
    -- the specs' own sanitizer, preloaded, is not for this process
    local pipe = io.popen(string.format("ASAN_OPTIONS= LD_PRELOAD= %s/program '%s' 2>&1; "
      .. "echo status $?", directory, what))
    local text = pipe:read("*a")
    pipe:close()
    return text
  end

  local function each(name, fn)
    it(name, function()
      if not is_built then
        pending("this compiler has no AddressSanitizer")
        return
      end
      fn()
    end)
  end

  each("lets a block be used, and gives a segment back as it was", function()
    assert.equal("status 0\n", run(""))
  end)

  for _, what in ipairs({ "overrun", "read of freed memory" }) do
    each("reports the " .. what .. " where it happens", function()
      assert.matches("AddressSanitizer: use%-after%-poison.*#0 0x%x+ in main .*status 1\n$",
        run(what))
    end)
  end

  for _, what in ipairs({ "unseen overrun", "unseen write to free memory" }) do
    each("reports an " .. what .. " when the memory changes hands", function()
      assert.matches("AddressSanitizer: unknown%-crash.*status 1\n$", run(what))
    end)
  end
end)
