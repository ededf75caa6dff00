/* scale: y = s x, with s an attribute. Saves nothing; dx may be dy. */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

typedef struct {
  float factor;
  const float *from; /* (any) */
  float *to;         /* (any) */
  int accumulate;
} scale_args;

static void scale_range(const void *arg, int64_t first, int64_t last) {
  const scale_args *args = arg;
  for (int64_t i = first; i < last; i++) {
    float y = args->factor * args->from[i];
    args->to[i] = args->accumulate ? args->to[i] + y : y;
  }
}

int neap__cpu_scale_forward(const neap_call *call) {
  scale_args args = {(float)call->attrs[0], call->in[0]->data, call->out[0]->data, 0};
  neap__cpu_parallel(call->in[0]->n_elements, 1, scale_range, &args);
  return NEAP_OK;
}

int neap__cpu_scale_backward(const neap_call *call) {
  if (call->grad_in[0]) {
    scale_args args = {(float)call->attrs[0], call->grad_out[0]->data, call->grad_in[0]->data,
                       call->accumulate[0]};
    neap__cpu_parallel(call->grad_in[0]->n_elements, 1, scale_range, &args);
  }
  return NEAP_OK;
}
