/* to += from, and to += weight (from - to). */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

typedef struct {
  float *to;
  const float *from;
} accumulate_args;

static void accumulate_range(const void *arg, int64_t first, int64_t last) {
  const accumulate_args *args = arg;
  v_add_to(args->to + first, args->from + first, last - first);
}

int neap__cpu_accumulate(void *context, const neap_view *to, const neap_view *from) {
  (void)context;
  accumulate_args args = {to->data, from->data};
  neap__cpu_parallel(to->n_elements, 1, accumulate_range, &args);
  return NEAP_OK;
}

typedef struct {
  float *to;
  const float *from;
  float weight;
} lerp_args;

static void lerp_range(const void *arg, int64_t first, int64_t last) {
  const lerp_args *args = arg;
  for (int64_t i = first; i < last; i++) {
    args->to[i] += args->weight * (args->from[i] - args->to[i]);
  }
}

int neap__cpu_lerp(void *context, const neap_view *to, const neap_view *from, double weight) {
  (void)context;
  lerp_args args = {to->data, from->data, (float)weight};
  neap__cpu_parallel(to->n_elements, 1, lerp_range, &args);
  return NEAP_OK;
}
