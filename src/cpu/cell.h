/* What the cells share: rows of several gates side by side, worked on a vector of the width at a
 * time; the last, partial one goes through the same functions, padded with zeros.
 */
#ifndef NEAP_CPU_CELL_H
#define NEAP_CPU_CELL_H

#include "cpu/cpu.h"
#include "cpu/vmath.h"

NEAP_INLINE vf cell_load(const float *p, int64_t n) {
  return n < NEAP_LANES ? v_load_n(p, n) : v_load(p);
}

/* zeros where nothing flows */
NEAP_INLINE vf cell_load_any(const float *p, int64_t at, int64_t n) {
  if (p == NULL) {
    return v_set(0.0f);
  }
  return cell_load(p + at, n);
}

NEAP_INLINE void cell_store(float *p, vf v, int64_t n) {
  if (n < NEAP_LANES) {
    v_store_n(p, v, n);
  } else {
    v_store(p, v);
  }
}

NEAP_INLINE void cell_give(float *p, vf v, int64_t n, int accumulate) {
  cell_store(p, accumulate ? cell_load(p, n) + v : v, n);
}

/* slopes of y = sigmoid(x) and y = tanh(x) */
NEAP_INLINE vf sigmoid_slope(vf y) {
  return y * (1.0f - y);
}

NEAP_INLINE vf tanh_slope(vf y) {
  return v_fma(-y, y, v_set(1.0f));
}

/* Runs body(call, row, j, n) for each piece of n <= NEAP_LANES of each row's width. */
NEAP_INLINE void cell_rows(const neap_call *call, int64_t width, int64_t first, int64_t last,
                           void (*body)(const neap_call *, int64_t, int64_t, int64_t)) {
  for (int64_t row = first; row < last; row++) {
    for (int64_t j = 0; j < width; j += NEAP_LANES) {
      body(call, row, j, width - j < NEAP_LANES ? width - j : NEAP_LANES);
    }
  }
}

#endif
