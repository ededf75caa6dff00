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
  vf m = v_set(mean), s0 = {0}, s1 = {0};
  int64_t i = 0;
  for (; i + 2 * NEAP_LANES <= n; i += 2 * NEAP_LANES) {
    vf d0 = v_load(x + i) - m, d1 = v_load(x + i + NEAP_LANES) - m;
    s0 = v_fma(d0, d0, s0);
    s1 = v_fma(d1, d1, s1);
  }
  float rest = 0.0f;
  for (; i < n; i++) {
    rest += (x[i] - mean) * (x[i] - mean);
  }
  return v_sum(s0 + s1) + rest;
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
    for (int64_t i = 0; i < cols; i++) {
      y[i] = (x[i] - mean) * rstd * gain[i] + bias[i];
    }
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

/* dx (C) of one row; dx may be dy. */
static void input_gradient(int64_t cols, const float *x, const float *dy, const float *gain,
                           float mean, float rstd, float *dx, int accumulate) {
  vf m = v_set(mean), r = v_set(rstd), sum_g = {0}, sum_gn = {0};
  int64_t i = 0;
  for (; i + NEAP_LANES <= cols; i += NEAP_LANES) {
    vf g = v_load(dy + i) * v_load(gain + i);
    sum_g += g;
    sum_gn = v_fma(g, (v_load(x + i) - m) * r, sum_gn);
  }
  float mean_g = v_sum(sum_g), mean_gn = v_sum(sum_gn);
  for (; i < cols; i++) {
    float g = dy[i] * gain[i];
    mean_g += g;
    mean_gn += g * ((x[i] - mean) * rstd);
  }
  mean_g /= (float)cols;
  mean_gn /= (float)cols;
  for (i = 0; i < cols; i++) {
    float d = rstd * (dy[i] * gain[i] - mean_g - (x[i] - mean) * rstd * mean_gn);
    dx[i] = accumulate ? dx[i] + d : d;
  }
}

/* An item is one block of rows: its partial dgain and dbias are rows of scratch (blocks,2,C). */
static void backward_blocks(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  int64_t cols = call->in[1]->n_elements, rows = call->in[0]->n_elements / cols;
  int64_t block_rows = neap__block_rows(rows);
  const float *aux = call->out[1]->data; /* (rows,2) */
  int wants_parameters = call->grad_in[1] || call->grad_in[2];
  for (int64_t block = first; block < last; block++) {
    int64_t row = block * block_rows, end = row + block_rows < rows ? row + block_rows : rows;
    float *dgain = (float *)call->scratch + 2 * block * cols, *dbias = dgain + cols; /* (C) */
    if (wants_parameters) {
      memset(dgain, 0, 2 * (size_t)cols * sizeof(float));
    }
    for (; row < end; row++) {
      const float *x = (const float *)call->in[0]->data + row * cols;
      const float *dy = (const float *)call->grad_out[0]->data + row * cols;
      float mean = aux[2 * row], rstd = aux[2 * row + 1];
      for (int64_t i = 0; wants_parameters && i < cols; i++) {
        dgain[i] += dy[i] * ((x[i] - mean) * rstd);
        dbias[i] += dy[i];
      }
      if (call->grad_in[0]) {
        input_gradient(cols, x, dy, call->in[1]->data, mean, rstd,
                       (float *)call->grad_in[0]->data + row * cols, call->accumulate[0]);
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
