/* Names of places (stages, regions), interned for the life of the process: nodes and storages carry
 * numbers, messages carry names. */
#include <string.h>
#include <xxhash.h>

#include "core/core.h"

int neap__place;

static char **names; /* number - 1 */
static int *table;   /* open addressing: numbers, 0 = free; a power of two, at most half full */
static int n_names, cap_names, n_table;

const char *neap__place_name(int place) {
  return place >= 1 && place <= n_names ? names[place - 1] : "";
}

static int *find(const char *name, size_t length) {
  size_t mask = (size_t)n_table - 1;
  size_t at = (size_t)XXH3_64bits(name, length) & mask;
  while (table[at] != 0 && strcmp(names[table[at] - 1], name) != 0) {
    at = (at + 1) & mask;
  }
  return &table[at];
}

static int table_grow(void) {
  int n = n_table == 0 ? 256 : 2 * n_table, *old = table;
  int *made = neap__host_alloc((size_t)n * sizeof *made);
  if (made == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for more than %d places",
                       n_names);
  }
  memset(made, 0, (size_t)n * sizeof *made);
  table = made;
  n_table = n;
  for (int i = 0; i < n_names; i++) {
    *find(names[i], strlen(names[i])) = i + 1;
  }
  neap__host_free(old);
  return NEAP_OK;
}

int neap_place_find(const char *name) {
  enum { MOST = 1 << 22 };
  size_t length = name == NULL ? 0 : strlen(name);
  if (length == 0) {
    return neap__error(NEAP_ERR_INVALID, "place: expected a name");
  }
  if (n_table > 0 && *find(name, length) != 0) {
    return *find(name, length);
  }
  if (n_names == MOST) {
    return 0; /* messages go without a place, nothing else changes */
  }
  int code = 2 * (n_names + 1) > n_table ? table_grow() : NEAP_OK;
  code = code < 0 ? code : neap__host_grow((void **)&names, &cap_names, n_names + 1, sizeof *names);
  char *copy = code < 0 ? NULL : neap__host_alloc(length + 1);
  if (copy == NULL) {
    return code < 0 ? code
                    : neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a place's "
                                                   "name");
  }
  memcpy(copy, name, length + 1);
  names[n_names++] = copy;
  *find(copy, length) = n_names;
  return n_names;
}

int neap_place_select(int place) {
  int previous = neap__place;
  if (place < 0 || place > n_names) {
    return neap__error(NEAP_ERR_INVALID, "place: there is no number %d", place);
  }
  neap__place = place;
  return previous;
}
