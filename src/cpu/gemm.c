/* Matrix products by a library: oneDNN, opened at the first product because loading it takes a
 * tenth of a second, or OpenBLAS, linked (-DNEAP_GEMM_OPENBLAS). Products with one row or column go
 * to gemv.c: the library splits those by threads. k = 0 is beta C; nothing is read.
 */
#include "cpu/cpu.h"
#include <omp.h>
#include <stdio.h>
#include <string.h>

#ifdef NEAP_GEMM_OPENBLAS
#include <cblas.h>

enum { NESTS = 0 }; /* it has a thread pool of its own: no products inside a parallel region */

static int open_library(void) {
  static int n_threads;
  int wanted = omp_get_max_threads();
  if (n_threads != wanted) {
    openblas_set_num_threads(wanted);
    n_threads = wanted;
  }
  return NEAP_OK;
}

static int multiply(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                    int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
              trans_b ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1.0f, a,
              (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
  return NEAP_OK;
}

const char *neap__cpu_gemm_name(void) {
  static char name[64];
  char version[32] = "";
  sscanf(openblas_get_config(), "OpenBLAS %31s", version);
  snprintf(name, sizeof name, "OpenBLAS %s", version);
  return name;
}

#else
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define SONAME "libdnnl.so." TEXT(DNNL_VERSION_MAJOR)

enum { NESTS = 1 }; /* it runs on OpenMP and keeps to one thread inside a parallel region */

typedef dnnl_status_t (*sgemm_function)(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float,
                                        const float *, dnnl_dim_t, const float *, dnnl_dim_t, float,
                                        float *, dnnl_dim_t);
typedef const dnnl_version_t *(*version_function)(void);

static sgemm_function sgemm;
static version_function version;

static int open_library(void) {
  if (sgemm) {
    return NEAP_OK;
  }
  void *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    return neap__error(NEAP_ERR_UNSUPPORTED,
                       "cpu: matrix products need oneDNN (%s; install libdnnl2, or build with "
                       "GEMM=openblas): %s",
                       SONAME, reason ? reason : "cannot be opened");
  }
  /* ISO C has no cast from object to function pointers */
  void *symbols[2] = {dlsym(library, "dnnl_sgemm"), dlsym(library, "dnnl_version")};
  if (!symbols[0] || !symbols[1]) {
    dlclose(library);
    return neap__error(NEAP_ERR_UNSUPPORTED, "cpu: %s has no dnnl_sgemm", SONAME);
  }
  memcpy(&version, &symbols[1], sizeof version);
  memcpy(&sgemm, &symbols[0], sizeof sgemm);
  return NEAP_OK;
}

static int multiply(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                    int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  dnnl_status_t status =
      sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
  if (status != dnnl_success) {
    return neap__error(NEAP_ERR_DEVICE,
                       "cpu: oneDNN failed with status %d on a product %lldx%lldx%lld", (int)status,
                       (long long)m, (long long)n, (long long)k);
  }
  return NEAP_OK;
}

const char *neap__cpu_gemm_name(void) {
  static char name[64];
  if (open_library() != NEAP_OK) {
    return NULL;
  }
  const dnnl_version_t *v = version();
  snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  return name;
}
#endif

static void scale_matrix(int64_t m, int64_t n, float beta, float *c, int64_t ldc) {
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      float *at = c + i * ldc + j;
      *at = beta == 0.0f ? 0.0f : beta * *at;
    }
  }
}

