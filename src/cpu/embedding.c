/* embedding: row ids[i] of weight (V,C) for every token. Saves ids.
 * dweight: threads share out the columns and each walks the tokens in order, so a token seen twice
 * adds in the same order whatever the threads.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

int neap__cpu_check_indices(const char *op, const char *what, const neap_view *indices,
                            int64_t limit) {
  const int32_t *ids = indices->data;
  for (int64_t i = 0; i < indices->n_elements; i++) {
    if (ids[i] < 0 || ids[i] >= limit) {
      return neap__error(NEAP_ERR_INVALID, "%s: %s %d at position %lld is outside 0..%lld", op,
                         what, (int)ids[i], (long long)i, (long long)limit - 1);
    }
  }
  return NEAP_OK;
}

static void gather_rows(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  const int32_t *ids = call->in[0]->data;  /* (tokens) */
  const float *weight = call->in[1]->data; /* (V,C) */
  float *y = call->out[0]->data;           /* (tokens,C) */
  int64_t cols = call->in[1]->dims[1];
  for (int64_t i = first; i < last; i++) {
    memcpy(y + i * cols, weight + ids[i] * cols, (size_t)cols * sizeof(float));
  }
}

int neap__cpu_embedding_forward(const neap_call *call) {
  int code = neap__cpu_check_indices("embedding", "index", call->in[0], call->in[1]->dims[0]);
  if (code == NEAP_OK && call->out[0]->n_elements > 0) {
    neap__cpu_parallel(call->in[0]->n_elements, call->in[1]->dims[1], gather_rows, call);
  }
  return code;
}

enum { STRIP = 16 }; /* columns of one cache line: what a thread gets is a number of these */

static void scatter_strips(const void *arg, int64_t first, int64_t last) {
  const neap_call *call = arg;
  const int32_t *ids = call->in[0]->data;    /* (tokens) */
  const float *dy = call->grad_out[0]->data; /* (tokens,C) */
  float *dweight = call->grad_in[1]->data;   /* (V,C) */
  int64_t cols = call->grad_in[1]->dims[1];
  int64_t begin = first * STRIP, end = last * STRIP < cols ? last * STRIP : cols;
  for (int64_t i = 0; i < call->in[0]->n_elements; i++) {
    v_add_to(dweight + ids[i] * cols + begin, dy + i * cols + begin, end - begin);
  }
}

int neap__cpu_embedding_backward(const neap_call *call) {
  const neap_view *dweight = call->grad_in[1];
  if (!dweight || dweight->n_elements == 0) {
    return NEAP_OK;
  }
  if (!call->accumulate[1]) {
    neap__cpu_zero(call->context, dweight->data, (size_t)dweight->n_elements * sizeof(float));
  }
  int64_t strips = (dweight->dims[1] + STRIP - 1) / STRIP;
  neap__cpu_parallel(strips, call->in[0]->n_elements * STRIP, scatter_strips, call);
  return NEAP_OK;
}
