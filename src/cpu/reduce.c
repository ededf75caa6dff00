/* Sums over everything: in doubles, one partial sum per 4,096 elements in scratch, added in order.
 * Over a dim, x is (outer,count,inner): doubles for a strip of inner at a time; no scratch. Saves
 * nothing; backward repeats dy. A mean over nothing is NaN, a sum 0.
 */
#include "cpu/reduce.h"
#include "cpu/vmath.h"
#include <math.h>

typedef struct {
  const float *from; /* forward: (outer,count,inner); backward: (outer,inner) */
  float *to;         /* the other */
  int64_t outer, count, inner;
  float factor;
  int accumulate;
} reduce_args;

static reduce_args describe(const neap_call *call, const neap_view *whole, int is_mean) {
  reduce_args args = {.outer = 1, .count = whole->n_elements, .inner = 1};
  int dim = (int)call->attrs[0];
  if (dim >= 0) {
    args.count = whole->dims[dim];
    for (int i = 0; i < whole->n_dims; i++) {
      args.outer *= i < dim ? whole->dims[i] : 1;
      args.inner *= i > dim ? whole->dims[i] : 1;
    }
  }
  args.factor = is_mean ? 1.0f / (float)args.count : 1.0f;
  return args;
}

enum { LANES = 16 };

/* Contiguous sum in doubles: 16 partial sums, added in order. */
static double sum_doubles(const float *x, int64_t n) {
  double sums[LANES] = {0.0}, sum = 0.0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (int64_t j = 0; j < LANES; j++) {
      sums[j] += (double)x[i + j];
    }
  }
  for (int64_t j = 0; i < n; i++, j++) {
    sums[j] += (double)x[i];
  }
  for (int64_t j = 0; j < LANES; j++) {
    sum += sums[j];
  }
  return sum;
}

typedef struct {
  const float *x;
  int64_t n;
  double *partial;
} blocks_args;

static void sum_blocks(const void *arg, int64_t first, int64_t last) {
  const blocks_args *args = arg;
  for (int64_t block = first; block < last; block++) {
    int64_t begin = block * NEAP_NORM_BLOCK, left = args->n - begin;
    args->partial[block] =
        sum_doubles(args->x + begin, left < NEAP_NORM_BLOCK ? left : NEAP_NORM_BLOCK);
  }
}

/* An item is one strip of one outer index. */
enum { STRIP = 64 };

static void sum_dim(const void *arg, int64_t first, int64_t last) {
  const reduce_args *args = arg;
  int64_t inner = args->inner, strips = (inner + STRIP - 1) / STRIP;
  for (int64_t item = first; item < last; item++) {
    int64_t outer = item / strips, column = item % strips * STRIP;
    int64_t n = inner - column < STRIP ? inner - column : STRIP;
    const float *x = args->from + outer * args->count * inner + column;
    float *y = args->to + outer * inner + column;
    if (inner == 1) {
      *y = args->factor * (float)sum_doubles(x, args->count);
      continue;
    }
    double sums[STRIP] = {0.0};
    for (int64_t i = 0; i < args->count; i++, x += inner) {
      for (int64_t j = 0; j < n; j++) {
        sums[j] += (double)x[j];
      }
    }
    for (int64_t j = 0; j < n; j++) {
      y[j] = args->factor * (float)sums[j];
    }
  }
}

int neap__cpu_reduce_forward(const neap_call *call, int is_mean) {
  const neap_view *x = call->in[0];
  reduce_args args = describe(call, x, is_mean);
  args.from = x->data;
  args.to = call->out[0]->data;
  if (call->attrs[0] >= 0.0) {
    int64_t strips = (args.inner + STRIP - 1) / STRIP;
    int64_t width = args.inner < STRIP ? args.inner : STRIP;
    neap__cpu_parallel(args.outer * strips, args.count * width, sum_dim, &args);
    return NEAP_OK;
  }
  blocks_args blocks = {x->data, x->n_elements, call->scratch};
  int64_t n_blocks = (x->n_elements + NEAP_NORM_BLOCK - 1) / NEAP_NORM_BLOCK;
  double sum = 0.0;
  neap__cpu_parallel(n_blocks, NEAP_NORM_BLOCK, sum_blocks, &blocks);
  for (int64_t block = 0; block < n_blocks; block++) {
    sum += blocks.partial[block];
  }
  sum = is_mean ? sum / (double)x->n_elements : sum;
  *args.to = (float)sum;
  return NEAP_OK;
}

/* An item is one (outer, count) row of inner elements. */
static void repeat_rows(const void *arg, int64_t first, int64_t last) {
  const reduce_args *args = arg;
  int64_t inner = args->inner;
  for (int64_t row = first; row < last; row++) {
    const float *dy = args->from + row / args->count * inner;
    float *dx = args->to + row * inner;
    for (int64_t i = 0; i < inner; i++) {
      float d = args->factor * dy[i];
      dx[i] = args->accumulate ? dx[i] + d : d;
    }
  }
}

/* inner is 1: runs of one value. An item is an element. */
static void repeat_values(const void *arg, int64_t first, int64_t last) {
  const reduce_args *args = arg;
  for (int64_t at = first; at < last;) {
    int64_t row = at / args->count, end = (row + 1) * args->count;
    float d = args->factor * args->from[row];
    end = end < last ? end : last;
    for (; at < end; at++) {
      args->to[at] = args->accumulate ? args->to[at] + d : d;
    }
  }
}

int neap__cpu_reduce_backward(const neap_call *call, int is_mean) {
  const neap_view *dx = call->grad_in[0];
  if (!dx || dx->n_elements == 0) {
    return NEAP_OK;
  }
  reduce_args args = describe(call, dx, is_mean);
  args.from = call->grad_out[0]->data;
  args.to = dx->data;
  args.accumulate = call->accumulate[0];
  if (args.inner == 1) {
    neap__cpu_parallel(dx->n_elements, 1, repeat_values, &args);
  } else {
    neap__cpu_parallel(args.outer * args.count, args.inner, repeat_rows, &args);
  }
  return NEAP_OK;
}
