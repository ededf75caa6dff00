/* multiply: y = a b, b repeated over a's leading dims. Saves a for db, b for da.
 * da may be dy: db is computed first.
 */
#include "cpu/broadcast.h"

static void multiply_range(const void *args, int64_t first, int64_t last) {
  broadcast_range(args, first, last, v_multiply);
}

int neap__cpu_multiply_forward(const neap_call *call) {
  broadcast_args args = {call->in[0]->data,       call->in[1]->data,       call->out[0]->data,
                         call->in[0]->n_elements, call->in[1]->n_elements, 0};
  broadcast_run(&args, multiply_range);
  return NEAP_OK;
}

int neap__cpu_multiply_backward(const neap_call *call) {
  const neap_view *dy = call->grad_out[0]; /* (rows,cols) */
  int64_t n = dy->n_elements, cols = call->in[1]->n_elements;
  if (call->grad_in[1] && cols == n) {
    broadcast_args args = {dy->data, call->in[0]->data,  call->grad_in[1]->data, n,
                           n,        call->accumulate[1]};
    broadcast_run(&args, multiply_range);
  } else if (call->grad_in[1] && cols > 0) {
    neap__cpu_sum_rows(dy->data, call->in[0]->data, n / cols, cols, call->scratch,
                       call->grad_in[1]->data, call->accumulate[1]);
  }
  if (call->grad_in[0]) {
    broadcast_args args = {dy->data, call->in[1]->data,  call->grad_in[0]->data, n,
                           cols,     call->accumulate[0]};
    broadcast_run(&args, multiply_range);
  }
  return NEAP_OK;
}
