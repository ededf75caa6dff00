/* Where the tensors' data lies. It has to cover the data section exactly: every byte belongs to one
 * tensor, and an empty tensor lies where the data of another begins or all of it ends.
 *
 * The entries of a header may come in any order. They are followed from one's end to the next one's
 * begin through a table of begins: no sorting, so a million in the worst order are no slower.
 */
#include <string.h>
#include <xxhash.h>

#include "core/host.h"
#include "io/safetensors.h"

#define SEEN UINT32_MAX

typedef struct begins {
  const neap_safetensors *file;
  uint32_t *places; /* number + 1 of a tensor with data; SEEN: was followed; 0: free */
  size_t mask;
  uint64_t seed;
} begins;

/* the place of the tensor with data that begins there, or a free one */
static size_t place_of(const begins *b, uint64_t begin) {
  size_t at = (size_t)XXH3_64bits_withSeed(&begin, sizeof begin, b->seed) & b->mask;
  while (b->places[at] != 0 &&
         (b->places[at] == SEEN || b->file->entries[b->places[at] - 1].begin != begin)) {
    at = (at + 1) & b->mask;
  }
  return at;
}

static int add_all(begins *b) {
  const neap_safetensors *f = b->file;
  for (int i = 0; i < f->n_entries; i++) {
    size_t at = f->entries[i].bytes == 0 ? 0 : place_of(b, f->entries[i].begin);
    if (f->entries[i].bytes > 0 && b->places[at] != 0) {
      return neap__st_fail(f, neap__st_name(f, (uint32_t)i),
                           "its data begins at %llu, where that of another tensor begins",
                           (unsigned long long)f->entries[i].begin);
    }
    if (f->entries[i].bytes > 0) {
      b->places[at] = (uint32_t)i + 1;
    }
  }
  return NEAP_OK;
}

static int check_empty(const begins *b) {
  const neap_safetensors *f = b->file;
  for (int i = 0; i < f->n_entries; i++) {
    uint64_t begin = f->entries[i].begin;
    if (f->entries[i].bytes == 0 && begin != f->data_bytes && b->places[place_of(b, begin)] == 0) {
      return neap__st_fail(f, neap__st_name(f, (uint32_t)i),
                           "it is empty and lies at %llu, expected a place where other data begins "
                           "or all data ends",
                           (unsigned long long)begin);
    }
  }
  return NEAP_OK;
}

static int fail_short(const neap_safetensors *f, uint64_t end) {
  return neap__st_fail(f, NULL, "the file has %llu data bytes, expected the %llu of its %d tensors",
                       (unsigned long long)f->data_bytes, (unsigned long long)end, f->n_entries);
}

static int follow(begins *b) {
  const neap_safetensors *f = b->file;
  const neap__st_entry *left = NULL;
  uint64_t end = 0;
  for (size_t at; b->places[at = place_of(b, end)] != 0;) {
    end += f->entries[b->places[at] - 1].bytes;
    b->places[at] = SEEN;
  }
  /* the first of those that nothing leads to */
  for (size_t at = 0; at <= b->mask; at++) {
    if (b->places[at] != 0 && b->places[at] != SEEN) {
      const neap__st_entry *entry = &f->entries[b->places[at] - 1];
      left = left == NULL || entry->begin < left->begin ? entry : left;
    }
  }
  if (left == NULL) {
    return end == f->data_bytes ? NEAP_OK : fail_short(f, end);
  }
  return neap__st_fail(f, f->header + left->name,
                       left->begin < end
                           ? "its data begins at %llu, expected nothing before the end of other "
                             "data at %llu"
                           : "its data begins at %llu, expected %llu, where other data ends",
                       (unsigned long long)left->begin, (unsigned long long)end);
}

int neap__st_check_data(const neap_safetensors *file) {
  begins b = {.file = file, .mask = 15, .seed = file->names.seed};
  uint64_t end = 0;
  int i = 0;
  while (i < file->n_entries && file->entries[i].begin == end) {
    end += file->entries[i++].bytes;
  }
  if (i == file->n_entries) {
    return end == file->data_bytes ? NEAP_OK : fail_short(file, end);
  }
  while ((b.mask + 1) / 4 * 3 < (size_t)file->n_entries) {
    b.mask = 2 * b.mask + 1;
  }
  size_t bytes = (b.mask + 1) * sizeof *b.places;
  b.places = neap__host_alloc(bytes);
  if (b.places == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: '%s' needs %zu host bytes", file->path,
                       bytes);
  }
  memset(b.places, 0, bytes);
  int code = add_all(&b);
  code = code < 0 ? code : check_empty(&b);
  code = code < 0 ? code : follow(&b);
  neap__host_free(b.places);
  return code;
}
