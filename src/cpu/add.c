/* add: y = a + b, b repeated over a's leading dims. Saves nothing.
 * db sums dy over those dims in fixed blocks of rows; equal shapes get dy passed on by the core.
 */
#include "cpu/broadcast.h"

static void add_range(const void *args, int64_t first, int64_t last) {
  broadcast_range(args, first, last, v_add);
}

int neap__cpu_add_forward(const neap_call *call) {
  broadcast_args args = {call->in[0]->data,       call->in[1]->data,       call->out[0]->data,
                         call->in[0]->n_elements, call->in[1]->n_elements, 0};
  broadcast_run(&args, add_range);
  return NEAP_OK;
}

/* to (n) = or += dy (n) */
static void pass_on(const neap_call *call, int input) {
  const neap_view *dy = call->grad_out[0], *to = call->grad_in[input];
  if (call->accumulate[input]) {
    neap__cpu_accumulate(call->context, to, dy);
  } else {
    neap__cpu_copy(call->context, to->data, dy->data, (size_t)dy->n_elements * sizeof(float));
  }
}

int neap__cpu_add_backward(const neap_call *call) {
  const neap_view *dy = call->grad_out[0]; /* (rows,cols) */
  if (call->grad_in[1]) {
    int64_t cols = call->grad_in[1]->n_elements;
    if (cols == dy->n_elements) {
      pass_on(call, 1);
    } else if (cols > 0) {
      neap__cpu_sum_rows(dy->data, NULL, dy->n_elements / cols, cols, call->scratch,
                         call->grad_in[1]->data, call->accumulate[1]);
    }
  }
  if (call->grad_in[0]) {
    pass_on(call, 0);
  }
  return NEAP_OK;
}
