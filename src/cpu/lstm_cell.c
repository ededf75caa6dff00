/* lstm_cell (Hochreiter & Schmidhuber 1997, with forget gates): gates (N,4H) are i, f, g, o side by
 * side before their activations; c' = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c').
 * Saves gates and c; backward computes the activations again, which costs less than their memory.
 * dgates may be written over gates.
 */
#include "cpu/cell.h"

typedef struct {
  vf i, f, g, o, c, tanh_c; /* activations; c' */
} cell;

NEAP_INLINE cell activations(const float *gates, int64_t width, vf before, int64_t n) {
  cell a;
  a.i = v_sigmoid(cell_load(gates, n));
  a.f = v_sigmoid(cell_load(gates + width, n));
  a.g = v_tanh(cell_load(gates + 2 * width, n));
  a.o = v_sigmoid(cell_load(gates + 3 * width, n));
  a.c = v_fma(a.f, before, a.i * a.g);
  a.tanh_c = v_tanh(a.c);
  return a;
}

NEAP_INLINE void forward_piece(const neap_call *call, int64_t row, int64_t j, int64_t n) {
  int64_t width = call->in[1]->dims[1], at = row * width + j;
  const float *gates = (const float *)call->in[0]->data + 4 * row * width + j; /* (4,H) */
  cell a = activations(gates, width, cell_load((const float *)call->in[1]->data + at, n), n);
  cell_store((float *)call->out[0]->data + at, a.o * a.tanh_c, n);
  cell_store((float *)call->out[1]->data + at, a.c, n);
}

static void forward_rows(const void *call, int64_t first, int64_t last) {
  cell_rows(call, ((const neap_call *)call)->in[1]->dims[1], first, last, forward_piece);
}

int neap__cpu_lstm_cell_forward(const neap_call *call) {
  const neap_view *c = call->in[1];
  if (c->n_elements > 0) {
    neap__cpu_parallel(c->dims[0], 20 * c->dims[1], forward_rows, call);
  }
  return NEAP_OK;
}

NEAP_INLINE void backward_piece(const neap_call *call, int64_t row, int64_t j, int64_t n) {
  int64_t width = call->in[1]->dims[1], at = row * width + j;
  const float *gates = (const float *)call->in[0]->data + 4 * row * width + j; /* may be dgates */
  vf before = cell_load((const float *)call->in[1]->data + at, n);
  cell a = activations(gates, width, before, n);
  vf dh = cell_load_any(call->grad_out[0] ? call->grad_out[0]->data : NULL, at, n);
  vf dc = cell_load_any(call->grad_out[1] ? call->grad_out[1]->data : NULL, at, n);
  dc = v_fma(dh * a.o, tanh_slope(a.tanh_c), dc);
  if (call->grad_in[0]) {
    float *to = (float *)call->grad_in[0]->data + 4 * row * width + j; /* (4,H) */
    int add = call->accumulate[0];
    cell_give(to, dc * a.g * sigmoid_slope(a.i), n, add);
    cell_give(to + width, dc * before * sigmoid_slope(a.f), n, add);
    cell_give(to + 2 * width, dc * a.i * tanh_slope(a.g), n, add);
    cell_give(to + 3 * width, dh * a.tanh_c * sigmoid_slope(a.o), n, add);
  }
  if (call->grad_in[1]) {
    cell_give((float *)call->grad_in[1]->data + at, dc * a.f, n, call->accumulate[1]);
  }
}

static void backward_rows(const void *call, int64_t first, int64_t last) {
  cell_rows(call, ((const neap_call *)call)->in[1]->dims[1], first, last, backward_piece);
}

int neap__cpu_lstm_cell_backward(const neap_call *call) {
  const neap_view *c = call->in[1];
  if (c->n_elements > 0) {
    neap__cpu_parallel(c->dims[0], 30 * c->dims[1], backward_rows, call);
  }
  return NEAP_OK;
}
