/* silu: x sigmoid(x) (Elfwing et al. 2017). Saves x (any); dx may be dy. */
#include "cpu/activation.h"

NEAP_INLINE vf silu(vf x) {
  return x * v_sigmoid(x);
}

/* s + x s (1 - s) */
NEAP_INLINE vf silu_backward(vf x, vf dy) {
  vf s = v_sigmoid(x);
  return dy * v_fma(x * s, 1.0f - s, s);
}

static void forward_range(const void *call, int64_t first, int64_t last) {
  activate(call, first, last, silu);
}

static void backward_range(const void *call, int64_t first, int64_t last) {
  activate_backward(call, first, last, silu_backward);
}

int neap__cpu_silu_forward(const neap_call *call) {
  neap__cpu_parallel(call->in[0]->n_elements, 1, forward_range, call);
  return NEAP_OK;
}

int neap__cpu_silu_backward(const neap_call *call) {
  if (call->grad_in[0]) {
    neap__cpu_parallel(call->grad_in[0]->n_elements, 1, backward_range, call);
  }
  return NEAP_OK;
}
