/* Vectors of floats as the compiler's vector types, and the few functions kernels need on them.
 *
 * NEAP_LANES floats fill one register of the machine this is compiled for. Sums keep their partial
 * sums in a fixed number of lanes and add them in a fixed order: their bits depend on the length
 * alone, never on threads. The last, partial vector of a row goes through the same functions as the
 * others, padded with zeros: the bits of an element do not depend on its place.
 */
#ifndef NEAP_VMATH_H
#define NEAP_VMATH_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { NEAP_LANES = 16 };
#elif defined(__AVX__)
enum { NEAP_LANES = 8 };
#else
enum { NEAP_LANES = 4 };
#endif

typedef float vf __attribute__((vector_size(NEAP_LANES * sizeof(float))));
typedef int32_t vi __attribute__((vector_size(NEAP_LANES * sizeof(int32_t))));
typedef uint32_t vu __attribute__((vector_size(NEAP_LANES * sizeof(uint32_t))));

#define NEAP_INLINE static inline __attribute__((always_inline, unused))

NEAP_INLINE vf v_load(const float *p) {
  vf v;
  memcpy(&v, p, sizeof v);
  return v;
}

NEAP_INLINE void v_store(float *p, vf v) {
  memcpy(p, &v, sizeof v);
}

/* The first n < NEAP_LANES floats, the others 0. */
NEAP_INLINE vf v_load_n(const float *p, int64_t n) {
  float lanes[NEAP_LANES] = {0};
  for (int64_t i = 0; i < n; i++) {
    lanes[i] = p[i];
  }
  return v_load(lanes);
}

NEAP_INLINE void v_store_n(float *p, vf v, int64_t n) {
  float lanes[NEAP_LANES];
  v_store(lanes, v);
  for (int64_t i = 0; i < n; i++) {
    p[i] = lanes[i];
  }
}

NEAP_INLINE vf v_set(float x) {
  return x - (vf){0}; /* minus keeps -0 */
}

/* a * b + c, rounded once where the machine can. The one place that names an instruction: -std=c11
 * forbids gcc to find it, -ffp-contract=fast would let it find others at its own discretion, which
 * costs equal bits between loops that mean the same, and a loop over lanes is not always seen
 * through. */
NEAP_INLINE vf v_fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return __builtin_ia32_vfmaddps512_mask(a, b, c, (uint16_t)-1, 4); /* 4: rounding as set */
#elif defined(__AVX__) && defined(__FMA__)
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__ARM_FEATURE_FMA)
  vf r = c;
  for (int i = 0; i < NEAP_LANES; i++) {
    r[i] = __builtin_fmaf(a[i], b[i], c[i]);
  }
  return r;
#else
  return a * b + c;
#endif
}

/* a where the mask (of a comparison) is set, else b. */
NEAP_INLINE vf v_select(vi mask, vf a, vf b) {
  return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* b where a or b is NaN: put the value that must stay NaN second. */
NEAP_INLINE vf v_max(vf a, vf b) {
  return v_select(a > b, a, b);
}

NEAP_INLINE vf v_min(vf a, vf b) {
  return v_select(a < b, a, b);
}

/* a where the mask (of a comparison) is set, else 0. */
NEAP_INLINE vf v_keep(vi mask, vf a) {
  return (vf)(mask & (vi)a);
}

NEAP_INLINE float v_sum(vf v) {
  float lanes[NEAP_LANES];
  v_store(lanes, v);
#pragma GCC unroll 4
  for (int width = NEAP_LANES / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; i++) {
      lanes[i] += lanes[i + width];
    }
  }
  return lanes[0];
}

NEAP_INLINE float v_highest(vf v) {
  float highest = v[0];
  for (int i = 1; i < NEAP_LANES; i++) {
    highest = v[i] > highest ? v[i] : highest;
  }
  return highest;
}

/* Four vectors of four, turned: r[i][j] becomes r[j][i]. */
typedef float v4 __attribute__((vector_size(16)));

NEAP_INLINE v4 v4_load(const float *p) {
  v4 v;
  memcpy(&v, p, sizeof v);
  return v;
}

NEAP_INLINE void v4_store(float *p, v4 v) {
  memcpy(p, &v, sizeof v);
}

