/* matmul: c = op(a) op(b) for every matrix of the leading dims, where op transposes or not;
 * a b without leading dims is shared by all matrices. Saves a, b.
 * With A = op(a), B = op(b): dA = dC B^T, dB = A^T dC; where a is stored transposed the product is
 * taken the other way round, da = B dC^T. The gradient of a shared b sums over matrices in order.
 */
#include "cpu/cpu.h"

typedef struct {
  int trans_a, trans_b;
  int64_t n_batches, m, n, k;
  int64_t a_stride, b_stride, c_stride;
} product;

static product describe(const neap_call *call, const neap_view *c) {
  const neap_view *a = call->in[0], *b = call->in[1];
  product p = {.trans_a = call->attrs[0] != 0.0, .trans_b = call->attrs[1] != 0.0};
  int64_t a_rows = a->dims[a->n_dims - 2], a_cols = a->dims[a->n_dims - 1];
  p.m = p.trans_a ? a_cols : a_rows;
  p.k = p.trans_a ? a_rows : a_cols;
  p.n = c->dims[c->n_dims - 1];
  p.n_batches = 1;
  for (int i = 0; i + 2 < a->n_dims; i++) {
    p.n_batches *= a->dims[i];
  }
  int is_shared = b->n_dims == 2 && a->n_dims > 2;
  if (is_shared && !p.trans_a) { /* rows that follow each other: one tall matrix */
    p.m *= p.n_batches;
    p.n_batches = 1;
    is_shared = 0;
  }
  p.a_stride = p.m * p.k;
  p.b_stride = is_shared ? 0 : p.k * p.n;
  p.c_stride = p.m * p.n;
  return p;
}

int neap__cpu_matmul_forward(const neap_call *call) {
  product p = describe(call, call->out[0]);
  return neap__cpu_gemm_batch(p.n_batches, p.trans_a, p.trans_b, p.m, p.n, p.k, call->in[0]->data,
                              p.a_stride, call->in[1]->data, p.b_stride, 0.0f, call->out[0]->data,
                              p.c_stride);
}

int neap__cpu_matmul_backward(const neap_call *call) {
  product p = describe(call, call->grad_out[0]);
  const float *a = call->in[0]->data, *b = call->in[1]->data, *dc = call->grad_out[0]->data;
  const neap_view *da = call->grad_in[0], *db = call->grad_in[1];
  float beta_a = call->accumulate[0] ? 1.0f : 0.0f, beta_b = call->accumulate[1] ? 1.0f : 0.0f;
  int code = NEAP_OK;
  if (da && p.trans_a) {
    code = neap__cpu_gemm_batch(p.n_batches, p.trans_b, 1, p.k, p.m, p.n, b, p.b_stride, dc,
                                p.c_stride, beta_a, da->data, p.a_stride);
  } else if (da) {
    code = neap__cpu_gemm_batch(p.n_batches, 0, !p.trans_b, p.m, p.k, p.n, dc, p.c_stride, b,
                                p.b_stride, beta_a, da->data, p.a_stride);
  }
  if (code != NEAP_OK || !db) {
    return code;
  }
  if (p.n_batches == 0) { /* the sum over no matrices */
    return call->accumulate[1] || db->n_elements == 0
               ? NEAP_OK
               : neap__cpu_zero(call->context, db->data, (size_t)db->n_elements * sizeof(float));
  }
  if (p.trans_b) {
    return neap__cpu_gemm_batch(p.n_batches, 1, p.trans_a, p.n, p.k, p.m, dc, p.c_stride, a,
                                p.a_stride, beta_b, db->data, p.b_stride);
  }
  return neap__cpu_gemm_batch(p.n_batches, !p.trans_a, 0, p.k, p.n, p.m, a, p.a_stride, dc,
                              p.c_stride, beta_b, db->data, p.b_stride);
}
