/* Optimizers, one fused pass over memory, and the sum of squares behind the gradient norm.
 * AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101): decay is decoupled from the gradient; m and v
 * are divided by 1 - beta^step.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"
#include <math.h>

typedef struct {
  float *param, *m, *v; /* (any) */
  const float *grad;    /* (any) */
  float keep;           /* 1 - lr decay */
  float grad_scale, beta1, beta2;
  float rest1, rest2; /* 1 - beta: in f32 it would be off by 5e-5 of itself for 0.999 */
  float rate;         /* lr / (1 - beta1^step) */
  float root_unit;    /* 1 / sqrt(1 - beta2^step) */
  float eps;
} adamw_args;

/* new values of one vector of parameters */
NEAP_INLINE vf adamw_step(const adamw_args *a, vf param, vf grad, vf *m, vf *v) {
  vf g = a->grad_scale * grad;
  *m = v_fma(v_set(a->rest1), g, a->beta1 * *m);
  *v = v_fma(a->rest2 * g, g, a->beta2 * *v);
  vf root = v_fma(v_sqrt(*v), v_set(a->root_unit), v_set(a->eps));
  return a->keep * param - a->rate * *m / root;
}

static void adamw_range(const void *arg, int64_t first, int64_t last) {
  adamw_args a = *(const adamw_args *)arg; /* a copy: stores below cannot change it */
  int64_t i = first;
  for (; i + NEAP_LANES <= last; i += NEAP_LANES) {
    vf m = v_load(a.m + i), v = v_load(a.v + i);
    v_store(a.param + i, adamw_step(&a, v_load(a.param + i), v_load(a.grad + i), &m, &v));
    v_store(a.m + i, m);
    v_store(a.v + i, v);
  }
  if (i < last) {
    int64_t n = last - i;
    vf m = v_load_n(a.m + i, n), v = v_load_n(a.v + i, n);
    vf param = adamw_step(&a, v_load_n(a.param + i, n), v_load_n(a.grad + i, n), &m, &v);
    v_store_n(a.param + i, param, n);
    v_store_n(a.m + i, m, n);
    v_store_n(a.v + i, v, n);
  }
}

int neap__cpu_adamw(void *context, const neap_view *param, const neap_view *grad,
                    const neap_view *m, const neap_view *v, const double *hyper) {
  (void)context;
  double lr = hyper[0], beta1 = hyper[1], beta2 = hyper[2], step = hyper[5];
  adamw_args args = {
      .param = param->data,
      .m = m->data,
      .v = v->data,
      .grad = grad->data,
      .keep = (float)(1.0 - lr * hyper[4]),
      .grad_scale = (float)hyper[6],
      .beta1 = (float)beta1,
      .beta2 = (float)beta2,
      .rest1 = (float)(1.0 - beta1),
      .rest2 = (float)(1.0 - beta2),
      .rate = (float)(lr / (1.0 - pow(beta1, step))),
      .root_unit = (float)(1.0 / sqrt(1.0 - pow(beta2, step))),
      .eps = (float)hyper[3],
  };
  neap__cpu_parallel(param->n_elements, 4, adamw_range, &args);
  return NEAP_OK;
}

typedef struct {
  float *param, *velocity; /* (any); velocity NULL: none */
  const float *grad;       /* (any) */
  float lr, momentum, decay, grad_scale;
} sgd_args;

static void sgd_range(const void *arg, int64_t first, int64_t last) {
  sgd_args a = *(const sgd_args *)arg;
  float *restrict param = a.param, *restrict velocity = a.velocity;
  const float *restrict grad = a.grad;
  if (!velocity) {
    for (int64_t i = first; i < last; i++) {
      param[i] -= a.lr * (grad[i] * a.grad_scale + a.decay * param[i]);
    }
    return;
  }
  for (int64_t i = first; i < last; i++) {
    velocity[i] = a.momentum * velocity[i] + (grad[i] * a.grad_scale + a.decay * param[i]);
    param[i] -= a.lr * velocity[i];
  }
}

int neap__cpu_sgd(void *context, const neap_view *param, const neap_view *grad,
                  const neap_view *velocity, const double *hyper) {
  (void)context;
  sgd_args args = {
      .param = param->data,
      .velocity = velocity ? velocity->data : NULL,
      .grad = grad->data,
      .lr = (float)hyper[0],
      .momentum = (float)hyper[1],
      .decay = (float)hyper[2],
      .grad_scale = (float)hyper[3],
  };
  neap__cpu_parallel(param->n_elements, 2, sgd_range, &args);
  return NEAP_OK;
}

typedef struct {
  const float *x; /* (any) */
  int64_t n;
  double *partial; /* one a block */
} squares_args;

enum { LANES = 16 };

static void square_blocks(const void *arg, int64_t first, int64_t last) {
  const squares_args *args = arg;
  for (int64_t block = first; block < last; block++) {
    int64_t i = block * NEAP_NORM_BLOCK;
    int64_t end = i + NEAP_NORM_BLOCK < args->n ? i + NEAP_NORM_BLOCK : args->n;
    double sums[LANES] = {0.0}, sum = 0.0;
    for (; i + LANES <= end; i += LANES) {
      for (int64_t j = 0; j < LANES; j++) {
        double x = (double)args->x[i + j];
        sums[j] += x * x;
      }
    }
    for (int64_t j = 0; i < end; i++, j++) {
      double x = (double)args->x[i];
      sums[j] += x * x;
    }
    for (int64_t j = 0; j < LANES; j++) {
      sum += sums[j];
    }
    args->partial[block] = sum;
  }
}

int neap__cpu_sum_squares(void *context, const neap_view *x, void *scratch, double *sum) {
  (void)context;
  squares_args args = {x->data, x->n_elements, scratch};
  int64_t blocks = (x->n_elements + NEAP_NORM_BLOCK - 1) / NEAP_NORM_BLOCK;
  neap__cpu_parallel(blocks, NEAP_NORM_BLOCK, square_blocks, &args);
  double total = 0.0;
  for (int64_t block = 0; block < blocks; block++) {
    total += args.partial[block];
  }
  *sum = total;
  return NEAP_OK;
}
