/* The header of a safetensors file: one strict pass over its JSON, then the checks that need all of
 * its entries. Format: https://github.com/huggingface/safetensors (README, "Format").
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/host.h"
#include "io/safetensors.h"

/* the first ones are ours, at their own numbers */
/* clang-format off */
const neap__st_dtype neap__st_dtypes[NEAP__ST_N_DTYPES] = {
  {"F32", 32, NEAP_F32},                     {"BF16", 16, NEAP_BF16},
  {"I32", 32, NEAP_I32},                     {"BOOL", 8, NEAP_ERR_UNSUPPORTED},
  {"U8", 8, NEAP_ERR_UNSUPPORTED},           {"I8", 8, NEAP_ERR_UNSUPPORTED},
  {"U16", 16, NEAP_ERR_UNSUPPORTED},         {"I16", 16, NEAP_ERR_UNSUPPORTED},
  {"F16", 16, NEAP_ERR_UNSUPPORTED},         {"U32", 32, NEAP_ERR_UNSUPPORTED},
  {"U64", 64, NEAP_ERR_UNSUPPORTED},         {"I64", 64, NEAP_ERR_UNSUPPORTED},
  {"F64", 64, NEAP_ERR_UNSUPPORTED},         {"C64", 64, NEAP_ERR_UNSUPPORTED},
  {"F8_E4M3", 8, NEAP_ERR_UNSUPPORTED},      {"F8_E5M2", 8, NEAP_ERR_UNSUPPORTED},
  {"F8_E8M0", 8, NEAP_ERR_UNSUPPORTED},      {"F8_E4M3FNUZ", 8, NEAP_ERR_UNSUPPORTED},
  {"F8_E5M2FNUZ", 8, NEAP_ERR_UNSUPPORTED},  {"F6_E2M3", 6, NEAP_ERR_UNSUPPORTED},
  {"F6_E3M2", 6, NEAP_ERR_UNSUPPORTED},      {"F4", 4, NEAP_ERR_UNSUPPORTED},
};
/* clang-format on */

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

typedef struct parser {
  neap_safetensors *file;
  neap__json json;
  const char *tensor; /* whose entry is read; NULL: none */
} parser;

int neap__st_fail(const neap_safetensors *file, const char *tensor, const char *format, ...) {
  char text[400], name[96];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return neap__error(
      NEAP_ERR_IO, "cannot open '%s': %s%s%s%s", file->path, tensor == NULL ? "" : "tensor ",
      tensor == NULL ? "" : neap__json_quoted(tensor, name), tensor == NULL ? "" : ": ", text);
}

#define fail(p, ...) neap__st_fail((p)->file, (p)->tensor, __VA_ARGS__)

static int fail_json(const parser *p) {
  char found[64];
  return fail(p, "expected %s, found %s", p->json.expected, neap__json_found(&p->json, found));
}

const char *neap__st_name(const void *file, uint32_t i) {
  const neap_safetensors *f = file;
  return f->header + f->entries[i].name;
}

static const char *key_of(const void *file, uint32_t i) {
  const neap_safetensors *f = file;
  return f->header + f->pairs[2 * i];
}

uint64_t neap__st_dim(const neap_safetensors *file, const neap__st_entry *entry, uint32_t d) {
  neap__json json = {.text = file->header, .bytes = file->header_bytes, .at = entry->shape};
  uint64_t dim = 0;
  for (uint32_t i = 0; i <= d; i++) {
    neap__json_whole(&json, &dim);
    neap__json_more(&json, ']');
  }
  return dim;
}

/* ---- one entry ---- */

static int read_dtype(parser *p, neap__st_entry *entry) {
  size_t start;
  char quoted[96];
  if (neap__json_string(&p->json, "a dtype in quotes", &start) != 0) {
    return fail_json(p);
  }
  for (uint32_t i = 0; i < NEAP__ST_N_DTYPES; i++) {
    if (strcmp(p->json.text + start, neap__st_dtypes[i].name) == 0) {
      entry->dtype = i;
      return NEAP_OK;
    }
  }
  return fail(p, "unknown dtype %s, expected F32, BF16, I32 or another of the format",
              neap__json_quoted(p->json.text + start, quoted));
}

