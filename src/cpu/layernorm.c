/* layernorm: y = (x - mean) rstd gain + bias over the last dim (Ba et al. 2016), rstd = 1 /
 * sqrt(var
 * + eps). Saves x, gain and out[1] = (mean, rstd) a row.
 * With n = (x - mean) rstd and g = dy gain: dx = rstd (g - mean(g) - n mean(g n)); dgain = sum dy
 * n, dbias = sum dy, in partial rows of fixed blocks of rows. dx may be dy: parameters come first.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"
#include <math.h>

static float sum_squared_deviations(const float *x, float mean, int64_t n) {
  vf m = v_set(mean), s[4] = {{0}, {0}, {0}, {0}};
  int64_t i = 0;
  for (; i + 4 * NEAP_LANES <= n; i += 4 * NEAP_LANES) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      vf d = v_load(x + i + j * NEAP_LANES) - m;
      s[j] = v_fma(d, d, s[j]);
    }
  }
  for (; i + NEAP_LANES <= n; i += NEAP_LANES) {
    vf d = v_load(x + i) - m;
    s[0] = v_fma(d, d, s[0]);
  }
  float rest = 0.0f;
  for (; i < n; i++) {
    rest += (x[i] - mean) * (x[i] - mean);
  }
  return v_sum((s[0] + s[1]) + (s[2] + s[3])) + rest;
}

/* y = (x - mean) rstd gain + bias, one row */
static void normalize(const float *x, float mean, float rstd, const float *gain, const float *bias,
                      float *y, int64_t n) {
  int64_t i = 0;
  for (; i + NEAP_LANES <= n; i += NEAP_LANES) {
    vf normal = (v_load(x + i) - mean) * rstd;
    v_store(y + i, v_fma(normal, v_load(gain + i), v_load(bias + i)));
  }
  if (i < n) {
    vf normal = (v_load_n(x + i, n - i) - mean) * rstd;
    v_store_n(y + i, v_fma(normal, v_load_n(gain + i, n - i), v_load_n(bias + i, n - i)), n - i);
  }
}

static void forward_rows(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  int64_t cols = call->in[1]->n_elements;
  float eps = (float)call->attrs[0];
  const float *gain = call->in[1]->data, *bias = call->in[2]->data; /* (C) */
  float *aux = call->out[1]->data;                                  /* (rows,2) */
  for (int64_t row = first; row < last; row++) {
    const float *x = (const float *)call->in[0]->data + row * cols; /* (rows,C) */
    float *y = (float *)call->out[0]->data + row * cols;
    float mean = v_row_sum(x, cols) / (float)cols;
    float rstd = 1.0f / sqrtf(sum_squared_deviations(x, mean, cols) / (float)cols + eps);
    normalize(x, mean, rstd, gain, bias, y, cols);
    if (aux) {
      aux[2 * row] = mean;
      aux[2 * row + 1] = rstd;
    }
  }
}

int neap__cpu_layernorm_forward(const neap_call *call) {
  int64_t cols = call->in[1]->n_elements;
  if (call->in[0]->n_elements > 0) {
    neap__cpu_parallel(call->in[0]->n_elements / cols, cols, forward_rows, call);
  }
  return NEAP_OK;
}

/* Adds one row to dgain = sum dy n and dbias = sum dy (when wanted: not NULL), and gives the sums
 * of g and g n that dx needs. */
static void row_sums(int64_t cols, const float *x, const float *dy, const float *gain, float mean,
                     float rstd, float *dgain, float *dbias, float sums[2]) {
  vf sum_g = {0}, sum_gn = {0};
  int64_t i = 0;
  for (; i + NEAP_LANES <= cols; i += NEAP_LANES) {
    vf d = v_load(dy + i), normal = (v_load(x + i) - mean) * rstd, g = d * v_load(gain + i);
    if (dgain) {
      v_store(dgain + i, v_fma(d, normal, v_load(dgain + i)));
      v_store(dbias + i, v_load(dbias + i) + d);
    }
    sum_g += g;
    sum_gn = v_fma(g, normal, sum_gn);
  }
  sums[0] = v_sum(sum_g);
  sums[1] = v_sum(sum_gn);
  for (; i < cols; i++) {
    float normal = (x[i] - mean) * rstd;
    if (dgain) {
      dgain[i] += dy[i] * normal;
      dbias[i] += dy[i];
    }
    sums[0] += dy[i] * gain[i];
    sums[1] += dy[i] * gain[i] * normal;
  }
}

