/* What a backend fills in. For implementers only: users include neap.h.
 *
 * The one rule: a kernel never allocates and never fails on shapes. The core has checked the
 * shapes, allocated outputs, gradients and scratch (src/core/rule_*.c says how much), so the same
 * bytes are counted on every backend, also on null, whose kernels are empty. A kernel returns 0 or
 * neap__error(...). Kernels are deterministic: for one thread count the same inputs give the same
 * bits, and reductions are summed in blocks whose size does not depend on the number of threads.
 */
#ifndef NEAP_BACKEND_H
#define NEAP_BACKEND_H

#include "neap.h"

enum { NEAP_BACKEND_ABI = 1 };

/* A contiguous row-major tensor as a kernel sees it. */
typedef struct neap_view {
  void *data; /* NULL where the tensor is empty, was not saved, or is not wanted */
  int64_t n_elements;
  int64_t dims[NEAP_MAX_DIMS];
  int32_t n_dims;
  int32_t dtype;
} neap_view;

/* Element e of item i draws from Philox4x32-10 with this key at counter (e / 4, i), lane e % 4,
 * where a tensor of n elements in n_items items has n / n_items elements an item. */
typedef struct neap_rng {
  uint64_t key;
  int64_t item;    /* global index of the tensor's first item */
  int64_t n_items; /* divides n_elements; >= 1 */
} neap_rng;

typedef struct neap_call {
  int32_t op; /* NEAP_OP_*, of the original where the op is a copy */
  int32_t n_inputs, n_outputs;
  const double *attrs;
  /* forward: all set. backward: data is NULL where the rule saved nothing; dims are always there.
   */
  const neap_view *in[NEAP_MAX_INPUTS];
  /* forward: to be written; data NULL: an auxiliary output nobody wants. backward: as in. */
  const neap_view *out[NEAP_MAX_OUTPUTS];
  /* backward only. grad_in NULL: not wanted; accumulate: add to what is there, else overwrite all
   * of it. grad_in[0] may share memory with grad_out[0] or in[0] where the rule allows it. */
  const neap_view *grad_out[NEAP_MAX_OUTPUTS];
  const neap_view *grad_in[NEAP_MAX_INPUTS];
  uint8_t accumulate[NEAP_MAX_INPUTS];
  void *scratch; /* as many bytes as the rule asked for, 64-byte aligned */
  size_t scratch_bytes;
  neap_rng rng;
  void *context; /* of open */
} neap_call;

typedef int (*neap_kernel)(const neap_call *call);

typedef struct neap_kernels {
  neap_kernel forward, backward; /* NULL: the backend does not have it (error when used) */
} neap_kernels;

typedef struct neap_backend {
  uint32_t abi; /* NEAP_BACKEND_ABI */
  const char *name;
  int computes; /* 0: tensors hold nothing, kernels are never called, reads give zeros */
  int (*open)(void **context);                           /* (optional) */
  void (*close)(void *context);                          /* (optional) */
  int (*alloc)(void *context, size_t bytes, void **out); /* 64-byte aligned at least */
  void (*free)(void *context, void *data, size_t bytes);
  int (*memory_info)(void *context, size_t *free, size_t *total); /* (optional) */
  int (*write)(void *context, void *to, const void *host, size_t bytes);
  int (*read)(void *context, void *host, const void *from, size_t bytes);
  int (*copy)(void *context, void *to, const void *from, size_t bytes);
  int (*zero)(void *context, void *to, size_t bytes);
  int (*fill)(void *context, const neap_view *to, double value);
  int (*fill_random)(void *context, const neap_view *to, int normal, double a, double b,
                     uint64_t key);
  int (*accumulate)(void *context, const neap_view *to,
                    const neap_view *from); /* to += from, f32 */
  int (*adamw)(void *context, const neap_view *param, const neap_view *grad, const neap_view *m,
               const neap_view *v,
               const double *hyper); /* lr beta1 beta2 eps decay step grad_scale */
  int (*sgd)(void *context, const neap_view *param, const neap_view *grad,
             const neap_view *velocity,
             const double *hyper); /* velocity NULL: none. lr momentum decay grad_scale */
  /* *sum of squares of a f32 tensor, in double; scratch: one double per NEAP_NORM_BLOCK elements */
  int (*sum_squares)(void *context, const neap_view *x, void *scratch, double *sum);
  int (*lerp)(void *context, const neap_view *to, const neap_view *from,
              double weight);  /* (optional) to += weight * (from - to), f32 */
  const neap_kernels *kernels; /* NEAP_N_OPS of them */
  /* (optional) From now on only the first `used` bytes of this block may be touched. Where it is
   * set the core leaves a gap behind each block, so that an overrun meets no other block. */
  void (*guard)(void *context, void *data, size_t used, size_t bytes);
} neap_backend;

enum { NEAP_NORM_BLOCK = 4096 };

/* Sums over rows are taken in this many blocks of neap__block_rows(rows) rows each, one partial row
 * a block in scratch, then over the blocks in order: independent of the number of threads. */
static inline int64_t neap__row_blocks(int64_t rows) {
  int64_t blocks = (rows + 31) / 32;
  return blocks < 32 ? blocks : 32;
}

static inline int64_t neap__block_rows(int64_t rows) {
  int64_t blocks = neap__row_blocks(rows);
  return blocks == 0 ? 0 : (rows + blocks - 1) / blocks;
}

/* conv2d turns the windows of x into columns of a matrix, in this many floats of scratch at a time:
 * of `images` whole images, or of `rows` rows of one image's output (one row at least, however much
 * that is). Independent of the number of threads. window: C * KH * KW; all of them above 0. */
enum { NEAP_COLUMN_FLOATS = 1 << 17 };

static inline void neap__conv_tile(int64_t n_images, int64_t window, int64_t out_rows,
                                   int64_t out_width, int64_t *images, int64_t *rows) {
  int64_t fit = NEAP_COLUMN_FLOATS / (window * out_width);
  *images = fit / out_rows > 1 ? fit / out_rows : 1;
  *images = *images < n_images ? *images : n_images;
  *rows = fit > 1 ? fit : 1;
  *rows = *rows < out_rows ? *rows : out_rows;
}

/* A window of 1x1 that moves by 1 over no padding: x is its own matrix of columns. */
static inline int neap__conv_is_direct(const int64_t *weight_dims, const double *attrs) {
  return weight_dims[2] == 1 && weight_dims[3] == 1 && attrs[0] == 1.0 && attrs[1] == 0.0;
}

/* maxpool2d remembers where in its window each output came from, in bytes where they suffice. */
static inline int neap__pool_is_wide(int64_t kernel) {
  return kernel > 16;
}

/* Sets the text of neap_last_error and returns code. Keep the text one sentence with numbers. */
int neap__error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
