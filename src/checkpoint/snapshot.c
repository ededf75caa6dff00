/* One recorded activation: its size, and the block that holds it. */
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

/* a zero dimension makes the product zero, wherever it stands */
int neap__count_elements(int n_dims, const uint64_t *dims, uint64_t *n_elements, uint64_t *bytes) {
  uint64_t product = 1;
  int overflow = 0;
  for (int i = 0; i < n_dims; i++) {
    if (dims[i] == 0) {
      *n_elements = *bytes = 0;
      return NEAP_OK;
    }
    overflow |= __builtin_mul_overflow(product, dims[i], &product);
  }
  if (overflow || __builtin_mul_overflow(product, sizeof(float), bytes)) {
    return NEAP_ERR_OVERFLOW;
  }
  *n_elements = product;
  return NEAP_OK;
}

/* "[2, 3]"; a shape too long for the text ends in "..." */
const char *neap__shape_text(int n_dims, const uint64_t *dims, char *text) {
  size_t at = 1;
  strcpy(text, "[");
  for (int i = 0; i < n_dims; i++) {
    int more = snprintf(text + at, NEAP__SHAPE_TEXT - at, i == 0 ? "%llu" : ", %llu",
                        (unsigned long long)dims[i]);
    at += (size_t)more;
    if (at > NEAP__SHAPE_TEXT - 32 && i + 1 < n_dims) {
      at += (size_t)snprintf(text + at, NEAP__SHAPE_TEXT - at, ", ...");
      break;
    }
  }
  snprintf(text + at, NEAP__SHAPE_TEXT - at, "]");
  return text;
}

int neap__shape_mismatch(int n_dims, const uint64_t *dims, uint64_t n_found) {
  char expected[NEAP__SHAPE_TEXT];
  return neap__error(NEAP_ERR_SHAPE, "shape mismatch: expected %s, got [%llu]",
                     neap__shape_text(n_dims, dims, expected), (unsigned long long)n_found);
}

/* one block: the entry, its dims, its data, its name */
neap__entry *neap__entry_new(const neap_snapshot *wish, int drop) {
  size_t name_bytes = strlen(wish->name) + 1, dims_bytes = (size_t)wish->n_dims * sizeof(uint64_t);
  int holds_data = !drop && wish->data != NULL;
  size_t data_bytes = holds_data ? (size_t)wish->logical_bytes : 0, bytes;
  if (__builtin_add_overflow(data_bytes, sizeof(neap__entry) + dims_bytes + name_bytes, &bytes)) {
    return NULL;
  }
  neap__entry *entry = neap__host_alloc(bytes);
  if (entry == NULL) {
    return NULL;
  }
  char *dims = (char *)(entry + 1), *data = dims + dims_bytes, *name = data + data_bytes;
  if (dims_bytes > 0) {
    memcpy(dims, wish->dims, dims_bytes);
  }
  if (data_bytes > 0) {
    memcpy(data, wish->data, data_bytes);
  }
  memcpy(name, wish->name, name_bytes);
  *entry = (neap__entry){
      .hash = neap__name_hash(name),
      .snapshot = {.name = name,
                   .index = wish->index,
                   .logical_bytes = wish->logical_bytes,
                   .stored_bytes = drop ? 0 : wish->logical_bytes,
                   .n_elements = wish->n_elements,
                   .cost = drop ? wish->cost : 0.0,
                   .is_checkpointed = drop,
                   .n_dims = wish->n_dims,
                   .dims = (const uint64_t *)(void *)dims,
                   .data = holds_data ? (const float *)(void *)data : NULL,
                   .n_data = holds_data ? wish->n_data : 0,
                   .payload = drop ? 0.0 : wish->payload},
  };
  return entry;
}
