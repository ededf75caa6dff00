/* The prompt of a line editor. libedit asks for it through a C function, and C never calls Lua: so
 * Lua sets the text before each line, and this hands it out.
 */
#include <string.h>

#include "backend.h"
#include "core/host.h"

static char prompt[64];

int neap_prompt_set(const char *text) {
  if (text == NULL || strlen(text) >= sizeof prompt) {
    return neap__error(NEAP_ERR_INVALID, "prompt: expected a text of at most %zu bytes",
                       sizeof prompt - 1);
  }
  memcpy(prompt, text, strlen(text) + 1);
  return NEAP_OK;
}

char *neap_prompt(void *editor) {
  (void)editor;
  return prompt;
}