/* *n_elements: UINT64_MAX when it overflows */
static int read_shape(parser *p, neap__st_entry *entry, uint64_t *n_elements) {
  int more = 1, is_empty = 0, overflows = 0;
  uint64_t dim, n = 1;
  if (neap__json_take(&p->json, '[', "a list of dimensions") != 0) {
    return fail_json(p);
  }
  entry->shape = (uint32_t)p->json.at;
  entry->n_dims = 0;
  if (neap__json_peek(&p->json) == ']') {
    p->json.at++;
    more = 0;
  }
  while (more) {
    if (neap__json_whole(&p->json, &dim) != 0 || (more = neap__json_more(&p->json, ']')) < 0) {
      return fail_json(p);
    }
    if (++entry->n_dims > NEAP__ST_MAX_DIMS) {
      return fail(p, "more than %d dimensions", NEAP__ST_MAX_DIMS);
    }
    is_empty |= dim == 0;
    overflows |= __builtin_mul_overflow(n, dim, &n);
  }
  *n_elements = is_empty ? 0 : overflows ? UINT64_MAX : n;
  return NEAP_OK;
}

static int read_offsets(parser *p, neap__st_entry *entry) {
  uint64_t end;
  if (neap__json_take(&p->json, '[', "a list of two offsets") != 0 ||
      neap__json_whole(&p->json, &entry->begin) != 0 ||
      neap__json_take(&p->json, ',', "',' and a second offset") != 0 ||
      neap__json_whole(&p->json, &end) != 0 ||
      neap__json_take(&p->json, ']', "']' after two offsets") != 0) {
    return fail_json(p);
  }
  if (entry->begin > end) {
    return fail(p, "its data begins at %llu and ends before that, at %llu",
                (unsigned long long)entry->begin, (unsigned long long)end);
  }
  if (end > p->file->data_bytes) {
    return fail(p, "its data ends at %llu, expected at most the %llu data bytes of the file",
                (unsigned long long)end, (unsigned long long)p->file->data_bytes);
  }
  entry->bytes = end - entry->begin;
  return NEAP_OK;
}

static int read_field(parser *p, neap__st_entry *entry, int *has, uint64_t *n_elements) {
  size_t start;
  char quoted[96];
  if (neap__json_string(&p->json, "a key in quotes", &start) != 0) {
    return fail_json(p);
  }
  const char *key = p->json.text + start;
  int bit = strcmp(key, "dtype") == 0          ? HAS_DTYPE
            : strcmp(key, "shape") == 0        ? HAS_SHAPE
            : strcmp(key, "data_offsets") == 0 ? HAS_OFFSETS
                                               : 0;
  if (bit == 0) {
    return fail(p, "unknown key %s, expected dtype, shape and data_offsets",
                neap__json_quoted(key, quoted));
  }
  if (*has & bit) {
    return fail(p, "the key '%s' is there twice, expected it once", key);
  }
  *has |= bit;
  if (neap__json_take(&p->json, ':', "':' after a key") != 0) {
    return fail_json(p);
  }
  return bit == HAS_DTYPE   ? read_dtype(p, entry)
         : bit == HAS_SHAPE ? read_shape(p, entry, n_elements)
                            : read_offsets(p, entry);
}

static int read_entry(parser *p, size_t name) {
  neap__st_entry entry = {.name = (uint32_t)name};
  int has = 0, more = 1, code = NEAP_OK;
  uint64_t n_elements = 0, bits;
  if (neap__json_take(&p->json, '{', "an object with dtype, shape and data_offsets") != 0) {
    return fail_json(p);
  }
  if (neap__json_peek(&p->json) == '}') {
    p->json.at++;
    more = 0;
  }
  while (more) {
    code = read_field(p, &entry, &has, &n_elements);
    if (code < 0) {
      return code;
    }
    if ((more = neap__json_more(&p->json, '}')) < 0) {
      return fail_json(p);
    }
  }
  if (has != HAS_ALL) {
    return fail(p, "it has no %s, expected dtype, shape and data_offsets",
                !(has & HAS_DTYPE)   ? "dtype"
                : !(has & HAS_SHAPE) ? "shape"
                                     : "data_offsets");
  }
  const neap__st_dtype *dtype = &neap__st_dtypes[entry.dtype];
  if (n_elements == UINT64_MAX ||
      __builtin_mul_overflow(n_elements, (uint64_t)dtype->bits, &bits)) {
    return fail(p, "the product of its %u dimensions overflows", entry.n_dims);
  }
  if (bits % 8 != 0 || bits / 8 != entry.bytes) {
    return fail(p, "its data has %llu bytes, expected %llu%s for %llu elements of %s",
                (unsigned long long)entry.bytes, (unsigned long long)bits / 8,
                bits % 8 != 0 ? " and a part" : "", (unsigned long long)n_elements, dtype->name);
  }
  if (p->file->n_entries == p->file->max_entries) {
    return fail(p, "more than %d tensors", NEAP__ST_MAX_TENSORS);
  }
  p->file->entries[p->file->n_entries++] = entry;
  return NEAP_OK;
}

