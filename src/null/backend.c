/* The null backend: hands out addresses and counts bytes but holds and computes nothing, so that
 * the exact memory of any model can be measured on any machine. Its addresses are never
 * dereferenced: the core calls no kernel and no transfer that would.
 */
#include "backend.h"

enum { ALIGNMENT = 64 };

/* addresses only rise: two live tensors never have the same one, and a stale one is never reused */
static uint64_t next_address = 1u << 20;

static int null_alloc(void *context, size_t bytes, void **out) {
  (void)context;
  uint64_t rounded = ((uint64_t)bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
  *out = (void *)(uintptr_t)next_address;
  next_address += rounded;
  return NEAP_OK;
}

static void null_free(void *context, void *data, size_t bytes) {
  (void)context, (void)data, (void)bytes;
}

static int null_write(void *context, void *to, const void *host, size_t bytes) {
  (void)context, (void)to, (void)host, (void)bytes;
  return NEAP_OK;
}

static int null_read(void *context, void *host, const void *from, size_t bytes) {
  (void)context, (void)from;
  unsigned char *zeros = host;
  for (size_t i = 0; i < bytes; i++) {
    zeros[i] = 0;
  }
  return NEAP_OK;
}

static int null_copy(void *context, void *to, const void *from, size_t bytes) {
  (void)context, (void)to, (void)from, (void)bytes;
  return NEAP_OK;
}

static int null_zero(void *context, void *to, size_t bytes) {
  (void)context, (void)to, (void)bytes;
  return NEAP_OK;
}

static int null_fill(void *context, const neap_view *to, double value) {
  (void)context, (void)to, (void)value;
  return NEAP_OK;
}

static int null_fill_random(void *context, const neap_view *to, int normal, double a, double b,
                            uint64_t key) {
  (void)context, (void)to, (void)normal, (void)a, (void)b, (void)key;
  return NEAP_OK;
}

static int null_accumulate(void *context, const neap_view *to, const neap_view *from) {
  (void)context, (void)to, (void)from;
  return NEAP_OK;
}

static int null_adamw(void *context, const neap_view *param, const neap_view *grad,
                      const neap_view *m, const neap_view *v, const double *hyper) {
  (void)context, (void)param, (void)grad, (void)m, (void)v, (void)hyper;
  return NEAP_OK;
}

static int null_sgd(void *context, const neap_view *param, const neap_view *grad,
                    const neap_view *velocity, const double *hyper) {
  (void)context, (void)param, (void)grad, (void)velocity, (void)hyper;
  return NEAP_OK;
}

static int null_sum_squares(void *context, const neap_view *x, void *scratch, double *sum) {
  (void)context, (void)x, (void)scratch;
  *sum = 0.0;
  return NEAP_OK;
}

static int null_lerp(void *context, const neap_view *to, const neap_view *from, double weight) {
  (void)context, (void)to, (void)from, (void)weight;
  return NEAP_OK;
}

static const neap_kernels kernels[NEAP_N_OPS];

extern const neap_backend neap__null_backend;
const neap_backend neap__null_backend = {
    .abi = NEAP_BACKEND_ABI,
    .name = "null",
    .computes = 0,
    .alloc = null_alloc,
    .free = null_free,
    .write = null_write,
    .read = null_read,
    .copy = null_copy,
    .zero = null_zero,
    .fill = null_fill,
    .fill_random = null_fill_random,
    .accumulate = null_accumulate,
    .adamw = null_adamw,
    .sgd = null_sgd,
    .sum_squares = null_sum_squares,
    .lerp = null_lerp,
    .kernels = kernels,
};