NEAP_INLINE void v4_turn(v4 r[4]) {
  v4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  v4 b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  v4 c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  v4 d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

/* x = n ln 2 + r, |r| <= ln 2 / 2: returns r, and 2^(n + bias - 127) as *scale. n stands in the low
 * bits of t. */
NEAP_INLINE vf v_exp_reduce(vf x, uint32_t bias, vf *scale) {
  const float magic = 0x1.8p23f; /* adding it rounds to a whole number */
  vf t = v_fma(x, v_set(0x1.715476p+0f), v_set(magic));
  vf n = t - magic;
  vf r = v_fma(n, v_set(-0x1.62e4p-1f), x);
  *scale = (vf)(((vu)t << 23) + (bias << 23));
  return v_fma(n, v_set(-0x1.7f7d1cp-20f), r);
}

/* 2^(bias - 127) e^x = scale + scale (e^r - 1). The polynomial is the one of Arm's optimized
 * routines. */
NEAP_INLINE vf v_exp_biased(vf x, uint32_t bias) {
  vf scale, r = v_exp_reduce(x, bias, &scale);
  vf r2 = r * r;
  vf high = v_fma(v_set(0x1.0e4020p-7f), r, v_set(0x1.573e2ep-5f));
  vf low = v_fma(v_set(0x1.555e66p-3f), r, v_set(0x1.fffdb6p-2f));
  vf p = v_fma(v_fma(high, r2, low), r2, v_set(0x1.ffffecp-1f) * r);
  return v_fma(p, scale, scale);
}

/* e^x within 2 units in the last place: 0 below -87, infinity above 88.72, NaN stays NaN. */
NEAP_INLINE vf v_exp(vf x) {
  /* half of it first: n = 128 has a finite scale, n = -126 has 0 */
  vf y = v_exp_biased(v_max(v_set(-87.3f), v_min(v_set(89.0f), x)), 126);
  return y + y;
}

/* The same for x <= 88, cheaper; softmax needs no more. 0 below -87.7. */
NEAP_INLINE vf v_exp_below(vf x) {
  return v_exp_biased(v_max(v_set(-88.0f), x), 127);
}

/* Square root by Newton's method: the library's keeps compilers from vectorising, for errno. Right
 * to the last place or two for normal x >= 0; too small below 1e-38, NaN for infinity. */
NEAP_INLINE vf v_sqrt(vf x) {
  vf y = (vf)(0x5F3759DFu - ((vu)x >> 1)), half = -0.5f * x; /* y: about 1 / sqrt(x) */
#pragma GCC unroll 3
  for (int i = 0; i < 3; i++) {
    y *= v_fma(half * y, y, v_set(1.5f));
  }
  vf root = x * y;
  return v_fma(v_fma(-root, root, x), 0.5f * y, root);
}

/* 1 / (1 + e^-x). */
NEAP_INLINE vf v_sigmoid(vf x) {
  return 1.0f / (1.0f + v_exp(-x));
}

/* e^x - 1 for x <= 0, by Taylor's polynomial of e^r - 1: as exact near 0 as elsewhere. */
NEAP_INLINE vf v_expm1_below(vf x) {
  vf scale, r = v_exp_reduce(v_max(v_set(-88.0f), x), 127, &scale);
  vf q = v_fma(v_set(1.0f / 5040), r, v_set(1.0f / 720));
  q = v_fma(v_fma(q, r, v_set(1.0f / 120)), r, v_set(1.0f / 24));
  q = v_fma(v_fma(q, r, v_set(1.0f / 6)), r, v_set(0.5f));
  return v_fma(v_fma(q * r, r, r), scale, scale - 1.0f);
}

/* By e^-2|x| - 1, in which nothing cancels. 0 keeps its sign, NaN stays NaN. */
NEAP_INLINE vf v_tanh(vf x) {
  const vi sign = (vi)v_set(-0.0f);
  vf t = v_expm1_below(-2.0f * (vf)((vi)x & ~sign));
  return (vf)(((vi)(t / (2.0f + t)) & ~sign) | ((vi)x & sign));
}

/* Sum of n floats: 4 vectors of partial sums. */
NEAP_INLINE float v_row_sum(const float *x, int64_t n) {
  vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
  int64_t i = 0;
  for (; i + 4 * NEAP_LANES <= n; i += 4 * NEAP_LANES) {
    s0 += v_load(x + i);
    s1 += v_load(x + i + NEAP_LANES);
    s2 += v_load(x + i + 2 * NEAP_LANES);
    s3 += v_load(x + i + 3 * NEAP_LANES);
  }
  for (; i + NEAP_LANES <= n; i += NEAP_LANES) {
    s0 += v_load(x + i);
  }
  if (i < n) {
    s1 += v_load_n(x + i, n - i);
  }
  return v_sum((s0 + s1) + (s2 + s3));
}

/* to[i] = f(from[i]) for first <= i < last; f is inlined. */
NEAP_INLINE void v_map(float *to, const float *from, int64_t first, int64_t last, vf (*f)(vf)) {
  int64_t i = first;
  for (; i + NEAP_LANES <= last; i += NEAP_LANES) {
    v_store(to + i, f(v_load(from + i)));
  }
  if (i < last) {
    v_store_n(to + i, f(v_load_n(from + i, last - i)), last - i);
  }
}

/* to[i] = f(a[i], b[i]), or added to to[i]. */
NEAP_INLINE void v_map2(float *to, const float *a, const float *b, int64_t first, int64_t last,
                        int add, vf (*f)(vf, vf)) {
  int64_t i = first;
  for (; i + NEAP_LANES <= last; i += NEAP_LANES) {
    vf y = f(v_load(a + i), v_load(b + i));
    v_store(to + i, add ? v_load(to + i) + y : y);
  }
  if (i < last) {
    int64_t n = last - i;
    vf y = f(v_load_n(a + i, n), v_load_n(b + i, n));
    v_store_n(to + i, add ? v_load_n(to + i, n) + y : y, n);
  }
}

NEAP_INLINE vf v_add(vf a, vf b) {
  return a + b;
}

NEAP_INLINE vf v_subtract(vf a, vf b) {
  return a - b;
}

NEAP_INLINE vf v_multiply(vf a, vf b) {
  return a * b;
}

/* to[i] += from[i]. */
NEAP_INLINE void v_add_to(float *to, const float *from, int64_t n) {
  v_map2(to, to, from, 0, n, 0, v_add);
}

#endif