int neap__cpu_gemm(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, const float *a,
                   int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  if (m == 0 || n == 0) {
    return NEAP_OK;
  }
  if (k == 0) {
    scale_matrix(m, n, beta, c, ldc);
    return NEAP_OK;
  }
  if (n == 1) {
    neap__cpu_gemv(!trans_a, m, k, a, lda, b, trans_b ? 1 : ldb, beta, c, ldc);
    return NEAP_OK;
  }
  if (m == 1) {
    neap__cpu_gemv(trans_b, n, k, b, ldb, a, trans_a ? lda : 1, beta, c, 1);
    return NEAP_OK;
  }
  int code = open_library();
  return code ? code : multiply(trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

typedef struct {
  int trans_a, trans_b;
  int64_t m, n, k;
  const float *a, *b;
  int64_t a_stride, b_stride;
  float beta, *c;
  int64_t c_stride;
  int *code;
} batch_args;

static void multiply_range(const void *arg, int64_t first, int64_t last) {
  const batch_args *g = arg;
  for (int64_t i = first; i < last; i++) {
    float beta = g->c_stride == 0 && i > 0 ? 1.0f : g->beta;
    int code = neap__cpu_gemm(g->trans_a, g->trans_b, g->m, g->n, g->k, g->a + i * g->a_stride,
                              g->trans_a ? g->m : g->k, g->b + i * g->b_stride,
                              g->trans_b ? g->k : g->n, beta, g->c + i * g->c_stride, g->n);
    if (code != NEAP_OK) {
#pragma omp atomic write
      *g->code = code;
    }
  }
}

int neap__cpu_gemm_batch(int64_t n_batches, int trans_a, int trans_b, int64_t m, int64_t n,
                         int64_t k, const float *a, int64_t a_stride, const float *b,
                         int64_t b_stride, float beta, float *c, int64_t c_stride) {
  int code = NEAP_OK;
  batch_args args = {trans_a, trans_b, m, n, k, a, b, a_stride, b_stride, beta, c, c_stride, &code};
  /* many products: one a thread. Which way follows from the shape, because the bits may. */
  if (!NESTS || c_stride == 0 || n_batches < 8) {
    multiply_range(&args, 0, n_batches);
    return code;
  }
  code = m > 0 && n > 0 && k > 0 ? open_library() : NEAP_OK; /* before threads need it */
  if (code == NEAP_OK) {
    neap__cpu_parallel(n_batches, m * n * (k / 8 + 1), multiply_range, &args);
    /* a thread's text is lost with the thread: say it again here */
    code = code ? neap__error(code, "cpu: a product %lldx%lldx%lld of a batch failed", (long long)m,
                              (long long)n, (long long)k)
                : NEAP_OK;
  }
  return code;
}

/* most rows and columns of C that one call computes; FORK: element operations that make
 * neap__cpu_parallel enter its region, where the library keeps to one thread */
enum { BLOCK_ROWS = 64, BLOCK_COLUMNS = 192, BLOCK_SUM_COLUMNS = 96, FORK = 16384 };

typedef struct {
  const neap__products *p;
  int64_t n_rows, n_columns; /* blocks */
  int64_t width;             /* columns of a block */
  int *code;
} blocks_args;

static void blocks_range(const void *arg, int64_t first, int64_t last) {
  const blocks_args *args = arg;
  const neap__products *p = args->p;
  int sums = p->c_stride == 0;
  for (int64_t item = first; item < last; item++) {
    int64_t block = item % (args->n_rows * args->n_columns);
    int64_t i = block / args->n_columns * BLOCK_ROWS, j = block % args->n_columns * args->width;
    int64_t m = p->m - i < BLOCK_ROWS ? p->m - i : BLOCK_ROWS;
    int64_t n = p->n - j < args->width ? p->n - j : args->width;
    int64_t batch = sums ? 0 : item / (args->n_rows * args->n_columns);
    int64_t end = sums ? p->n_batches : batch + 1;
    for (float beta = p->beta; batch < end; batch++, beta = 1.0f) {
      int code = neap__cpu_gemm(p->trans_a, p->trans_b, m, n, p->k,
                                p->a + batch * p->a_stride + (p->trans_a ? i : i * p->lda), p->lda,
                                p->b + batch * p->b_stride + (p->trans_b ? j * p->ldb : j), p->ldb,
                                beta, p->c + batch * p->c_stride + i * p->ldc + j, p->ldc);
      if (code != NEAP_OK) {
#pragma omp atomic write
        *args->code = code;
      }
    }
  }
}

int neap__cpu_gemm_blocks(const neap__products *p) {
  int code = p->m > 0 && p->n > 0 && p->k > 0 ? open_library() : NEAP_OK;
  int64_t most = p->c_stride == 0 ? BLOCK_SUM_COLUMNS : BLOCK_COLUMNS;
  blocks_args args = {.p = p, .n_rows = (p->m + BLOCK_ROWS - 1) / BLOCK_ROWS, .code = &code};
  args.n_columns = (p->n + most - 1) / most;
  int64_t batches = p->c_stride == 0 && p->n_batches > 0 ? 1 : p->n_batches;
  if (args.n_rows * args.n_columns * batches == 1 && p->n > 1) {
    args.n_columns = 2; /* a single block would be the library's to cut */
  }
  args.width = p->n > 0 ? (p->n + args.n_columns - 1) / args.n_columns : 0;
  int64_t items = args.n_rows * args.n_columns * batches;
  if (code != NEAP_OK || items == 0) {
    return code;
  }
  if (!NESTS) {
    blocks_range(&args, 0, items);
    return code;
  }
  int64_t m = p->m < BLOCK_ROWS ? p->m : BLOCK_ROWS;
  int64_t depth = p->c_stride == 0 ? p->k * p->n_batches : p->k;
  int64_t cost = m * args.width * (depth / 8 + 1);
  neap__cpu_parallel(items, cost > FORK ? cost : FORK, blocks_range, &args);
  /* a thread's text is lost with the thread: say it again here */
  return code ? neap__error(code, "cpu: a product %lldx%lldx%lld in blocks failed", (long long)p->m,
                            (long long)p->n, (long long)p->k)
              : NEAP_OK;
}
