/* Writing safetensors files: the header is written twice, first to count it, so that no copy of it
 * and none of the data is held.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/host.h"
#include "io/safetensors.h"

/* what one save is given */
typedef struct job {
  int n, n_metadata;
  const char *const *names, *const *keys, *const *values;
  const double *tensors;
  uint64_t data_bytes;
} job;

/* buffered output; without a file it only counts */
typedef struct sink {
  neap__new_file *file;
  char *buffer; /* NEAP__ST_PIECE bytes */
  size_t used;
  uint64_t total;
  int code; /* of the first write that failed; nothing is written after it */
} sink;

static void flush(sink *out) {
  if (out->code == NEAP_OK && out->used > 0) {
    out->code = neap__new_file_write(out->file, out->buffer, out->used);
  }
  out->used = 0;
}

static void put(sink *out, const char *data, size_t bytes) {
  out->total += bytes;
  while (out->file != NULL && bytes > 0) {
    size_t room = NEAP__ST_PIECE - out->used, n = bytes < room ? bytes : room;
    memcpy(out->buffer + out->used, data, n);
    out->used += n;
    data += n;
    bytes -= n;
    if (out->used == NEAP__ST_PIECE) {
      flush(out);
    }
  }
}

static void put_text(sink *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put_text(sink *out, const char *format, ...) {
  char text[160];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  put(out, text, (size_t)n);
}

static void put_string(sink *out, const char *text) {
  put(out, "\"", 1);
  while (*text != '\0') {
    size_t n = 0;
    while ((unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\') {
      n++;
    }
    put(out, text, n);
    text += n;
    if (*text == '"' || *text == '\\') {
      put_text(out, "\\%c", *text++);
    } else if (*text != '\0') {
      put_text(out, "\\u%04x", (unsigned)*text++);
    }
  }
  put(out, "\"", 1);
}

/* The bytes of tensor i. Checked before: the tensor is alive and all of them together fit. */
static uint64_t tensor_bytes(const job *j, int i) {
  return (uint64_t)neap_tensor_n_elements(j->tensors[i]) *
         (uint64_t)(neap__st_dtypes[neap_tensor_dtype(j->tensors[i])].bits / 8);
}

static void put_header(sink *out, const job *j) {
  uint64_t at = 0;
  put(out, "{", 1);
  if (j->n_metadata > 0) {
    put_text(out, "\"" NEAP__ST_METADATA "\":{");
    for (int k = 0; k < j->n_metadata; k++) {
      put(out, ",", k > 0);
      put_string(out, j->keys[k]);
      put(out, ":", 1);
      put_string(out, j->values[k]);
    }
    put(out, "}", 1);
  }
  for (int i = 0; i < j->n; i++) {
    double id = j->tensors[i];
    put(out, ",", i > 0 || j->n_metadata > 0);
    put_string(out, j->names[i]);
    put_text(out, ":{\"dtype\":\"%s\",\"shape\":[", neap__st_dtypes[neap_tensor_dtype(id)].name);
    for (int d = 0; d < neap_tensor_n_dims(id); d++) {
      put_text(out, d > 0 ? ",%.0f" : "%.0f", neap_tensor_dim(id, d));
    }
    put_text(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
             (unsigned long long)(at + tensor_bytes(j, i)));
    at += tensor_bytes(j, i);
  }
  put(out, "}", 1);
}

/* reads n elements from element first on to the end of what is in the buffer */
static int buffer_elements(sink *out, double id, double first, double n, size_t bytes) {
  double piece = neap_tensor_view(id, 1, &n, first);
  if (piece < 0) {
    return (int)piece;
  }
  int code = neap_tensor_read(piece, out->buffer + out->used, bytes);
  neap_tensor_free(piece);
  return code;
}

static void put_tensor(sink *out, double id, uint64_t bytes) {
  size_t element = (size_t)neap__st_dtypes[neap_tensor_dtype(id)].bits / 8;
  if (bytes > NEAP__ST_PIECE - out->used) {
    flush(out);
  }
  for (uint64_t at = 0; out->code == NEAP_OK && at < bytes;) {
    size_t n = bytes - at < NEAP__ST_PIECE ? (size_t)(bytes - at) : NEAP__ST_PIECE;
    out->code = n == bytes
                    ? neap_tensor_read(id, out->buffer + out->used, n)
                    : buffer_elements(out, id, (double)(at / element), (double)(n / element), n);
    out->used += n;
    out->total += n;
    at += n;
    if (at < bytes || out->used == NEAP__ST_PIECE) {
      flush(out);
    }
  }
}

/* ---- checks ---- */

static const char *text_at(const void *owner, uint32_t i) {
  return ((const char *const *)owner)[i];
}

/* what: "name" or "metadata key" */
static int check_texts(const char *what, int n, const char *const *texts, int are_keys) {
  neap__st_names seen;
  char quoted[96];
  int code = are_keys ? neap__st_names_init(&seen, (size_t)n, text_at, texts) : NEAP_OK;
  for (int i = 0; code == NEAP_OK && i < n; i++) {
    const char *text = texts[i];
    size_t left = text == NULL ? 0 : strlen(text);
    if (text == NULL) {
      code = neap__error(NEAP_ERR_INVALID, "safetensors_save: %s %d is missing", what, i + 1);
      break;
    }
    for (int length = 0; left > 0 && (length = neap__utf8_sequence(text, left)) > 0;) {
      text += length;
      left -= (size_t)length;
    }
    if (left > 0) {
      code = neap__error(NEAP_ERR_INVALID, "safetensors_save: %s %d, %s, is not valid UTF-8", what,
                         i + 1, neap__json_quoted(texts[i], quoted));
    } else if (are_keys && neap__st_names_add(&seen, (uint32_t)i)) {
      code = neap__error(NEAP_ERR_DUPLICATE, "safetensors_save: %s %s is there twice", what,
                         neap__json_quoted(texts[i], quoted));
    }
  }
  if (are_keys) {
    neap__st_names_free(&seen);
  }
  return code;
}

static int check_tensors(job *j) {
  char quoted[96];
  for (int i = 0; i < j->n; i++) {
    int code = neap_tensor_dtype(j->tensors[i]);
    if (code < 0) {
      return code;
    }
    if (strcmp(j->names[i], NEAP__ST_METADATA) == 0) {
      return neap__error(NEAP_ERR_INVALID, "safetensors_save: a tensor cannot have the name '%s'",
                         NEAP__ST_METADATA);
    }
    j->data_bytes += tensor_bytes(j, i);
    if (j->data_bytes > UINT64_C(1) << 53) {
      return neap__error(NEAP_ERR_OVERFLOW,
                         "safetensors_save: the data up to tensor %s is more than 2^53 bytes",
                         neap__json_quoted(j->names[i], quoted));
    }
  }
  return NEAP_OK;
}

static int check(job *j) {
  if (j->n < 0 || j->n > NEAP__ST_MAX_TENSORS || j->n_metadata < 0 ||
      j->n_metadata > NEAP__ST_MAX_METADATA ||
      (j->n > 0 && (j->names == NULL || j->tensors == NULL)) ||
      (j->n_metadata > 0 && (j->keys == NULL || j->values == NULL))) {
    return neap__error(NEAP_ERR_INVALID,
                       "safetensors_save: %d tensors and %d metadata keys, expected at most %d and "
                       "%d, with names and values",
                       j->n, j->n_metadata, NEAP__ST_MAX_TENSORS, NEAP__ST_MAX_METADATA);
  }
  int code = check_texts("tensor name", j->n, j->names, 1);
  code = code < 0 ? code : check_texts("metadata key", j->n_metadata, j->keys, 1);
  code = code < 0 ? code : check_texts("metadata value", j->n_metadata, j->values, 0);
  return code < 0 ? code : check_tensors(j);
}

/* ---- the file ---- */

static int write_file(neap__new_file *file, char *buffer, const job *j, uint64_t header_bytes) {
  sink out = {.file = file, .buffer = buffer};
  uint64_t padded = (header_bytes + 7) / 8 * 8;
  char prefix[8];
  for (int i = 0; i < 8; i++) {
    prefix[i] = (char)(padded >> 8 * i);
  }
  put(&out, prefix, sizeof prefix);
  put_header(&out, j);
  put(&out, "       ", (size_t)(padded - header_bytes));
  for (int i = 0; i < j->n; i++) {
    put_tensor(&out, j->tensors[i], tensor_bytes(j, i));
  }
  flush(&out);
  return out.code;
}

int neap_safetensors_save(const char *path, int n, const char *const *names, const double *tensors,
                          int n_metadata, const char *const *keys, const char *const *values) {
  job j = {.n = n,
           .n_metadata = n_metadata,
           .names = names,
           .keys = keys,
           .values = values,
           .tensors = tensors};
  sink counted = {.file = NULL};
  neap__new_file file;
  if (path == NULL || path[0] == '\0') {
    return neap__error(NEAP_ERR_INVALID, "safetensors_save: expected a path");
  }
  int code = check(&j);
  if (code < 0) {
    return code;
  }
  put_header(&counted, &j);
  if (counted.total > NEAP__ST_MAX_HEADER) {
    return neap__error(NEAP_ERR_INVALID,
                       "safetensors_save: the header has %llu bytes, expected at most %d",
                       (unsigned long long)counted.total, NEAP__ST_MAX_HEADER);
  }
  char *buffer = neap__host_alloc(NEAP__ST_PIECE);
  if (buffer == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: saving '%s' needs %d host bytes", path,
                       NEAP__ST_PIECE);
  }
  code = neap__new_file_begin(&file, path);
  if (code == NEAP_OK) {
    code = write_file(&file, buffer, &j, counted.total);
    if (code == NEAP_OK) {
      code = neap__new_file_commit(&file);
    } else {
      neap__new_file_abandon(&file);
    }
  }
  neap__host_free(buffer);
  return code;
}
