/* Activations by name: open addressing with linear probing, at most half full, so a lookup costs
 * the same with ten activations and with ten thousand.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"

uint64_t neap__name_hash(const char *name) {
  /* FNV-1a */
  uint64_t hash = 14695981039346656037u;
  for (const char *c = name; *c != '\0'; c++) {
    hash = (hash ^ (unsigned char)*c) * 1099511628211u;
  }
  return hash;
}

/* where the name is, or the free place where it belongs; the table is never full */
static size_t place_of(const neap__names *names, const char *name, uint64_t hash) {
  size_t mask = names->capacity - 1, at = hash & mask;
  while (names->places[at] != NULL &&
         (names->places[at]->hash != hash || strcmp(names->places[at]->snapshot.name, name) != 0)) {
    at = (at + 1) & mask;
  }
  return at;
}

neap__entry *neap__names_find(const neap__names *names, const char *name) {
  return names->n == 0 ? NULL : names->places[place_of(names, name, neap__name_hash(name))];
}

int neap__names_reserve(neap__names *names) {
  if (2 * (names->n + 1) <= names->capacity) {
    return NEAP_OK;
  }
  neap__names grown = {.capacity = names->capacity == 0 ? 16 : 2 * names->capacity};
  size_t bytes = grown.capacity * sizeof *grown.places;
  grown.places = neap__host_alloc(bytes);
  if (grown.places == NULL) {
    return neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for the names of %zu "
                       "activations",
                       names->n + 1);
  }
  memset(grown.places, 0, bytes);
  for (size_t i = 0; i < names->capacity; i++) {
    if (names->places[i] != NULL) {
      neap__names_add(&grown, names->places[i]);
    }
  }
  neap__host_free(names->places);
  *names = grown;
  return NEAP_OK;
}

void neap__names_add(neap__names *names, neap__entry *entry) {
  names->places[place_of(names, entry->snapshot.name, entry->hash)] = entry;
  names->n++;
}

void neap__names_remove(neap__names *names, const neap__entry *entry) {
  size_t mask = names->capacity - 1;
  size_t hole = place_of(names, entry->snapshot.name, entry->hash);
  /* entries after the hole that would not be found past it move into it */
  for (size_t at = (hole + 1) & mask; names->places[at] != NULL; at = (at + 1) & mask) {
    size_t home = names->places[at]->hash & mask;
    if (((at - home) & mask) >= ((at - hole) & mask)) {
      names->places[hole] = names->places[at];
      hole = at;
    }
  }
  names->places[hole] = NULL;
  names->n--;
}