/* ---- the whole header ---- */

static int read_metadata(parser *p) {
  neap_safetensors *f = p->file;
  int more = 1;
  if (neap__json_take(&p->json, '{', "an object as " NEAP__ST_METADATA) != 0) {
    return fail_json(p);
  }
  if (neap__json_peek(&p->json) == '}') {
    p->json.at++;
    more = 0;
  }
  while (more) {
    size_t key, value;
    if (neap__json_string(&p->json, "a key of " NEAP__ST_METADATA " in quotes", &key) != 0 ||
        neap__json_take(&p->json, ':', "':' after a key of " NEAP__ST_METADATA) != 0 ||
        neap__json_string(&p->json, "a string as value in " NEAP__ST_METADATA, &value) != 0 ||
        (more = neap__json_more(&p->json, '}')) < 0) {
      return fail_json(p);
    }
    if (f->n_pairs == NEAP__ST_MAX_METADATA) {
      return fail(p, "more than %d keys in " NEAP__ST_METADATA, NEAP__ST_MAX_METADATA);
    }
    int code = neap__host_grow((void **)&f->pairs, &f->pair_capacity, f->n_pairs + 1,
                               2 * sizeof *f->pairs);
    if (code < 0) {
      return code;
    }
    f->pairs[2 * f->n_pairs] = (uint32_t)key;
    f->pairs[2 * f->n_pairs++ + 1] = (uint32_t)value;
  }
  return NEAP_OK;
}

static int read_root(parser *p) {
  int has_metadata = 0, more = 1, code;
  if (p->json.bytes == 0 || p->json.text[0] != '{') {
    p->json.expected = "'{'";
    return fail_json(p);
  }
  p->json.at = 1;
  if (neap__json_peek(&p->json) == '}') {
    p->json.at++;
    more = 0;
  }
  while (more) {
    size_t name;
    if (neap__json_string(&p->json, "a tensor's name in quotes", &name) != 0 ||
        neap__json_take(&p->json, ':', "':' after a name") != 0) {
      return fail_json(p);
    }
    if (strcmp(p->json.text + name, NEAP__ST_METADATA) == 0) {
      code = has_metadata++ ? fail(p, NEAP__ST_METADATA " is there twice, expected it once")
                            : read_metadata(p);
    } else {
      p->tensor = p->json.text + name;
      code = read_entry(p, name);
      p->tensor = NULL;
    }
    if (code < 0) {
      return code;
    }
    if ((more = neap__json_more(&p->json, '}')) < 0) {
      return fail_json(p);
    }
  }
  while (p->json.at < p->json.bytes && p->json.text[p->json.at] == ' ') {
    p->json.at++;
  }
  p->json.expected = "only spaces after the header's object";
  return p->json.at < p->json.bytes ? fail_json(p) : NEAP_OK;
}

static int check_names(parser *p) {
  neap_safetensors *f = p->file;
  char quoted[96];
  int code = neap__st_names_init(&f->names, (size_t)f->n_entries, neap__st_name, f);
  for (int i = 0; code == NEAP_OK && i < f->n_entries; i++) {
    p->tensor = neap__st_name(f, (uint32_t)i);
    code = neap__st_names_add(&f->names, (uint32_t)i)
               ? fail(p, "its name is there twice, expected it once")
               : NEAP_OK;
  }
  p->tensor = NULL;
  if (code == NEAP_OK) {
    code = neap__st_names_init(&f->keys, (size_t)f->n_pairs, key_of, f);
  }
  for (int i = 0; code == NEAP_OK && i < f->n_pairs; i++) {
    code = neap__st_names_add(&f->keys, (uint32_t)i)
               ? fail(p, "the key %s of " NEAP__ST_METADATA " is there twice, expected it once",
                      neap__json_quoted(key_of(f, (uint32_t)i), quoted))
               : NEAP_OK;
  }
  return code;
}

int neap__st_parse(neap_safetensors *file) {
  parser p = {.file = file, .json = {.text = file->header, .bytes = file->header_bytes}};
  int code = read_root(&p);
  code = code < 0 ? code : check_names(&p);
  return code < 0 ? code : neap__st_check_data(file);
}
