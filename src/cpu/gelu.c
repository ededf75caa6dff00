/* gelu, tanh form (Hendrycks & Gimpel 2016): x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).
 * Since (1 + tanh(u)) / 2 = sigmoid(2u), one exponential does and nothing cancels for x < 0.
 * Saves x (any); dx may be dy.
 */
#include "cpu/activation.h"

static const float linear = 1.5957691216057308f;  /* 2 sqrt(2/pi) */
static const float cubic = 0.071354816272600247f; /* that times 0.044715 */

NEAP_INLINE vf gelu(vf x) {
  vf inner = v_fma(v_set(cubic) * x, x, v_set(linear));
  return x * v_sigmoid(inner * x);
}

/* s + x s (1 - s) (linear + 3 cubic x^2) */
NEAP_INLINE vf gelu_backward(vf x, vf dy) {
  vf square = x * x;
  vf s = v_sigmoid(v_fma(v_set(cubic), square, v_set(linear)) * x);
  vf slope = v_fma(v_set(3.0f * cubic), square, v_set(linear));
  return dy * v_fma(x * s * (1.0f - s), slope, s);
}

static void forward_range(const void *call, int64_t first, int64_t last) {
  activate(call, first, last, gelu);
}

static void backward_range(const void *call, int64_t first, int64_t last) {
  activate_backward(call, first, last, gelu_backward);
}

int neap__cpu_gelu_forward(const neap_call *call) {
  neap__cpu_parallel(call->in[0]->n_elements, 1, forward_range, call);
  return NEAP_OK;
}

int neap__cpu_gelu_backward(const neap_call *call) {
  if (call->grad_in[0]) {
    neap__cpu_parallel(call->grad_in[0]->n_elements, 1, backward_range, call);
  }
  return NEAP_OK;
}
