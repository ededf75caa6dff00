/* What the activation ops share: y = f(x), dx = dy f'(x). An op gives f and f' for one vector. */
#ifndef NEAP_CPU_ACTIVATION_H
#define NEAP_CPU_ACTIVATION_H

#include "cpu/cpu.h"
#include "cpu/vmath.h"

NEAP_INLINE void activate(const neap_call *call, int64_t first, int64_t last, vf (*f)(vf)) {
  v_map(call->out[0]->data, call->in[0]->data, first, last, f);
}

NEAP_INLINE void activate_slope(const neap_call *call, const float *of, int64_t first, int64_t last,
                                vf (*f)(vf, vf)) {
  const float *dy = call->grad_out[0]->data;
  float *dx = call->grad_in[0]->data;
  if (call->accumulate[0]) {
    v_map2(dx, of, dy, first, last, 1, f);
  } else {
    v_map2(dx, of, dy, first, last, 0, f);
  }
}

/* f: dx of (x, dy). dx may be dy. */
NEAP_INLINE void activate_backward(const neap_call *call, int64_t first, int64_t last,
                                   vf (*f)(vf, vf)) {
  activate_slope(call, call->in[0]->data, first, last, f);
}

/* f: dx of (y, dy). dx may be dy. */
NEAP_INLINE void activate_backward_from_output(const neap_call *call, int64_t first, int64_t last,
                                               vf (*f)(vf, vf)) {
  activate_slope(call, call->out[0]->data, first, last, f);
}

#endif
