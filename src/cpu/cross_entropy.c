/* cross_entropy: mean over rows of lse(logits) - logits[target]; logits (rows,V), targets (rows).
 * Saves logits, targets and out[1] = lse a row. NaN for no rows.
 * dlogits = (e^(logit - lse) - [is the target]) g / rows; it may overwrite the logits. The
 * probabilities are never stored.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"
#include <math.h>

enum { PIECE = 1024 }; /* logits that stay in the first cache between maximum and sum */

static float highest(const float *x, int64_t n) {
  vf h0 = v_set(-INFINITY), h1 = h0, h2 = h0, h3 = h0;
  int64_t i = 0;
  for (; i + 4 * NEAP_LANES <= n; i += 4 * NEAP_LANES) {
    h0 = v_max(h0, v_load(x + i));
    h1 = v_max(h1, v_load(x + i + NEAP_LANES));
    h2 = v_max(h2, v_load(x + i + 2 * NEAP_LANES));
    h3 = v_max(h3, v_load(x + i + 3 * NEAP_LANES));
  }
  float rest = -INFINITY;
  for (; i < n; i++) {
    rest = rest > x[i] ? rest : x[i];
  }
  float most = v_highest(v_max(v_max(h0, h1), v_max(h2, h3)));
  return rest > most ? rest : most;
}

static float sum_exp(const float *x, float shift, int64_t n) {
  vf s = v_set(shift), s0 = {0}, s1 = {0};
  int64_t i = 0;
  for (; i + 2 * NEAP_LANES <= n; i += 2 * NEAP_LANES) {
    __builtin_prefetch(x + i + PIECE); /* the next maximum waits for memory, this sum does not */
    s0 += v_exp_below(v_load(x + i) - s);
    s1 += v_exp_below(v_load(x + i + NEAP_LANES) - s);
  }
  for (; i < n; i += NEAP_LANES) {
    int64_t rest = n - i < NEAP_LANES ? n - i : NEAP_LANES;
    float lanes[NEAP_LANES];
    for (int64_t j = 0; j < NEAP_LANES; j++) {
      lanes[j] = j < rest ? x[i + j] : -INFINITY;
    }
    s0 += v_exp_below(v_load(lanes) - s);
  }
  return v_sum(s0 + s1);
}

/* what to take off before exp: a piece of classes that are all ruled out sums to 0, not to NaN */
static float shift_of(float most) {
  return most == -INFINITY ? 0.0f : most;
}

/* One pass over memory: the sum so far is rescaled when a piece brings a new maximum. n > 0. */
static float log_sum_exp(const float *x, int64_t n) {
  int64_t length = n < PIECE ? n : PIECE;
  float most = highest(x, length), sum = sum_exp(x, shift_of(most), length);
  for (int64_t i = length; i < n; i += length) {
    length = n - i < PIECE ? n - i : PIECE;
    float here = highest(x + i, length);
    if (here > most) {
      sum *= expf(most - here);
      most = here;
    }
    sum += sum_exp(x + i, shift_of(most), length);
  }
  return most + logf(sum);
}

/* An item is one block of rows; its loss is a double in scratch. */
static void forward_blocks(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  const int32_t *targets = call->in[1]->data;
  int64_t rows = call->in[1]->n_elements, cols = call->in[0]->dims[call->in[0]->n_dims - 1];
  int64_t block_rows = neap__block_rows(rows);
  float *aux = call->out[1]->data; /* (rows) */
  for (int64_t block = first; block < last; block++) {
    int64_t row = block * block_rows, end = row + block_rows < rows ? row + block_rows : rows;
    double loss = 0.0;
    for (; row < end; row++) {
      const float *x = (const float *)call->in[0]->data + row * cols; /* (rows,V) */
      float lse = log_sum_exp(x, cols);
      loss += (double)lse - (double)x[targets[row]];
      if (aux) {
        aux[row] = lse;
      }
    }
    ((double *)call->scratch)[block] = loss;
  }
}

int neap__cpu_cross_entropy_forward(const neap_call *call) {
  const neap_view *logits = call->in[0];
  int64_t rows = call->in[1]->n_elements, cols = logits->dims[logits->n_dims - 1];
  int code = neap__cpu_check_indices("cross_entropy", "target", call->in[1], cols);
  if (code != NEAP_OK) {
    return code;
  }
  int64_t blocks = neap__row_blocks(rows);
  neap__cpu_parallel(blocks, neap__block_rows(rows) * cols, forward_blocks, call);
  double loss = 0.0;
  for (int64_t block = 0; block < blocks; block++) {
    loss += ((const double *)call->scratch)[block];
  }
  *(float *)call->out[0]->data = rows > 0 ? (float)(loss / (double)rows) : NAN;
  return NEAP_OK;
}

NEAP_INLINE vf probability(vf x, vf lse) {
  return v_exp_below(x - lse);
}

static void backward_rows(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  const int32_t *targets = call->in[1]->data;
  const float *aux = call->out[1]->data; /* (rows) */
  int64_t rows = call->in[1]->n_elements, cols = call->in[0]->dims[call->in[0]->n_dims - 1];
  float share = *(const float *)call->grad_out[0]->data / (float)rows;
  int accumulate = call->accumulate[0];
  for (int64_t row = first; row < last; row++) {
    const float *x = (const float *)call->in[0]->data + row * cols; /* (rows,V), may be dx */
    float *dx = (float *)call->grad_in[0]->data + row * cols;
    vf lse = v_set(aux[row]), g = v_set(share);
    int64_t i = 0;
    for (; i + NEAP_LANES <= cols; i += NEAP_LANES) {
      vf d = probability(v_load(x + i), lse) * g;
      v_store(dx + i, accumulate ? v_load(dx + i) + d : d);
    }
    if (i < cols) {
      int64_t n = cols - i;
      vf d = probability(v_load_n(x + i, n), lse) * g;
      v_store_n(dx + i, accumulate ? v_load_n(dx + i, n) + d : d, n);
    }
    dx[targets[row]] -= share;
  }
}

int neap__cpu_cross_entropy_backward(const neap_call *call) {
  int64_t cols = call->in[0]->dims[call->in[0]->n_dims - 1];
  if (call->grad_in[0] && cols > 0) {
    neap__cpu_parallel(call->in[1]->n_elements, cols, backward_rows, call);
  }
  return NEAP_OK;
}
