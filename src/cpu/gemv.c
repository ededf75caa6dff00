/* Products of a matrix and a vector, row-major. Libraries cut these by threads, and their bits with
 * them; here every element of y is summed over k in one fixed order, whoever computes it.
 *
 * By rows: y[i] is a dot product, in 4 vectors of partial sums. By columns: y is a sum of rows of
 * the matrix, taken for one strip of columns at a time so that it stays in registers.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

typedef struct {
  int64_t n, k;
  const float *matrix;
  int64_t row_length;
  const float *vector;
  int64_t vector_step;
  float beta, *y;
  int64_t y_step;
} gemv_args;

static float dot(const float *x, const float *y, int64_t n) {
  vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
  int64_t i = 0;
  for (; i + 4 * NEAP_LANES <= n; i += 4 * NEAP_LANES) {
    s0 = v_fma(v_load(x + i), v_load(y + i), s0);
    s1 = v_fma(v_load(x + i + NEAP_LANES), v_load(y + i + NEAP_LANES), s1);
    s2 = v_fma(v_load(x + i + 2 * NEAP_LANES), v_load(y + i + 2 * NEAP_LANES), s2);
    s3 = v_fma(v_load(x + i + 3 * NEAP_LANES), v_load(y + i + 3 * NEAP_LANES), s3);
  }
  for (; i + NEAP_LANES <= n; i += NEAP_LANES) {
    s0 = v_fma(v_load(x + i), v_load(y + i), s0);
  }
  if (i < n) {
    s1 = v_fma(v_load_n(x + i, n - i), v_load_n(y + i, n - i), s1);
  }
  return v_sum((s0 + s1) + (s2 + s3));
}

static float dot_strided(const float *x, const float *y, int64_t y_step, int64_t n) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; i++) {
    sum += x[i] * y[i * y_step];
  }
  return sum;
}

static void put(const gemv_args *args, int64_t i, float value) {
  float *y = args->y + i * args->y_step;
  *y = args->beta == 0.0f ? value : value + args->beta * *y;
}

static void rows_range(const void *arg, int64_t first, int64_t last) {
  const gemv_args *args = arg;
  for (int64_t i = first; i < last; i++) {
    const float *row = args->matrix + i * args->row_length;
    put(args, i,
        args->vector_step == 1 ? dot(row, args->vector, args->k)
                               : dot_strided(row, args->vector, args->vector_step, args->k));
  }
}

enum { STRIP = 4 * NEAP_LANES };

static void columns_range(const void *arg, int64_t first, int64_t last) {
  const gemv_args *args = arg;
  for (int64_t strip = first; strip < last; strip++) {
    int64_t c = strip * STRIP, n = args->n - c < STRIP ? args->n - c : STRIP;
    float sums[STRIP] = {0};
    if (n == STRIP) {
      vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
      const float *row = args->matrix + c;
      for (int64_t i = 0; i < args->k; i++, row += args->row_length) {
        vf x = v_set(args->vector[i * args->vector_step]);
        s0 = v_fma(x, v_load(row), s0);
        s1 = v_fma(x, v_load(row + NEAP_LANES), s1);
        s2 = v_fma(x, v_load(row + 2 * NEAP_LANES), s2);
        s3 = v_fma(x, v_load(row + 3 * NEAP_LANES), s3);
      }
      v_store(sums, s0);
      v_store(sums + NEAP_LANES, s1);
      v_store(sums + 2 * NEAP_LANES, s2);
      v_store(sums + 3 * NEAP_LANES, s3);
    } else {
      for (int64_t i = 0; i < args->k; i++) {
        float x = args->vector[i * args->vector_step];
        for (int64_t j = 0; j < n; j++) {
          sums[j] += x * args->matrix[i * args->row_length + c + j];
        }
      }
    }
    for (int64_t j = 0; j < n; j++) {
      put(args, c + j, sums[j]);
    }
  }
}

void neap__cpu_gemv(int by_rows, int64_t n, int64_t k, const float *matrix, int64_t row_length,
                    const float *vector, int64_t vector_step, float beta, float *y,
                    int64_t y_step) {
  gemv_args args = {n, k, matrix, row_length, vector, vector_step, beta, y, y_step};
  if (by_rows) {
    neap__cpu_parallel(n, k / 4 + 1, rows_range, &args);
  } else {
    neap__cpu_parallel((n + STRIP - 1) / STRIP, k * STRIP / 4 + 1, columns_range, &args);
  }
}
