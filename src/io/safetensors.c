/* Opening safetensors files and reading their tensors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/host.h"
#include "io/safetensors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data is copied as the format has it");

/* the least text of an entry: "":{"dtype":"U8","shape":[],"data_offsets":[0,0]} and a comma */
enum { LEAST_ENTRY = 49 };

static int fail_open(const neap_safetensors *file) {
  return neap__error(NEAP_ERR_IO, "cannot open '%s': %s", file->path, strerror(errno));
}

static int no_memory(const neap_safetensors *file, size_t bytes) {
  return neap__error(NEAP_ERR_MEMORY, "out of memory: '%s' needs %zu host bytes", file->path,
                     bytes);
}

/* sizes, then the header's text */
static int read_header(neap_safetensors *file) {
  struct stat status;
  unsigned char prefix[8];
  uint64_t length = 0;
  if (fstat(file->file, &status) != 0) {
    return fail_open(file);
  }
  if (!S_ISREG(status.st_mode)) {
    return neap__error(NEAP_ERR_IO, "cannot open '%s': it is no regular file", file->path);
  }
  uint64_t size = (uint64_t)status.st_size;
  if (size < sizeof prefix) {
    return neap__error(NEAP_ERR_IO,
                       "cannot open '%s': it has %llu bytes, expected at least the 8 of the "
                       "header's length",
                       file->path, (unsigned long long)size);
  }
  int64_t n = neap__file_read_at(file->file, prefix, sizeof prefix, 0);
  for (int i = 7; i >= 0 && n == sizeof prefix; i--) {
    length = length << 8 | prefix[i];
  }
  if (n == sizeof prefix && (length > size - 8 || length > NEAP__ST_MAX_HEADER)) {
    return neap__error(
        NEAP_ERR_IO, "cannot open '%s': its header has %llu bytes, expected at most %llu",
        file->path, (unsigned long long)length,
        (unsigned long long)(size - 8 < NEAP__ST_MAX_HEADER ? size - 8 : NEAP__ST_MAX_HEADER));
  }
  file->header_bytes = (size_t)length;
  file->data_bytes = size - 8 - length;
  file->header = neap__host_alloc(file->header_bytes + 1);
  if (file->header == NULL) {
    return no_memory(file, file->header_bytes + 1);
  }
  if (n == sizeof prefix) {
    n = neap__file_read_at(file->file, file->header, file->header_bytes, 8);
  }
  file->header[file->header_bytes] = '\0';
  if (n < 0) {
    return fail_open(file);
  }
  return (uint64_t)n == length
             ? NEAP_OK
             : neap__error(NEAP_ERR_IO, "cannot open '%s': it became shorter while it was read",
                           file->path);
}

static int open_and_check(neap_safetensors *file) {
  /* not blocking, so that a pipe without a writer is refused instead of waited for */
  file->file = neap__file_open(file->path, O_RDONLY | O_NONBLOCK);
  if (file->file < 0) {
    return fail_open(file);
  }
  int code = read_header(file);
  if (code < 0) {
    return code;
  }
  size_t most = file->header_bytes / LEAST_ENTRY + 1;
  file->max_entries = (int)(most < NEAP__ST_MAX_TENSORS ? most : NEAP__ST_MAX_TENSORS);
  size_t bytes = (size_t)file->max_entries * sizeof *file->entries;
  file->entries = neap__host_alloc(bytes);
  return file->entries == NULL ? no_memory(file, bytes) : neap__st_parse(file);
}

int neap_safetensors_open(const char *path, neap_safetensors **out) {
  if (path == NULL || path[0] == '\0' || out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "safetensors_open: expected a path and a place");
  }
  *out = NULL;
  size_t length = strlen(path) + 1;
  neap_safetensors *file = neap__host_alloc(sizeof *file + length);
  if (file == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory to open '%s'", path);
  }
  memset(file, 0, sizeof *file);
  file->path = (char *)(file + 1);
  memcpy(file->path, path, length);
  int code = open_and_check(file);
  if (code < 0) {
    neap_safetensors_close(file);
    return code;
  }
  *out = file;
  return NEAP_OK;
}

