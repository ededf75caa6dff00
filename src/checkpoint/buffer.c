/* The activation buffer: bytes held by layer index, open addressing with linear probing at most
 * half full, so push and evict cost the same however many are held.
 */
#include <math.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

typedef struct place {
  uint64_t index, bytes;
  int taken;
} place;

struct neap_buffer {
  uint64_t capacity_bytes, bytes, n;
  place *places;
  uint64_t n_places; /* 0 or a power of two */
};

int neap_buffer_new(uint64_t capacity_bytes, neap_buffer **out) {
  if (out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_buffer_new needs a place for its result");
  }
  neap_buffer *buffer = neap__host_alloc(sizeof *buffer);
  if (buffer == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for an activation buffer");
  }
  *buffer = (neap_buffer){.capacity_bytes = capacity_bytes};
  *out = buffer;
  return NEAP_OK;
}

void neap_buffer_free(neap_buffer *buffer) {
  if (buffer != NULL) {
    neap__host_free(buffer->places);
    neap__host_free(buffer);
  }
}

/* neighbours land apart: the multiplier of Fibonacci hashing, its high bits folded down */
static uint64_t home_of(const neap_buffer *buffer, uint64_t index) {
  uint64_t hash = index * 11400714819323198485u;
  return (hash ^ hash >> 32) & (buffer->n_places - 1);
}

/* the layer's place, or the free one where it belongs; there always is one */
static place *place_of(const neap_buffer *buffer, uint64_t index) {
  uint64_t at = home_of(buffer, index);
  while (buffer->places[at].taken && buffer->places[at].index != index) {
    at = (at + 1) & (buffer->n_places - 1);
  }
  return &buffer->places[at];
}

static place *find(const neap_buffer *buffer, uint64_t index) {
  place *found = buffer->n == 0 ? NULL : place_of(buffer, index);
  return found != NULL && found->taken ? found : NULL;
}

static int reserve(neap_buffer *buffer) {
  if (2 * (buffer->n + 1) <= buffer->n_places) {
    return NEAP_OK;
  }
  neap_buffer grown = *buffer;
  grown.n_places = buffer->n_places == 0 ? 16 : 2 * buffer->n_places;
  size_t bytes = (size_t)grown.n_places * sizeof *grown.places;
  grown.places = neap__host_alloc(bytes);
  if (grown.places == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for %llu held activations",
                       (unsigned long long)buffer->n + 1);
  }
  memset(grown.places, 0, bytes);
  for (uint64_t i = 0; i < buffer->n_places; i++) {
    if (buffer->places[i].taken) {
      *place_of(&grown, buffer->places[i].index) = buffer->places[i];
    }
  }
  neap__host_free(buffer->places);
  *buffer = grown;
  return NEAP_OK;
}

int neap_buffer_push(neap_buffer *buffer, uint64_t index, uint64_t bytes) {
  if (buffer == NULL) {
    return neap__error(NEAP_ERR_INVALID, "buffer is NULL");
  }
  const place *held = find(buffer, index);
  if (held != NULL) {
    return neap__error(NEAP_ERR_DUPLICATE, "layer %llu is in the buffer already, with %llu bytes",
                       (unsigned long long)index, (unsigned long long)held->bytes);
  }
  uint64_t sum;
  if (__builtin_add_overflow(buffer->bytes, bytes, &sum)) {
    return neap__error(
        NEAP_ERR_OVERFLOW, "layer %llu: %llu bytes beside the %llu held do not fit in 64 bits",
        (unsigned long long)index, (unsigned long long)bytes, (unsigned long long)buffer->bytes);
  }
  int code = reserve(buffer);
  if (code == NEAP_OK) {
    *place_of(buffer, index) = (place){.index = index, .bytes = bytes, .taken = 1};
    buffer->n++;
    buffer->bytes = sum;
  }
  return code;
}

int neap_buffer_evict(neap_buffer *buffer, uint64_t index, uint64_t *bytes) {
  if (buffer == NULL) {
    return neap__error(NEAP_ERR_INVALID, "buffer is NULL");
  }
  place *held = find(buffer, index);
  if (held == NULL) {
    return neap__error(NEAP_ERR_NOT_FOUND, "layer %llu is not in the buffer of %llu activations",
                       (unsigned long long)index, (unsigned long long)buffer->n);
  }
  if (bytes != NULL) {
    *bytes = held->bytes;
  }
  buffer->bytes -= held->bytes;
  buffer->n--;
  /* activations after the hole that would not be found past it move into it */
  uint64_t mask = buffer->n_places - 1, hole = (uint64_t)(held - buffer->places);
  for (uint64_t at = (hole + 1) & mask; buffer->places[at].taken; at = (at + 1) & mask) {
    if (((at - home_of(buffer, buffer->places[at].index)) & mask) >= ((at - hole) & mask)) {
      buffer->places[hole] = buffer->places[at];
      hole = at;
    }
  }
  buffer->places[hole].taken = 0;
  return NEAP_OK;
}

uint64_t neap_buffer_bytes(const neap_buffer *buffer) {
  return buffer == NULL ? 0 : buffer->bytes;
}

uint64_t neap_buffer_count(const neap_buffer *buffer) {
  return buffer == NULL ? 0 : buffer->n;
}

int neap_buffer_holds(const neap_buffer *buffer, uint64_t index) {
  return buffer != NULL && find(buffer, index) != NULL;
}

double neap_buffer_pressure(const neap_buffer *buffer) {
  if (buffer == NULL) {
    return 0.0;
  }
  if (buffer->capacity_bytes == 0) {
    return buffer->bytes == 0 ? 1.0 : (double)INFINITY;
  }
  return (double)buffer->bytes / (double)buffer->capacity_bytes;
}
