/* Fills. Random ones are a function of key and element alone, in groups of 64 elements that draw
 * words 0..63 of 16 Philox blocks (blocks 16 g .. 16 g + 15, item 0) for group g. Uniform: element
 * i of the group takes word i, which is lane e % 4 of block e / 4. Normal: words i and 32 + i make
 * elements i and 32 + i by Box-Muller, radius from the first, angle from the second.
 */
#include "cpu/cpu.h"
#include "cpu/vrandom.h"

typedef struct {
  void *to;
  union {
    float f32;
    int32_t i32;
    uint16_t bf16;
  } value;
} fill_args;

static void fill_words(const void *arg, int64_t first, int64_t last) {
  const fill_args *args = arg;
  int32_t *to = args->to;
  for (int64_t i = first; i < last; i++) {
    to[i] = args->value.i32; /* f32 has the same size: its bits are here */
  }
}

static void fill_halves(const void *arg, int64_t first, int64_t last) {
  const fill_args *args = arg;
  uint16_t *to = args->to;
  for (int64_t i = first; i < last; i++) {
    to[i] = args->value.bf16;
  }
}

/* Nearest, ties to even. */
static uint16_t bf16_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return (uint16_t)(bits >> 16 | 64u); /* NaN stays NaN */
  }
  return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

int neap__cpu_fill(void *context, const neap_view *to, double value) {
  (void)context;
  fill_args args = {.to = to->data};
  if (to->dtype == NEAP_BF16) {
    args.value.bf16 = bf16_of((float)value);
    neap__cpu_parallel(to->n_elements, 1, fill_halves, &args);
    return NEAP_OK;
  }
  if (to->dtype == NEAP_I32) {
    args.value.i32 = (int32_t)value;
  } else {
    args.value.f32 = (float)value;
  }
  neap__cpu_parallel(to->n_elements, 1, fill_words, &args);
  return NEAP_OK;
}

/* ln x within 2 units in the last place for normal x > 0: x = 2^e m, m in [sqrt(1/2), sqrt(2)); the
 * polynomial is the one of Cephes. */
NEAP_INLINE vf v_log(vf x) {
  vi offset = (vi)x - 0x3F3504F3; /* sqrt(1/2) */
  vi exponent = offset >> 23;
  vf e = __builtin_convertvector(exponent, vf);
  vf f = (vf)((vu)x - ((vu)exponent << 23)) - 1.0f;
  vf f2 = f * f;
  static const float terms[] = {-1.1514610310e-1f, 1.1676998740e-1f,  -1.2420140846e-1f,
                                1.4249322787e-1f,  -1.6668057665e-1f, 2.0000714765e-1f,
                                -2.4999993993e-1f, 3.3333331174e-1f};
  vf p = v_set(7.0376836292e-2f);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    p = v_fma(p, f, v_set(terms[i]));
  }
  vf y = v_fma(e, v_set(-2.12194440e-4f), p * f * f2);
  y = v_fma(f2, v_set(-0.5f), y);
  return v_fma(e, v_set(0.693359375f), f + y);
}

/* cos and sin of 2 pi u, 0 <= u < 1: a quarter turn q and the rest of at most an eighth. */
NEAP_INLINE void v_turn(vf u, vf *cosine, vf *sine) {
  vf t = 4.0f * u, rounded = t + 0x1.8p23f;
  vu q = (vu)rounded;
  vf a = (t - (rounded - 0x1.8p23f)) * 1.57079632679489662f, z = a * a;
  vf s = v_fma(v_set(-1.9515295891e-4f), z, v_set(8.3321608736e-3f));
  s = v_fma(v_fma(s, z, v_set(-1.6666654611e-1f)) * z, a, a);
  vf c = v_fma(v_set(2.443315711809948e-5f), z, v_set(-1.388731625493765e-3f));
  c = v_fma(c, z, v_set(4.166664568298827e-2f));
  c = v_fma(c * z, z, v_fma(v_set(-0.5f), z, v_set(1.0f)));
  vi is_odd = (vi)(q & 1u) != 0;
  *cosine = (vf)((vu)v_select(is_odd, s, c) ^ ((q + 1u) & 2u) << 30);
  *sine = (vf)((vu)v_select(is_odd, c, s) ^ (q & 2u) << 30);
}

typedef struct {
  float *to; /* (any) */
  int64_t n;
  float a, b; /* normal: mean, deviation; uniform: lowest, width */
  uint64_t key;
} random_args;

static void normal_group(const uint32_t *words, float mean, float deviation, float *to) {
  enum { HALF = NEAP_BATCH_WORDS / 2 };
  for (int i = 0; i < HALF; i += NEAP_LANES) {
    /* 1 - uniform is in (0, 1]: no logarithm of 0 */
    vf radius = v_sqrt(-2.0f * v_log(1.0f - v_uniform(words + i))), cosine, sine;
    v_turn(v_uniform(words + HALF + i), &cosine, &sine);
    v_store(to + i, v_fma(v_set(deviation) * radius, cosine, v_set(mean)));
    v_store(to + HALF + i, v_fma(v_set(deviation) * radius, sine, v_set(mean)));
  }
}

static void uniform_group(const uint32_t *words, float lowest, float width, float *to) {
  for (int i = 0; i < NEAP_BATCH_WORDS; i += NEAP_LANES) {
    v_store(to + i, v_fma(v_set(width), v_uniform(words + i), v_set(lowest)));
  }
}

/* An item is a group. */
NEAP_INLINE void fill_groups(const random_args *args, int64_t first, int64_t last, int is_normal) {
  for (int64_t group = first; group < last; group++) {
    uint32_t words[NEAP_BATCH_WORDS];
    float values[NEAP_BATCH_WORDS] = {0};
    int64_t at = group * NEAP_BATCH_WORDS, n = args->n - at;
    float *to = n < NEAP_BATCH_WORDS ? values : args->to + at;
    v_random_batch(args->key, (uint64_t)(group * NEAP_BATCH_BLOCKS), 0, words);
    if (is_normal) {
      normal_group(words, args->a, args->b, to);
    } else {
      uniform_group(words, args->a, args->b, to);
    }
    if (to == values) {
      memcpy(args->to + at, values, (size_t)n * sizeof *values);
    }
  }
}

static void normal_range(const void *args, int64_t first, int64_t last) {
  fill_groups(args, first, last, 1);
}

static void uniform_range(const void *args, int64_t first, int64_t last) {
  fill_groups(args, first, last, 0);
}

int neap__cpu_fill_random(void *context, const neap_view *to, int normal, double a, double b,
                          uint64_t key) {
  (void)context;
  random_args args = {to->data, to->n_elements, (float)a, (float)(normal ? b : b - a), key};
  int64_t groups = (to->n_elements + NEAP_BATCH_WORDS - 1) / NEAP_BATCH_WORDS;
  neap__cpu_parallel(groups, 4 * NEAP_BATCH_WORDS, normal ? normal_range : uniform_range, &args);
  return NEAP_OK;
}