void neap_safetensors_close(neap_safetensors *file) {
  if (file == NULL) {
    return;
  }
  if (file->file >= 0) {
    neap__file_close(file->file);
  }
  neap__st_names_free(&file->names);
  neap__st_names_free(&file->keys);
  neap__host_free(file->pairs);
  neap__host_free(file->entries);
  neap__host_free(file->header);
  neap__host_free(file);
}

/* ---- what is in it ---- */

/* NULL with the error set */
static const neap__st_entry *entry_of(const neap_safetensors *file, int i) {
  if (file == NULL || i < 0 || i >= file->n_entries) {
    neap__error(NEAP_ERR_INVALID, "safetensors: tensor %d, expected an open file and 0..%d", i,
                file == NULL ? -1 : file->n_entries - 1);
    return NULL;
  }
  return &file->entries[i];
}

int neap_safetensors_count(const neap_safetensors *file) {
  return file == NULL ? neap__error(NEAP_ERR_INVALID, "safetensors: expected an open file")
                      : file->n_entries;
}

const char *neap_safetensors_name(const neap_safetensors *file, int i) {
  const neap__st_entry *entry = entry_of(file, i);
  return entry == NULL ? NULL : file->header + entry->name;
}

int neap_safetensors_dtype(const neap_safetensors *file, int i) {
  const neap__st_entry *entry = entry_of(file, i);
  char quoted[96];
  if (entry == NULL) {
    return NEAP_ERR_INVALID;
  }
  const neap__st_dtype *dtype = &neap__st_dtypes[entry->dtype];
  return dtype->dtype >= 0
             ? dtype->dtype
             : neap__error(NEAP_ERR_UNSUPPORTED,
                           "tensor %s of '%s' has dtype %s, expected F32, BF16 or I32",
                           neap__json_quoted(file->header + entry->name, quoted), file->path,
                           dtype->name);
}

const char *neap_safetensors_dtype_name(const neap_safetensors *file, int i) {
  const neap__st_entry *entry = entry_of(file, i);
  return entry == NULL ? NULL : neap__st_dtypes[entry->dtype].name;
}

int neap_safetensors_n_dims(const neap_safetensors *file, int i) {
  const neap__st_entry *entry = entry_of(file, i);
  return entry == NULL ? NEAP_ERR_INVALID : (int)entry->n_dims;
}

double neap_safetensors_dim(const neap_safetensors *file, int i, int d) {
  const neap__st_entry *entry = entry_of(file, i);
  if (entry == NULL) {
    return NEAP_ERR_INVALID;
  }
  if (d < 0 || d >= (int)entry->n_dims) {
    return neap__error(NEAP_ERR_INVALID, "safetensors: dimension %d, expected 0..%d", d,
                       (int)entry->n_dims - 1);
  }
  return (double)neap__st_dim(file, entry, (uint32_t)d);
}

double neap_safetensors_bytes(const neap_safetensors *file, int i) {
  const neap__st_entry *entry = entry_of(file, i);
  return entry == NULL ? NEAP_ERR_INVALID : (double)entry->bytes;
}

int neap_safetensors_find(const neap_safetensors *file, const char *name) {
  char quoted[96];
  if (file == NULL || name == NULL) {
    return neap__error(NEAP_ERR_INVALID, "safetensors: expected an open file and a name");
  }
  int i = neap__st_names_find(&file->names, name);
  return i >= 0 ? i
                : neap__error(NEAP_ERR_NOT_FOUND, "'%s' has no tensor %s", file->path,
                              neap__json_quoted(name, quoted));
}

const char *neap_safetensors_metadata(const neap_safetensors *file, const char *key) {
  int k = file == NULL || key == NULL ? -1 : neap__st_names_find(&file->keys, key);
  return k < 0 ? NULL : file->header + file->pairs[2 * k + 1];
}

const char *neap_safetensors_metadata_key(const neap_safetensors *file, int k) {
  return file == NULL || k < 0 || k >= file->n_pairs ? NULL : file->header + file->pairs[2 * k];
}

/* ---- data ---- */

