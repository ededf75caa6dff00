/* gru_cell (Cho et al. 2014, with the reset gate after the product): x's and h's gates (N,3H) are
 * r, z, n side by side before their activations; r = sigmoid(x_r + h_r), z = sigmoid(x_z + h_z),
 * n = tanh(x_n + r h_n), h' = n + z (h - n).
 * Saves h and out[1] = r, z, n, h_n (N,4H).
 */
#include "cpu/cell.h"

NEAP_INLINE void forward_piece(const neap_call *call, int64_t row, int64_t j, int64_t k) {
  int64_t width = call->in[2]->dims[1], at = row * width + j;
  const float *x = (const float *)call->in[0]->data + 3 * row * width + j; /* (3,H) */
  const float *g = (const float *)call->in[1]->data + 3 * row * width + j; /* (3,H) */
  vf h = cell_load((const float *)call->in[2]->data + at, k);
  vf h_n = cell_load(g + 2 * width, k);
  vf r = v_sigmoid(cell_load(x, k) + cell_load(g, k));
  vf z = v_sigmoid(cell_load(x + width, k) + cell_load(g + width, k));
  vf n = v_tanh(v_fma(r, h_n, cell_load(x + 2 * width, k)));
  cell_store((float *)call->out[0]->data + at, v_fma(z, h - n, n), k);
  if (call->out[1]->data) {
    float *aux = (float *)call->out[1]->data + 4 * row * width + j; /* (4,H) */
    cell_store(aux, r, k);
    cell_store(aux + width, z, k);
    cell_store(aux + 2 * width, n, k);
    cell_store(aux + 3 * width, h_n, k);
  }
}

static void forward_rows(const void *call, int64_t first, int64_t last) {
  cell_rows(call, ((const neap_call *)call)->in[2]->dims[1], first, last, forward_piece);
}

int neap__cpu_gru_cell_forward(const neap_call *call) {
  const neap_view *h = call->in[2];
  if (h->n_elements > 0) {
    neap__cpu_parallel(h->dims[0], 20 * h->dims[1], forward_rows, call);
  }
  return NEAP_OK;
}

NEAP_INLINE void backward_piece(const neap_call *call, int64_t row, int64_t j, int64_t k) {
  int64_t width = call->in[2]->dims[1], at = row * width + j;
  const float *aux = (const float *)call->out[1]->data + 4 * row * width + j; /* (4,H) */
  vf r = cell_load(aux, k), z = cell_load(aux + width, k), n = cell_load(aux + 2 * width, k);
  vf dh = cell_load((const float *)call->grad_out[0]->data + at, k);
  vf h = cell_load((const float *)call->in[2]->data + at, k);
  vf dn = dh * (1.0f - z) * tanh_slope(n); /* before its activation, like dr and dz */
  vf dr = dn * cell_load(aux + 3 * width, k) * sigmoid_slope(r);
  vf dz = dh * (h - n) * sigmoid_slope(z);
  for (int i = 0; i < 2; i++) {
    if (call->grad_in[i]) {
      float *to = (float *)call->grad_in[i]->data + 3 * row * width + j; /* (3,H) */
      cell_give(to, dr, k, call->accumulate[i]);
      cell_give(to + width, dz, k, call->accumulate[i]);
      cell_give(to + 2 * width, i == 0 ? dn : dn * r, k, call->accumulate[i]);
    }
  }
  if (call->grad_in[2]) {
    cell_give((float *)call->grad_in[2]->data + at, dh * z, k, call->accumulate[2]);
  }
}

static void backward_rows(const void *call, int64_t first, int64_t last) {
  cell_rows(call, ((const neap_call *)call)->in[2]->dims[1], first, last, backward_piece);
}

int neap__cpu_gru_cell_backward(const neap_call *call) {
  const neap_view *h = call->in[2];
  if (h->n_elements > 0) {
    neap__cpu_parallel(h->dims[0], 20 * h->dims[1], backward_rows, call);
  }
  return NEAP_OK;
}
