/* How many items fit, from what one takes: arithmetic alone, in 64 bits, nothing wraps. */
#include <math.h>

#include "chunk/chunk.h"

uint64_t neap__chunk_cap(uint64_t cap) {
  return cap < 1 ? 1 : cap;
}

uint64_t neap__chunk_floor(uint64_t floor, uint64_t cap) {
  floor = floor < 1 ? 1 : floor;
  return floor < cap ? floor : cap;
}

uint64_t neap__chunk_next(uint64_t n, uint64_t cap) {
  return n > cap / 2 ? cap : 2 * n;
}

int neap__chunk_fits(uint64_t n, uint64_t item_bytes, uint64_t budget, uint64_t *bytes) {
  if (__builtin_mul_overflow(n, item_bytes, bytes)) {
    *bytes = UINT64_MAX;
    return 0;
  }
  return *bytes <= budget;
}

int neap_chunk_target(double target, float *effective) {
  if (effective == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_chunk_target needs a place for its result");
  }
  if (isnan(target)) {
    return neap__error(NEAP_ERR_INVALID,
                       "the target fraction of memory is NaN; expected a number, 0.05 to 0.95");
  }
  /* into the range of a float first; then as a float, like the source system */
  float share = (float)(target < 0.0 ? 0.0 : target > 1.0 ? 1.0 : target);
  *effective = share < 0.05f ? 0.05f : share > 0.95f ? 0.95f : share;
  return NEAP_OK;
}

int neap_chunk_budget(uint64_t free_bytes, double target, uint64_t *bytes) {
  float share;
  if (bytes == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_chunk_budget needs a place for its result");
  }
  int code = neap_chunk_target(target, &share);
  if (code == NEAP_OK) {
    /* at most 2^64 * 0.475 */
    *bytes = (uint64_t)((double)free_bytes * (double)share * 0.5);
  }
  return code;
}

int neap_chunk_from_measurements(uint64_t free_bytes, uint64_t item_bytes, uint64_t cap,
                                 uint64_t floor, double target, uint64_t *n) {
  uint64_t budget, bytes;
  if (n == NULL) {
    return neap__error(NEAP_ERR_INVALID,
                       "neap_chunk_from_measurements needs a place for its result");
  }
  int code = neap_chunk_budget(free_bytes, target, &budget);
  if (code != NEAP_OK) {
    return code;
  }
  cap = neap__chunk_cap(cap);
  item_bytes = item_bytes < 1 ? 1 : item_bytes;
  uint64_t at = neap__chunk_floor(floor, cap);
  int fits = neap__chunk_fits(at, item_bytes, budget, &bytes);
  while (at < cap && neap__chunk_fits(neap__chunk_next(at, cap), item_bytes, budget, &bytes)) {
    at = neap__chunk_next(at, cap);
  }
  *n = at;
  return fits;
}
