/* sigmoid: y = 1 / (1 + e^-x). Saves y: the slope is y (1 - y); dx may be dy. */
#include "cpu/activation.h"

NEAP_INLINE vf sigmoid_backward(vf y, vf dy) {
  return dy * (y * (1.0f - y));
}

static void forward_range(const void *call, int64_t first, int64_t last) {
  activate(call, first, last, v_sigmoid);
}

static void backward_range(const void *call, int64_t first, int64_t last) {
  activate_backward_from_output(call, first, last, sigmoid_backward);
}

int neap__cpu_sigmoid_forward(const neap_call *call) {
  neap__cpu_parallel(call->in[0]->n_elements, 1, forward_range, call);
  return NEAP_OK;
}

int neap__cpu_sigmoid_backward(const neap_call *call) {
  if (call->grad_in[0]) {
    neap__cpu_parallel(call->grad_in[0]->n_elements, 1, backward_range, call);
  }
  return NEAP_OK;
}
