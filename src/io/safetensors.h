/* Inside the safetensors reader and writer.
 *
 * The one rule: nothing of a file is used before all of its header has been found right. The header
 * stays in memory with its strings decoded in place; entries say where in it things are, so what is
 * held is less than twice the header.
 */
#ifndef NEAP_IO_SAFETENSORS_H
#define NEAP_IO_SAFETENSORS_H

#include "io/file.h"
#include "io/json.h"

enum {
  NEAP__ST_MAX_HEADER = 100000000,
  NEAP__ST_MAX_TENSORS = 1000000,
  NEAP__ST_MAX_METADATA = 10000,
  NEAP__ST_MAX_DIMS = 64,
  NEAP__ST_PIECE = 1 << 20, /* bytes of data in host memory at one time */
  NEAP__ST_N_DTYPES = 22
};

#define NEAP__ST_METADATA "__metadata__"

/* ---- names: a set of strings that somebody else holds, numbered 0.. (safetensors_names.c) ---- */

typedef struct neap__st_names {
  uint32_t *places; /* number + 1 and, above, bits of its hash; 0: free */
  size_t capacity;  /* a power of two */
  uint64_t seed;    /* so that nobody can make a file whose names collide */
  const char *(*name)(const void *owner, uint32_t i);
  const void *owner;
} neap__st_names;

int neap__st_names_init(neap__st_names *names, size_t n,
                        const char *(*name)(const void *owner, uint32_t i), const void *owner);
void neap__st_names_free(neap__st_names *names);
/* Adds number i; 1 when its name is there already. At most n of init may be added. */
int neap__st_names_add(neap__st_names *names, uint32_t i);
int neap__st_names_find(const neap__st_names *names, const char *name); /* -1: not there */

/* ---- dtypes (safetensors_header.c) ---- */

typedef struct neap__st_dtype {
  const char *name;
  int32_t bits, dtype; /* dtype: NEAP_F32 … or NEAP_ERR_UNSUPPORTED */
} neap__st_dtype;

extern const neap__st_dtype neap__st_dtypes[NEAP__ST_N_DTYPES];

/* ---- an open file ---- */

typedef struct neap__st_entry {
  uint64_t begin, bytes; /* in the data section */
  uint32_t name, shape;  /* into the header; shape: after its '[' */
  uint32_t n_dims, dtype;
} neap__st_entry;

struct neap_safetensors {
  int file;
  char *path, *header;
  size_t header_bytes;
  uint64_t data_bytes;
  neap__st_entry *entries; /* in the header's order */
  int n_entries, max_entries;
  uint32_t *pairs; /* metadata: key and value in the header, in its order */
  int n_pairs, pair_capacity;
  neap__st_names names, keys;
};

/* Reads header, which is in memory, into entries and pairs; an error leaves them to be freed. */
int neap__st_parse(neap_safetensors *file);
/* Whether the entries cover the data section without hole and overlap (safetensors_data.c). */
int neap__st_check_data(const neap_safetensors *file);
/* IO with the text "cannot open 'path': tensor 'name': ...". tensor NULL: about the whole file. */
int neap__st_fail(const neap_safetensors *file, const char *tensor, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *neap__st_name(const void *file, uint32_t i);
/* Dimension d of an entry that was found right. */
uint64_t neap__st_dim(const neap_safetensors *file, const neap__st_entry *entry, uint32_t d);

#endif
