/* Fills. Random ones are a function of key and element alone: element e draws from Philox block
 * (e / 4, 0). Uniform: lane e % 4. Normal: lanes 0 and 1 make elements 0 and 1 of the four by
 * Box-Muller, lanes 2 and 3 the other two.
 */
#include "cpu/cpu.h"
#include "philox.h"
#include <string.h>

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

typedef struct {
  float *to; /* (any) */
  int64_t n;
  int normal;
  float a, b; /* normal: mean, deviation; uniform: from, to */
  uint64_t key;
} random_args;

/* An item is one Philox block of four elements. */
static void random_range(const void *arg, int64_t first, int64_t last) {
  const random_args *args = arg;
  for (int64_t block = first; block < last; block++) {
    uint32_t words[4];
    float values[4];
    neap__philox(args->key, (uint64_t)block, 0, words);
    if (args->normal) {
      neap__normal(words[0], words[1], values);
      neap__normal(words[2], words[3], values + 2);
    }
    for (int64_t i = 0; i < 4 && 4 * block + i < args->n; i++) {
      args->to[4 * block + i] = args->normal
                                    ? args->a + args->b * values[i]
                                    : args->a + (args->b - args->a) * neap__uniform(words[i]);
    }
  }
}

int neap__cpu_fill_random(void *context, const neap_view *to, int normal, double a, double b,
                          uint64_t key) {
  (void)context;
  random_args args = {to->data, to->n_elements, normal, (float)a, (float)b, key};
  neap__cpu_parallel((to->n_elements + 3) / 4, 64, random_range, &args);
  return NEAP_OK;
}
