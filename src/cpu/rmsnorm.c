/* rmsnorm: y = x r gain over the last dim, r = 1 / sqrt(mean(x^2) + eps) (Zhang & Sennrich 2019).
 * Saves x, gain and out[1] = r a row.
 * With n = x r and g = dy gain: dx = r (g - n mean(g n)); dgain = sum dy n in partial rows of fixed
 * blocks of rows. dx may be dy: the parameter comes first.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"
#include <math.h>

/* sum of x[i] y[i] gain[i]; without gain of x[i] y[i] */
static inline float sum_products(const float *x, const float *y, const float *gain, int64_t n) {
  vf s0 = {0}, s1 = {0};
  int64_t i = 0;
  for (; i + 2 * NEAP_LANES <= n; i += 2 * NEAP_LANES) {
    vf y0 = v_load(y + i), y1 = v_load(y + i + NEAP_LANES);
    if (gain) {
      y0 *= v_load(gain + i);
      y1 *= v_load(gain + i + NEAP_LANES);
    }
    s0 = v_fma(v_load(x + i), y0, s0);
    s1 = v_fma(v_load(x + i + NEAP_LANES), y1, s1);
  }
  float rest = 0.0f;
  for (; i < n; i++) {
    rest += x[i] * (gain ? y[i] * gain[i] : y[i]);
  }
  return v_sum(s0 + s1) + rest;
}

static void forward_rows(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  int64_t cols = call->in[1]->n_elements;
  float eps = (float)call->attrs[0];
  const float *gain = call->in[1]->data; /* (C) */
  float *aux = call->out[1]->data;       /* (rows) */
  for (int64_t row = first; row < last; row++) {
    const float *x = (const float *)call->in[0]->data + row * cols; /* (rows,C) */
    float *y = (float *)call->out[0]->data + row * cols;
    float r = 1.0f / sqrtf(sum_products(x, x, NULL, cols) / (float)cols + eps);
    for (int64_t i = 0; i < cols; i++) {
      y[i] = x[i] * r * gain[i];
    }
    if (aux) {
      aux[row] = r;
    }
  }
}

int neap__cpu_rmsnorm_forward(const neap_call *call) {
  int64_t cols = call->in[1]->n_elements;
  if (call->in[0]->n_elements > 0) {
    neap__cpu_parallel(call->in[0]->n_elements / cols, cols, forward_rows, call);
  }
  return NEAP_OK;
}

/* dx (C) of one row; dx may be dy. */
static void input_gradient(int64_t cols, const float *x, const float *dy, const float *gain,
                           float r, float *dx, int accumulate) {
  float mean_gn = r * sum_products(x, dy, gain, cols) / (float)cols;
  for (int64_t i = 0; i < cols; i++) {
    float d = r * (dy[i] * gain[i] - x[i] * r * mean_gn);
    dx[i] = accumulate ? dx[i] + d : d;
  }
}

/* An item is one block of rows: its partial dgain is a row of scratch (blocks,C). */
static void backward_blocks(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  int64_t cols = call->in[1]->n_elements, rows = call->in[0]->n_elements / cols;
  int64_t block_rows = neap__block_rows(rows);
  const float *aux = call->out[1]->data; /* (rows) */
  for (int64_t block = first; block < last; block++) {
    int64_t row = block * block_rows, end = row + block_rows < rows ? row + block_rows : rows;
    float *dgain = (float *)call->scratch + block * cols; /* (C) */
    if (call->grad_in[1]) {
      memset(dgain, 0, (size_t)cols * sizeof(float));
    }
    for (; row < end; row++) {
      const float *x = (const float *)call->in[0]->data + row * cols;
      const float *dy = (const float *)call->grad_out[0]->data + row * cols;
      for (int64_t i = 0; call->grad_in[1] && i < cols; i++) {
        dgain[i] += dy[i] * (x[i] * aux[row]);
      }
      if (call->grad_in[0]) {
        input_gradient(cols, x, dy, call->in[1]->data, aux[row],
                       (float *)call->grad_in[0]->data + row * cols, call->accumulate[0]);
      }
    }
  }
}

int neap__cpu_rmsnorm_backward(const neap_call *call) {
  int64_t cols = call->in[1]->n_elements;
  if (cols == 0) {
    return NEAP_OK;
  }
  int64_t rows = call->in[0]->n_elements / cols, blocks = neap__row_blocks(rows);
  neap__cpu_parallel(blocks, neap__block_rows(rows) * cols, backward_blocks, call);
  if (call->grad_in[1]) {
    neap__cpu_sum_blocks(call->scratch, blocks, cols, cols, call->grad_in[1]->data,
                         call->accumulate[1]);
  }
  return NEAP_OK;
}
