/* linear: y = x w^T + bias over the last dim; x (rows,K), w (N,K), bias (N) or none. Saves x, w.
 * dx = dy w; dw = dy^T x; dbias = sum over rows of dy in fixed blocks.
 * The bias is what y holds before the product adds to it: no pass over y afterwards.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

typedef struct {
  const float *bias; /* (N) */
  float *y;          /* (rows,N) */
  int64_t cols;
} fill_args;

static void fill_rows(const void *arg, int64_t first, int64_t last) {
  const fill_args *args = arg;
  for (int64_t row = first; row < last; row++) {
    memcpy(args->y + row * args->cols, args->bias, (size_t)args->cols * sizeof(float));
  }
}

int neap__cpu_linear_forward(const neap_call *call) {
  const neap_view *x = call->in[0], *w = call->in[1];
  int64_t n = w->dims[0], k = w->dims[1];
  if (call->out[0]->n_elements == 0) {
    return NEAP_OK;
  }
  int64_t rows = call->out[0]->n_elements / n;
  int has_bias = call->n_inputs == 3;
  if (has_bias) {
    fill_args args = {call->in[2]->data, call->out[0]->data, n};
    neap__cpu_parallel(rows, n, fill_rows, &args);
  }
  return neap__cpu_gemm(0, 1, rows, n, k, x->data, k, w->data, k, has_bias ? 1.0f : 0.0f,
                        call->out[0]->data, n);
}

int neap__cpu_linear_backward(const neap_call *call) {
  const neap_view *dy = call->grad_out[0]; /* (rows,N) */
  int64_t n = call->in[1]->dims[0], k = call->in[1]->dims[1];
  int64_t rows = n > 0 ? dy->n_elements / n : 0;
  int code = NEAP_OK;
  if (call->n_inputs == 3 && call->grad_in[2]) {
    neap__cpu_sum_rows(dy->data, NULL, rows, n, call->scratch, call->grad_in[2]->data,
                       call->accumulate[2]);
  }
  if (call->grad_in[1]) {
    code = neap__cpu_gemm(1, 0, n, k, rows, dy->data, n, call->in[0]->data, k,
                          call->accumulate[1] ? 1.0f : 0.0f, call->grad_in[1]->data, k);
  }
  if (code == NEAP_OK && call->grad_in[0]) {
    int64_t x_rows = k > 0 ? call->grad_in[0]->n_elements / k : 0;
    code = neap__cpu_gemm(0, 0, x_rows, k, n, dy->data, n, call->in[1]->data, k,
                          call->accumulate[0] ? 1.0f : 0.0f, call->grad_in[0]->data, k);
  }
  return code;
}
