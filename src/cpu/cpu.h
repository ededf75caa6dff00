/* Inside the cpu backend: kernels, vectorised math, the threshold below which threads do not pay.
 */
#ifndef NEAP_CPU_H
#define NEAP_CPU_H

#include "backend.h"

/* X(ID, name): the kernels of this backend, one file each; reshape and narrow have none (views). */
/* clang-format off */
#define NEAP_CPU_OPS(X)       \
  X(TRANSPOSE, transpose)     \
  X(ADD, add)                 \
  X(MULTIPLY, multiply)       \
  X(SCALE, scale)             \
  X(GELU, gelu)               \
  X(RELU, relu)               \
  X(SILU, silu)               \
  X(LAYERNORM, layernorm)     \
  X(RMSNORM, rmsnorm)         \
  X(EMBEDDING, embedding)     \
  X(DROPOUT, dropout)         \
  X(LINEAR, linear)           \
  X(MATMUL, matmul)           \
  X(ATTENTION, attention)     \
  X(CROSS_ENTROPY, cross_entropy) \
  X(SUM, sum)                 \
  X(MEAN, mean)
/* clang-format on */

#define NEAP_X(id, name)                                                                           \
  int neap__cpu_##name##_forward(const neap_call *);                                               \
  int neap__cpu_##name##_backward(const neap_call *);
NEAP_CPU_OPS(NEAP_X)
#undef NEAP_X

/* Row-major C (M,N) = op(A) op(B) + beta C; lda etc. are row lengths. One row or one column goes to
 * our own kernel, because the library's bits depend on threads there. */
int neap__cpu_gemm(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                   int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

int neap__cpu_fill(void *, const neap_view *, double);
int neap__cpu_fill_random(void *, const neap_view *, int, double, double, uint64_t);
int neap__cpu_accumulate(void *, const neap_view *, const neap_view *);
int neap__cpu_adamw(void *, const neap_view *, const neap_view *, const neap_view *,
                    const neap_view *, const double *);
int neap__cpu_sgd(void *, const neap_view *, const neap_view *, const neap_view *, const double *);
int neap__cpu_sum_squares(void *, const neap_view *, void *, double *);

#endif
