/* The segment checkpointer: balanced segments, and a slot for the output of each.
 *
 * Here a BOUNDARY is what is kept, while a policy's "checkpointed" is what is dropped: both words
 * are the source systems'. Segments differ in length by at most 1; the boundary that the executor
 * needs before segment k is slot k - 1.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"

__extension__ typedef unsigned __int128 wide;

typedef struct slot {
  float *data; /* NULL: nothing recorded; an empty output has a block of its own */
  uint64_t n;
} slot;

struct neap_segments {
  uint64_t n_segments, n_stages;
  slot slots[];
};

/* floor(a * b / c) and the ceiling, without overflow */
static uint64_t ratio_floor(uint64_t a, uint64_t b, uint64_t c) {
  return (uint64_t)((wide)a * b / c);
}

static uint64_t ratio_ceil(uint64_t a, uint64_t b, uint64_t c) {
  return (uint64_t)(((wide)a * b + c - 1) / c);
}

int neap_segments_new(uint64_t n_segments, uint64_t n_stages, neap_segments **out) {
  if (out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_segments_new needs a place for its result");
  }
  if (n_stages == 0) {
    return neap__error(NEAP_ERR_SEGMENT_COUNT, "%llu segments of 0 stages: a chain needs a stage",
                       (unsigned long long)n_segments);
  }
  if (n_segments == 0 || n_segments > n_stages) {
    return neap__error(NEAP_ERR_SEGMENT_COUNT, "%llu segments of %llu stages: allowed are 1..%llu",
                       (unsigned long long)n_segments, (unsigned long long)n_stages,
                       (unsigned long long)n_stages);
  }
  size_t bytes;
  neap_segments *segments = NULL;
  if (!__builtin_mul_overflow(n_segments, sizeof(slot), &bytes) &&
      !__builtin_add_overflow(bytes, sizeof *segments, &bytes)) {
    segments = neap__host_alloc(bytes);
  }
  if (segments == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for %llu segments",
                       (unsigned long long)n_segments);
  }
  segments->n_segments = n_segments;
  segments->n_stages = n_stages;
  for (uint64_t k = 0; k < n_segments; k++) {
    segments->slots[k] = (slot){NULL, 0};
  }
  *out = segments;
  return NEAP_OK;
}

static void forget_all(neap_segments *segments) {
  for (uint64_t k = 0; k < segments->n_segments; k++) {
    neap__host_free(segments->slots[k].data);
    segments->slots[k] = (slot){NULL, 0};
  }
}

void neap_segments_free(neap_segments *segments) {
  if (segments != NULL) {
    forget_all(segments);
    neap__host_free(segments);
  }
}

int neap_segments_clear(neap_segments *segments) {
  if (segments == NULL) {
    return neap__error(NEAP_ERR_INVALID, "segments is NULL");
  }
  forget_all(segments);
  return NEAP_OK;
}

/* all of it is in memory, so the sum fits */
uint64_t neap_segments_bytes(const neap_segments *segments) {
  uint64_t bytes = 0;
  for (uint64_t k = 0; segments != NULL && k < segments->n_segments; k++) {
    bytes += segments->slots[k].n * sizeof(float);
  }
  return bytes;
}

uint64_t neap_segments_start(const neap_segments *segments, uint64_t k) {
  if (segments == NULL) {
    return 0;
  }
  if (k >= segments->n_segments) {
    return segments->n_stages;
  }
  return ratio_floor(k, segments->n_stages, segments->n_segments);
}

int neap_segments_is_boundary(const neap_segments *segments, uint64_t stage) {
  if (segments == NULL) {
    return neap__error(NEAP_ERR_INVALID, "segments is NULL");
  }
  if (stage >= segments->n_stages) {
    return 0;
  }
  /* the first segment that starts at the stage or after it */
  uint64_t k = ratio_ceil(stage, segments->n_segments, segments->n_stages);
  return stage == segments->n_stages - 1 ||
         (k < segments->n_segments && neap_segments_start(segments, k) == stage);
}

float neap_segments_kept_fraction(const neap_segments *segments) {
  return segments == NULL ? 0.0f : (float)segments->n_segments / (float)segments->n_stages;
}

int neap_segments_record(neap_segments *segments, uint64_t k, const float *data, uint64_t n) {
  if (segments == NULL || (data == NULL && n > 0)) {
    return neap__error(NEAP_ERR_INVALID, "%s of segment %llu is NULL",
                       segments == NULL ? "segments" : "output", (unsigned long long)k);
  }
  if (k >= segments->n_segments) {
    return neap__error(NEAP_ERR_SEGMENT, "invalid segment index: %llu", (unsigned long long)k);
  }
  size_t bytes;
  if (__builtin_mul_overflow(n, sizeof(float), &bytes)) {
    return neap__error(NEAP_ERR_OVERFLOW, "the bytes of %llu elements do not fit in 64 bits",
                       (unsigned long long)n);
  }
  float *copy = neap__host_alloc(bytes > 0 ? bytes : sizeof(float));
  if (copy == NULL) {
    return neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for %llu bytes of segment %llu",
                       (unsigned long long)bytes, (unsigned long long)k);
  }
  if (bytes > 0) {
    memcpy(copy, data, bytes);
  }
  neap__host_free(segments->slots[k].data);
  segments->slots[k] = (slot){copy, n};
  return NEAP_OK;
}

int neap_segments_get(const neap_segments *segments, uint64_t k, const float **data, uint64_t *n) {
  if (segments == NULL || data == NULL || n == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_segments_get was given a NULL");
  }
  // no such segment reads like nothing recorded
  int there = k < segments->n_segments && segments->slots[k].data != NULL;
  *data = there ? segments->slots[k].data : NULL;
  *n = there ? segments->slots[k].n : 0;
  return NEAP_OK;
}
