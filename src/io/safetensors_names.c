/* A set of names: open addressing with linear probing, at most three quarters full. */
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "core/host.h"
#include "io/safetensors.h"

/* a place's lower bits: enough for NEAP__ST_MAX_TENSORS and one */
#define NUMBER UINT32_C(0xfffff)

_Static_assert(NEAP__ST_MAX_TENSORS < NUMBER && NEAP__ST_MAX_METADATA < NUMBER, "bits of a number");

int neap__st_names_init(neap__st_names *names, size_t n,
                        const char *(*name)(const void *owner, uint32_t i), const void *owner) {
  size_t capacity = 16;
  while (capacity / 4 * 3 < n) {
    capacity *= 2;
  }
  *names = (neap__st_names){.capacity = capacity, .name = name, .owner = owner};
  names->places = neap__host_alloc(capacity * sizeof *names->places);
  if (names->places == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a table of %zu names",
                       n);
  }
  memset(names->places, 0, capacity * sizeof *names->places);
  /* where the kernel has no number yet, an address is better than nothing */
  if (getrandom(&names->seed, sizeof names->seed, GRND_NONBLOCK) != sizeof names->seed) {
    names->seed = (uint64_t)(uintptr_t)names->places;
  }
  return NEAP_OK;
}

void neap__st_names_free(neap__st_names *names) {
  neap__host_free(names->places);
  names->places = NULL;
}

/* Where the name is, or the free place where it belongs; the table is never full. *tag: the place's
 * upper bits; where they differ, so do the names, which spares a look at most others. */
static size_t place_of(const neap__st_names *names, const char *name, uint32_t *tag) {
  uint64_t hash = XXH3_64bits_withSeed(name, strlen(name), names->seed);
  size_t mask = names->capacity - 1, at = (size_t)hash & mask;
  *tag = (uint32_t)(hash >> 32) & ~NUMBER;
  for (uint32_t place; (place = names->places[at]) != 0; at = (at + 1) & mask) {
    if ((place & ~NUMBER) == *tag &&
        strcmp(names->name(names->owner, (place & NUMBER) - 1), name) == 0) {
      break;
    }
  }
  return at;
}

int neap__st_names_add(neap__st_names *names, uint32_t i) {
  uint32_t tag;
  size_t at = place_of(names, names->name(names->owner, i), &tag);
  if (names->places[at] != 0) {
    return 1;
  }
  names->places[at] = tag | (i + 1);
  return 0;
}

int neap__st_names_find(const neap__st_names *names, const char *name) {
  uint32_t tag;
  return names->places == NULL ? -1
                               : (int)(names->places[place_of(names, name, &tag)] & NUMBER) - 1;
}
