/* relu: max(x, 0); the slope at 0 is 0; NaN stays NaN. Saves y, which the next layer is likely to
 * save too; dx may be dy. */
#include "cpu/activation.h"

NEAP_INLINE vf relu(vf x) {
  return v_max((vf){0}, x);
}

NEAP_INLINE vf relu_backward(vf y, vf dy) {
  return v_keep(y > 0.0f, dy);
}

static void forward_range(const void *call, int64_t first, int64_t last) {
  activate(call, first, last, relu);
}

static void backward_range(const void *call, int64_t first, int64_t last) {
  activate_backward_from_output(call, first, last, relu_backward);
}

int neap__cpu_relu_forward(const neap_call *call) {
  neap__cpu_parallel(call->in[0]->n_elements, 1, forward_range, call);
  return NEAP_OK;
}

int neap__cpu_relu_backward(const neap_call *call) {
  if (call->grad_in[0]) {
    neap__cpu_parallel(call->grad_in[0]->n_elements, 1, backward_range, call);
  }
  return NEAP_OK;
}