/* rstd (g - mean_g - n mean_gn) of one vector */
NEAP_INLINE vf input_slope(vf x, vf dy, vf gain, const float *stats) {
  vf rest = v_fma((x - stats[0]) * stats[1], v_set(-stats[3]), v_set(-stats[2]));
  return stats[1] * v_fma(dy, gain, rest);
}

/* dx (C) of one row; dx may be dy. stats: mean, rstd, mean_g, mean_gn. */
static void input_gradient(int64_t cols, const float *x, const float *dy, const float *gain,
                           const float stats[4], float *dx, int accumulate) {
  int64_t i = 0;
  for (; i + NEAP_LANES <= cols; i += NEAP_LANES) {
    vf d = input_slope(v_load(x + i), v_load(dy + i), v_load(gain + i), stats);
    v_store(dx + i, accumulate ? v_load(dx + i) + d : d);
  }
  if (i < cols) {
    int64_t n = cols - i;
    vf d = input_slope(v_load_n(x + i, n), v_load_n(dy + i, n), v_load_n(gain + i, n), stats);
    v_store_n(dx + i, accumulate ? v_load_n(dx + i, n) + d : d, n);
  }
}

/* An item is one block of rows: its partial dgain and dbias are rows of scratch (blocks,2,C). */
static void backward_blocks(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  int64_t cols = call->in[1]->n_elements, rows = call->in[0]->n_elements / cols;
  int64_t block_rows = neap__block_rows(rows);
  const float *aux = call->out[1]->data; /* (rows,2) */
  const float *gain = call->in[1]->data; /* (C) */
  for (int64_t block = first; block < last; block++) {
    int64_t row = block * block_rows, end = row + block_rows < rows ? row + block_rows : rows;
    float *dgain = NULL, *dbias = NULL; /* (C) */
    if (call->grad_in[1] || call->grad_in[2]) {
      dgain = (float *)call->scratch + 2 * block * cols;
      dbias = dgain + cols;
      memset(dgain, 0, 2 * (size_t)cols * sizeof(float));
    }
    for (; row < end; row++) {
      const float *x = (const float *)call->in[0]->data + row * cols;
      const float *dy = (const float *)call->grad_out[0]->data + row * cols;
      float stats[4] = {aux[2 * row], aux[2 * row + 1]};
      row_sums(cols, x, dy, gain, stats[0], stats[1], dgain, dbias, stats + 2);
      if (call->grad_in[0]) {
        stats[2] /= (float)cols;
        stats[3] /= (float)cols;
        input_gradient(cols, x, dy, gain, stats, (float *)call->grad_in[0]->data + row * cols,
                       call->accumulate[0]);
      }
    }
  }
}

int neap__cpu_layernorm_backward(const neap_call *call) {
  int64_t cols = call->in[1]->n_elements;
  if (cols == 0) {
    return NEAP_OK;
  }
  int64_t rows = call->in[0]->n_elements / cols, blocks = neap__row_blocks(rows);
  neap__cpu_parallel(blocks, neap__block_rows(rows) * cols, backward_blocks, call);
  for (int input = 1; input <= 2; input++) {
    if (call->grad_in[input]) {
      neap__cpu_sum_blocks((float *)call->scratch + (input - 1) * cols, blocks, 2 * cols, cols,
                           call->grad_in[input]->data, call->accumulate[input]);
    }
  }
  return NEAP_OK;
}
