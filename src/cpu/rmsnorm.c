/* rmsnorm: y = x r gain over the last dim, r = 1 / sqrt(mean(x^2) + eps) (Zhang & Sennrich 2019).
 * Saves x, gain and out[1] = r a row.
 * With n = x r and g = dy gain: dx = r (g - n mean(g n)); dgain = sum dy n in partial rows of fixed
 * blocks of rows. dx may be dy: the parameter comes first.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"
#include <math.h>

static float sum_squares(const float *x, int64_t n) {
  vf s[4] = {{0}, {0}, {0}, {0}};
  int64_t i = 0;
  for (; i + 4 * NEAP_LANES <= n; i += 4 * NEAP_LANES) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      vf v = v_load(x + i + j * NEAP_LANES);
      s[j] = v_fma(v, v, s[j]);
    }
  }
  for (; i + NEAP_LANES <= n; i += NEAP_LANES) {
    s[0] = v_fma(v_load(x + i), v_load(x + i), s[0]);
  }
  float rest = 0.0f;
  for (; i < n; i++) {
    rest += x[i] * x[i];
  }
  return v_sum((s[0] + s[1]) + (s[2] + s[3])) + rest;
}

/* y = x r gain, one row */
static void normalize(const float *x, float r, const float *gain, float *y, int64_t n) {
  int64_t i = 0;
  for (; i + NEAP_LANES <= n; i += NEAP_LANES) {
    v_store(y + i, v_load(x + i) * r * v_load(gain + i));
  }
  if (i < n) {
    v_store_n(y + i, v_load_n(x + i, n - i) * r * v_load_n(gain + i, n - i), n - i);
  }
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
    float r = 1.0f / sqrtf(sum_squares(x, cols) / (float)cols + eps);
    normalize(x, r, gain, y, cols);
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

/* Adds one row to dgain = sum dy n (when wanted: not NULL); returns the sum of g n. */
static float row_sum(int64_t cols, const float *x, const float *dy, const float *gain, float r,
                     float *dgain) {
  vf sum = {0};
  int64_t i = 0;
  for (; i + NEAP_LANES <= cols; i += NEAP_LANES) {
    vf product = v_load(dy + i) * (v_load(x + i) * r);
    if (dgain) {
      v_store(dgain + i, v_load(dgain + i) + product);
    }
    sum = v_fma(product, v_load(gain + i), sum);
  }
  float total = v_sum(sum);
  for (; i < cols; i++) {
    float product = dy[i] * (x[i] * r);
    if (dgain) {
      dgain[i] += product;
    }
    total += product * gain[i];
  }
  return total;
}

/* r (g - n mean_gn) of one vector */
NEAP_INLINE vf input_slope(vf x, vf dy, vf gain, float r, float mean_gn) {
  return r * v_fma(x, v_set(-r * mean_gn), dy * gain);
}

/* dx (C) of one row; dx may be dy. */
static void input_gradient(int64_t cols, const float *x, const float *dy, const float *gain,
                           float r, float mean_gn, float *dx, int accumulate) {
  int64_t i = 0;
  for (; i + NEAP_LANES <= cols; i += NEAP_LANES) {
    vf d = input_slope(v_load(x + i), v_load(dy + i), v_load(gain + i), r, mean_gn);
    v_store(dx + i, accumulate ? v_load(dx + i) + d : d);
  }
  if (i < cols) {
    int64_t n = cols - i;
    vf d = input_slope(v_load_n(x + i, n), v_load_n(dy + i, n), v_load_n(gain + i, n), r, mean_gn);
    v_store_n(dx + i, accumulate ? v_load_n(dx + i, n) + d : d, n);
  }
}

/* An item is one block of rows: its partial dgain is a row of scratch (blocks,C). */
static void backward_blocks(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  int64_t cols = call->in[1]->n_elements, rows = call->in[0]->n_elements / cols;
  int64_t block_rows = neap__block_rows(rows);
  const float *aux = call->out[1]->data; /* (rows) */
  const float *gain = call->in[1]->data; /* (C) */
  for (int64_t block = first; block < last; block++) {
    int64_t row = block * block_rows, end = row + block_rows < rows ? row + block_rows : rows;
    float *dgain = NULL; /* (C) */
    if (call->grad_in[1]) {
      dgain = (float *)call->scratch + block * cols;
      memset(dgain, 0, (size_t)cols * sizeof(float));
    }
    for (; row < end; row++) {
      const float *x = (const float *)call->in[0]->data + row * cols;
      const float *dy = (const float *)call->grad_out[0]->data + row * cols;
      float sum = row_sum(cols, x, dy, gain, aux[row], dgain);
      if (call->grad_in[0]) {
        input_gradient(cols, x, dy, gain, aux[row], sum / (float)cols,
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
