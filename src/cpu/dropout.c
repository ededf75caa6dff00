/* dropout: an element is kept with probability 1 - p and divided by it (Srivastava et al. 2014).
 * Saves nothing: backward draws the mask again. Element e of item i draws lane e % 4 of Philox
 * block (e / 4, i) and is kept when its uniform number is >= p, which as whole numbers is word >> 8
 * >= ceil(p 2^24). dx may be dy.
 */
#include "cpu/cpu.h"
#include "cpu/vrandom.h"
#include <math.h>

typedef struct {
  neap_rng rng;
  int32_t least;
  float factor;
  int64_t item_elements;
  const float *from; /* (any) */
  float *to;         /* (any), may be from */
  int accumulate;
} dropout_args;

/* n elements that draw the given words. */
static void apply_mask(const dropout_args *args, const uint32_t *words, int64_t at, int64_t n) {
  const float *from = args->from + at;
  float *to = args->to + at;
  for (int64_t i = 0; i < n; i += NEAP_LANES) {
    int64_t lanes = n - i < NEAP_LANES ? n - i : NEAP_LANES;
    vi word;
    memcpy(&word, words + i, sizeof word);
    vi kept = (vi)((vu)word >> 8) >= args->least;
    if (lanes == NEAP_LANES) {
      vf y = v_keep(kept, v_load(from + i) * args->factor);
      v_store(to + i, args->accumulate ? v_load(to + i) + y : y);
    } else {
      vf y = v_keep(kept, v_load_n(from + i, lanes) * args->factor);
      v_store_n(to + i, args->accumulate ? v_load_n(to + i, lanes) + y : y, lanes);
    }
  }
}

static void dropout_range(const void *arg, int64_t first, int64_t last) {
  const dropout_args *args = arg;
  uint32_t words[NEAP_BATCH_WORDS + NEAP_LANES]; /* vectors may read past the end */
  for (int64_t at = first; at < last;) {
    int64_t item = at / args->item_elements, e = at % args->item_elements;
    int64_t end = (item + 1) * args->item_elements < last ? args->item_elements
                                                          : last - item * args->item_elements;
    uint64_t number = (uint64_t)(args->rng.item + item);
    while (e < end) {
      int64_t skip = e % 4, n = NEAP_BATCH_WORDS - skip;
      n = n < end - e ? n : end - e;
      v_random_batch(args->rng.key, (uint64_t)(e / 4), number, words);
      apply_mask(args, words + skip, at, n);
      e += n;
      at += n;
    }
  }
}

static void dropout(const neap_call *call, const neap_view *from, const neap_view *to,
                    int accumulate) {
  int64_t n_items = call->rng.n_items > 0 ? call->rng.n_items : 1;
  double p = call->attrs[0];
  dropout_args args = {
      .rng = call->rng,
      .least = (int32_t)ceil(p * 0x1p24),
      .factor = (float)(1.0 / (1.0 - p)),
      .item_elements = to->n_elements / n_items,
      .from = from->data,
      .to = to->data,
      .accumulate = accumulate,
  };
  if (to->n_elements == 0) {
    return;
  }
  if (p > 0.0) {
    neap__cpu_parallel(to->n_elements, 4, dropout_range, &args);
  } else if (accumulate) {
    neap__cpu_accumulate(call->context, to, from);
  } else {
    neap__cpu_copy(call->context, to->data, from->data, (size_t)to->n_elements * sizeof(float));
  }
}

int neap__cpu_dropout_forward(const neap_call *call) {
  dropout(call, call->in[0], call->out[0], 0);
  return NEAP_OK;
}

int neap__cpu_dropout_backward(const neap_call *call) {
  if (call->grad_in[0]) {
    dropout(call, call->grad_out[0], call->grad_in[0], call->accumulate[0]);
  }
  return NEAP_OK;
}
