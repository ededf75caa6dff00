/* subtract: y = a - b, b repeated over a's leading dims. Saves nothing.
 * da is dy itself, passed on by the core; db = -dy, summed over those dims in fixed blocks of rows.
 */
#include "cpu/broadcast.h"

static void subtract_range(const void *args, int64_t first, int64_t last) {
  broadcast_range(args, first, last, v_subtract);
}

typedef struct {
  const float *from; /* (n) */
  float *to;         /* (n) */
  int accumulate;
} negate_args;

NEAP_INLINE vf negated(vf x, vf unused) {
  (void)unused;
  return -x;
}

static void negate_range(const void *arg, int64_t first, int64_t last) {
  const negate_args *args = arg;
  v_map2(args->to, args->from, args->from, first, last, args->accumulate, negated);
}

int neap__cpu_subtract_forward(const neap_call *call) {
  broadcast_args args = {call->in[0]->data,       call->in[1]->data,       call->out[0]->data,
                         call->in[0]->n_elements, call->in[1]->n_elements, 0};
  broadcast_run(&args, subtract_range);
  return NEAP_OK;
}

int neap__cpu_subtract_backward(const neap_call *call) {
  const neap_view *dy = call->grad_out[0], *db = call->grad_in[1]; /* (rows,cols), (cols) */
  if (db == NULL || db->n_elements == 0) {
    return NEAP_OK;
  }
  int64_t cols = db->n_elements, rows = dy->n_elements / cols;
  negate_args args = {dy->data, db->data, call->accumulate[1]};
  if (rows != 1) {
    float *sum = (float *)call->scratch + neap__row_blocks(rows) * cols;
    neap__cpu_sum_rows(dy->data, NULL, rows, cols, call->scratch, sum, 0);
    args.from = sum;
  }
  neap__cpu_parallel(cols, 1, negate_range, &args);
  return NEAP_OK;
}
