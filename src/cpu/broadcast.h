/* y = f(a, b) where b is repeated over a's leading dims: a (rows,cols), b (cols). Equal shapes are
 * one long row; a scalar b is one value for all. f is inlined.
 */
#ifndef NEAP_CPU_BROADCAST_H
#define NEAP_CPU_BROADCAST_H

#include "cpu/cpu.h"
#include "cpu/vmath.h"

typedef struct {
  const float *a;  /* (rows,cols) */
  const float *b;  /* (cols) */
  float *y;        /* (rows,cols), may be a */
  int64_t n, cols; /* elements of a, of b */
  int accumulate;  /* y += instead of y = */
} broadcast_args;

NEAP_INLINE void broadcast_scalar(const broadcast_args *args, int64_t first, int64_t last,
                                  vf (*f)(vf, vf)) {
  vf b = v_set(args->b[0]);
  const float *a = args->a;
  float *y = args->y;
  int64_t i = first;
  for (; i + NEAP_LANES <= last; i += NEAP_LANES) {
    vf value = f(v_load(a + i), b);
    v_store(y + i, args->accumulate ? v_load(y + i) + value : value);
  }
  if (i < last) {
    int64_t n = last - i;
    vf value = f(v_load_n(a + i, n), b);
    v_store_n(y + i, args->accumulate ? v_load_n(y + i, n) + value : value, n);
  }
}

/* The body of a neap__cpu_range: elements where b is no row, else rows. */
NEAP_INLINE void broadcast_range(const broadcast_args *args, int64_t first, int64_t last,
                                 vf (*f)(vf, vf)) {
  if (args->cols == args->n) {
    v_map2(args->y, args->a, args->b, first, last, args->accumulate, f);
  } else if (args->cols == 1) {
    broadcast_scalar(args, first, last, f);
  } else {
    for (int64_t row = first; row < last; row++) {
      int64_t at = row * args->cols;
      v_map2(args->y + at, args->a + at, args->b, 0, args->cols, args->accumulate, f);
    }
  }
}

NEAP_INLINE void broadcast_run(const broadcast_args *args, neap__cpu_range range) {
  if (args->n == 0) {
    return;
  }
  int is_rows = args->cols != args->n && args->cols != 1;
  neap__cpu_parallel(is_rows ? args->n / args->cols : args->n, is_rows ? args->cols : 1, range,
                     args);
}

#endif
