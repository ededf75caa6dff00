/* Sums over planes: the consecutive elements that one channel has in one image. */
#ifndef NEAP_CPU_PLANES_H
#define NEAP_CPU_PLANES_H

#include "cpu/vmath.h"

/* Sum of f(x, y) over n elements, as f inlines; y may be NULL where f does not use it. */
NEAP_INLINE float plane_sum(const float *x, const float *y, int64_t n, vf a, vf b,
                            vf (*f)(vf x, vf y, vf a, vf b)) {
  vf sums[2] = {{0}, {0}};
  int64_t i = 0;
  for (; i + 2 * NEAP_LANES <= n; i += 2 * NEAP_LANES) {
    sums[0] += f(v_load(x + i), y ? v_load(y + i) : (vf){0}, a, b);
    sums[1] += f(v_load(x + i + NEAP_LANES), y ? v_load(y + i + NEAP_LANES) : (vf){0}, a, b);
  }
  for (; i + NEAP_LANES <= n; i += NEAP_LANES) {
    sums[0] += f(v_load(x + i), y ? v_load(y + i) : (vf){0}, a, b);
  }
  float rest = 0.0f;
  for (; i < n; i++) {
    rest += f(v_set(x[i]), v_set(y ? y[i] : 0.0f), a, b)[0];
  }
  return v_sum(sums[0] + sums[1]) + rest;
}

#endif
