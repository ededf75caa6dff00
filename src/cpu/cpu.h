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
  X(MEAN, mean)               \
  X(SUBTRACT, subtract)       \
  X(SIGMOID, sigmoid)         \
  X(TANH, tanh)               \
  X(SELECT, select)           \
  X(LSTM_CELL, lstm_cell)     \
  X(GRU_CELL, gru_cell)     \
  X(CONV2D, conv2d)           \
  X(BATCHNORM, batchnorm)     \
  X(BATCHNORM_INFERENCE, batchnorm_inference) \
  X(MAXPOOL2D, maxpool2d)     \
  X(AVGPOOL2D, avgpool2d)
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

/* Description of the library behind it, "oneDNN 2.6.3"; loads it. NULL when it cannot be loaded. */
const char *neap__cpu_gemm_name(void);

/* n_batches products, one stride (in elements) a matrix; c_stride 0 sums them into one C in order.
 */
int neap__cpu_gemm_batch(int64_t n_batches, int trans_a, int trans_b, int64_t m, int64_t n,
                         int64_t k, const float *a, int64_t a_stride, const float *b,
                         int64_t b_stride, float beta, float *c, int64_t c_stride);

/* n_batches products C (M,N) = op(A) op(B) + beta C with lengths of rows and of matrices; c_stride
 * 0 sums them into one C in order. They are cut into blocks of a fixed size, each computed by one
 * thread: unlike those of one large product the bits do not depend on the number of threads
 * (OpenBLAS apart). */
typedef struct neap__products {
  int64_t n_batches, m, n, k;
  int trans_a, trans_b;
  const float *a;
  int64_t lda, a_stride;
  const float *b;
  int64_t ldb, b_stride;
  float beta, *c;
  int64_t ldc, c_stride;
} neap__products;

int neap__cpu_gemm_blocks(const neap__products *products);

/* The kernel for one row or one column: y (n) = matrix op vector + beta y. by_rows: y[i] is row i
 * of the matrix (n,k) times the vector; else column i of the matrix (k,n). */
void neap__cpu_gemv(int by_rows, int64_t n, int64_t k, const float *matrix, int64_t row_length,
                    const float *vector, int64_t vector_step, float beta, float *y, int64_t y_step);

/* Runs range(arg, first, last) over equal parts of 0..n-1, one a thread, where n items of about
 * `cost` element operations each are worth it; else in the calling thread, outside OpenMP. Parts
 * depend on the number of threads: what an item computes must not. */
typedef void (*neap__cpu_range)(const void *arg, int64_t first, int64_t last);
void neap__cpu_parallel(int64_t n, int64_t cost, neap__cpu_range range, const void *arg);

/* out (cols) = or += column sums of x (rows,cols), elementwise times y (rows,cols) unless NULL.
 * scratch: neap__row_blocks(rows) * cols floats. */
void neap__cpu_sum_rows(const float *x, const float *y, int64_t rows, int64_t cols, float *scratch,
                        float *out, int accumulate);
/* The second half of it: out = or += the sum of the blocks' partial rows, `stride` floats apart. */
void neap__cpu_sum_blocks(const float *partial, int64_t blocks, int64_t stride, int64_t cols,
                          float *out, int accumulate);

/* Convolution. The windows of one channel of x at one place of the weight are a row of columns: */
typedef struct neap__conv {
  int64_t n, c, height, width; /* x (N,C,H,W) */
  int64_t o, kh, kw;           /* weight (O,C,KH,KW) */
  int64_t oh, ow;              /* y (N,O,OH,OW) */
  int64_t stride, padding;
  int64_t window; /* C * KH * KW */
} neap__conv;

/* A tile: output rows first_row .. first_row + rows - 1 of `images` images. */
typedef struct neap__conv_part {
  int64_t first_image, images, first_row, rows;
} neap__conv_part;

/* columns (images,C*KH*KW,rows*OW) of the part; x is the whole tensor's. */
void neap__cpu_columns(const neap__conv *conv, const neap__conv_part *part, const float *x,
                       float *columns);
/* The transpose of that: adds columns to dx. */
void neap__cpu_columns_add(const neap__conv *conv, const neap__conv_part *part,
                           const float *columns, float *dx);

/* out (C) = or += sums of x (images,C,inner) over all but the channels. */
void neap__cpu_sum_channels(const float *x, int64_t images, int64_t channels, int64_t inner,
                            float *out, int accumulate);

/* Fails with INVALID, naming the first index outside 0..limit-1. */
int neap__cpu_check_indices(const char *op, const char *what, const neap_view *indices,
                            int64_t limit);

int neap__cpu_alloc(void *, size_t, void **);
void neap__cpu_free(void *, void *, size_t);
int neap__cpu_memory_info(void *, size_t *, size_t *);
int neap__cpu_copy(void *, void *, const void *, size_t);
int neap__cpu_zero(void *, void *, size_t);
/* sanitized builds only; unguard: before a segment is given back */
void neap__cpu_guard(void *, void *, size_t, size_t);
void neap__cpu_unguard(void *, size_t);

int neap__cpu_fill(void *, const neap_view *, double);
int neap__cpu_fill_random(void *, const neap_view *, int, double, double, uint64_t);
int neap__cpu_accumulate(void *, const neap_view *, const neap_view *);
int neap__cpu_lerp(void *, const neap_view *, const neap_view *, double);
int neap__cpu_adamw(void *, const neap_view *, const neap_view *, const neap_view *,
                    const neap_view *, const double *);
int neap__cpu_sgd(void *, const neap_view *, const neap_view *, const neap_view *, const double *);
int neap__cpu_sum_squares(void *, const neap_view *, void *, double *);

#endif
