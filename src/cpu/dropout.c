/* dropout: an element is kept with probability 1 - p and divided by it (Srivastava et al. 2014).
 * Saves nothing: backward draws the mask again. Element e of item i draws lane e % 4 of Philox
 * block (e / 4, i) and is kept when its uniform number is >= p, which as whole numbers is word >> 8
 * >= ceil(p 2^24). dx may be dy.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"
#include "philox.h"
#include <math.h>

typedef struct {
  neap_rng rng;
  double p;
  int64_t item_elements;
  const float *from; /* (any) */
  float *to;         /* (any), may be from */
  int accumulate;
} dropout_args;

/* n elements of one item, from number `at` of it on; at most what one batch of words holds. */
static void apply_mask(const dropout_args *args, const uint32_t *words, const float *from,
                       float *to, int64_t n) {
  uint32_t least = (uint32_t)ceil(args->p * 0x1p24);
  float factor = (float)(1.0 / (1.0 - args->p));
  for (int64_t i = 0; i < n; i++) {
    float y = words[i] >> 8 >= least ? from[i] * factor : 0.0f;
    to[i] = args->accumulate ? to[i] + y : y;
  }
}

static void dropout_range(const void *arg, int64_t first, int64_t last) {
  const dropout_args *args = arg;
  uint32_t words[NEAP__PHILOX_BATCH];
  for (int64_t at = first; at < last;) {
    int64_t item = at / args->item_elements, e = at % args->item_elements;
    int64_t end = (item + 1) * args->item_elements < last ? args->item_elements
                                                          : last - item * args->item_elements;
    uint64_t number = (uint64_t)(args->rng.item + item);
    while (e < end) {
      int64_t skip = e % 4, n = NEAP__PHILOX_BATCH - skip;
      n = n < end - e ? n : end - e;
      neap__philox_batch(args->rng.key, (uint64_t)(e / 4), number, words);
      apply_mask(args, words + skip, args->from + at, args->to + at, n);
      e += n;
      at += n;
    }
  }
}

static void dropout(const neap_call *call, const neap_view *from, const neap_view *to,
                    int accumulate) {
  int64_t n_items = call->rng.n_items > 0 ? call->rng.n_items : 1;
  dropout_args args = {call->rng,  call->attrs[0], to->n_elements / n_items,
                       from->data, to->data,       accumulate};
  if (to->n_elements == 0) {
    return;
  }
  if (args.p > 0.0) {
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
