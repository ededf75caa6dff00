/* tanh. Saves y: the slope is 1 - y^2; dx may be dy. */
#include "cpu/activation.h"

NEAP_INLINE vf tanh_backward(vf y, vf dy) {
  return dy * v_fma(-y, y, v_set(1.0f));
}

static void forward_range(const void *call, int64_t first, int64_t last) {
  activate(call, first, last, v_tanh);
}

static void backward_range(const void *call, int64_t first, int64_t last) {
  activate_backward_from_output(call, first, last, tanh_backward);
}

int neap__cpu_tanh_forward(const neap_call *call) {
  neap__cpu_parallel(call->in[0]->n_elements, 1, forward_range, call);
  return NEAP_OK;
}

int neap__cpu_tanh_backward(const neap_call *call) {
  if (call->grad_in[0]) {
    neap__cpu_parallel(call->grad_in[0]->n_elements, 1, backward_range, call);
  }
  return NEAP_OK;
}