/* "(2, 3)"; a long one is cut */
static const char *dims_text(const neap_safetensors *file, const neap__st_entry *entry,
                             double tensor, char text[160]) {
  int n = file != NULL ? (int)entry->n_dims : neap_tensor_n_dims(tensor);
  size_t at = (size_t)snprintf(text, 160, "(");
  for (int d = 0; d < n && at < 128; d++) {
    double dim =
        file != NULL ? (double)neap__st_dim(file, entry, (uint32_t)d) : neap_tensor_dim(tensor, d);
    at += (size_t)snprintf(text + at, 160 - at, "%s%.0f", d > 0 ? ", " : "", dim);
  }
  snprintf(text + at, 160 - at, at < 128 ? ")" : ", ...)");
  return text;
}

static int check_tensor(const neap_safetensors *file, int i, double tensor) {
  const neap__st_entry *entry = entry_of(file, i);
  int wanted = entry == NULL ? NEAP_ERR_INVALID : neap_tensor_dtype(tensor);
  char quoted[96], found[160], expected[160];
  if (wanted < 0) {
    return wanted;
  }
  const char *name = neap__json_quoted(file->header + entry->name, quoted);
  if (neap__st_dtypes[entry->dtype].dtype != wanted) {
    return neap__error(NEAP_ERR_DTYPE, "tensor %s of '%s' has dtype %s, expected %s", name,
                       file->path, neap__st_dtypes[entry->dtype].name,
                       neap__st_dtypes[wanted].name);
  }
  int same = (int)entry->n_dims == neap_tensor_n_dims(tensor);
  for (int d = 0; same && d < (int)entry->n_dims; d++) {
    same = (double)neap__st_dim(file, entry, (uint32_t)d) == neap_tensor_dim(tensor, d);
  }
  return same ? NEAP_OK
              : neap__error(NEAP_ERR_SHAPE, "tensor %s of '%s' has shape %s, expected %s", name,
                            file->path, dims_text(file, entry, 0, found),
                            dims_text(NULL, NULL, tensor, expected));
}

static int read_piece(const neap_safetensors *file, const neap__st_entry *entry, uint64_t at,
                      void *host, size_t bytes) {
  char quoted[96];
  int64_t n =
      neap__file_read_at(file->file, host, bytes, 8 + file->header_bytes + entry->begin + at);
  if (n == (int64_t)bytes) {
    return NEAP_OK;
  }
  return neap__error(NEAP_ERR_IO, "cannot read tensor %s of '%s': %s",
                     neap__json_quoted(file->header + entry->name, quoted), file->path,
                     n < 0 ? strerror(errno) : "the file became shorter since it was opened");
}

/* writes n elements from element first on */
static int write_piece(double tensor, uint64_t first, size_t n, const void *host, size_t bytes) {
  double dim = (double)n;
  double piece = neap_tensor_view(tensor, 1, &dim, (double)first);
  if (piece < 0) {
    return (int)piece;
  }
  int code = neap_tensor_write(piece, host, bytes);
  neap_tensor_free(piece);
  return code;
}

int neap_safetensors_read(neap_safetensors *file, int i, double tensor) {
  int code = check_tensor(file, i, tensor);
  if (code < 0 || file->entries[i].bytes == 0) {
    return code;
  }
  const neap__st_entry *entry = &file->entries[i];
  size_t element = (size_t)neap__st_dtypes[entry->dtype].bits / 8;
  size_t most = entry->bytes < NEAP__ST_PIECE ? (size_t)entry->bytes : NEAP__ST_PIECE;
  void *host = neap__host_alloc(most);
  if (host == NULL) {
    return no_memory(file, most);
  }
  for (uint64_t at = 0; code == NEAP_OK && at < entry->bytes; at += most) {
    size_t bytes = entry->bytes - at < most ? (size_t)(entry->bytes - at) : most;
    code = read_piece(file, entry, at, host, bytes);
    if (code == NEAP_OK) {
      code = bytes == entry->bytes
                 ? neap_tensor_write(tensor, host, bytes)
                 : write_piece(tensor, at / element, bytes / element, host, bytes);
    }
  }
  neap__host_free(host);
  return code;
}
