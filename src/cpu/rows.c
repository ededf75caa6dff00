/* Sums over rows: partial sums of fixed blocks of rows, then the blocks in order. */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

typedef struct {
  const float *x, *y; /* (rows,cols) */
  int64_t rows, cols;
  float *partial; /* (blocks,cols) */
} sum_args;

static void sum_scalars(const sum_args *args, int64_t first, int64_t last, float *out) {
  vf sums[2] = {{0}, {0}};
  int64_t i = first;
  for (; i + NEAP_LANES <= last; i += NEAP_LANES) {
    vf x = v_load(args->x + i);
    sums[0] += args->y ? x * v_load(args->y + i) : x;
  }
  if (i < last) {
    vf x = v_load_n(args->x + i, last - i);
    sums[1] = args->y ? x * v_load_n(args->y + i, last - i) : x;
  }
  *out = v_sum(sums[0] + sums[1]);
}

static void sum_block(const void *arg, int64_t first, int64_t last) {
  const sum_args *args = arg;
  int64_t cols = args->cols, block_rows = neap__block_rows(args->rows);
  for (int64_t block = first; block < last; block++) {
    int64_t row = block * block_rows;
    int64_t end = row + block_rows < args->rows ? row + block_rows : args->rows;
    float *out = args->partial + block * cols;
    if (cols == 1) {
      sum_scalars(args, row, end, out);
      continue;
    }
    memset(out, 0, (size_t)cols * sizeof *out);
    for (; row < end; row++) {
      const float *x = args->x + row * cols;
      if (args->y) {
        v_map2(out, x, args->y + row * cols, 0, cols, 1, v_multiply);
      } else {
        v_add_to(out, x, cols);
      }
    }
  }
}

typedef struct {
  const float *partial;
  int64_t blocks, stride;
  float *out;
  int accumulate;
} blocks_args;

static void sum_columns(const void *arg, int64_t first, int64_t last) {
  const blocks_args *args = arg;
  for (int64_t c = first; c < last; c += NEAP_LANES) {
    int64_t n = last - c < NEAP_LANES ? last - c : NEAP_LANES;
    vf sum = {0};
    for (int64_t block = 0; block < args->blocks; block++) {
      const float *from = args->partial + block * args->stride + c;
      sum += n < NEAP_LANES ? v_load_n(from, n) : v_load(from);
    }
    if (args->accumulate) {
      sum += n < NEAP_LANES ? v_load_n(args->out + c, n) : v_load(args->out + c);
    }
    v_store_n(args->out + c, sum, n);
  }
}

void neap__cpu_sum_blocks(const float *partial, int64_t blocks, int64_t stride, int64_t cols,
                          float *out, int accumulate) {
  blocks_args args = {partial, blocks, stride, out, accumulate};
  neap__cpu_parallel(cols, blocks < 15 ? blocks : 15, sum_columns, &args);
}

void neap__cpu_sum_rows(const float *x, const float *y, int64_t rows, int64_t cols, float *scratch,
                        float *out, int accumulate) {
  sum_args args = {x, y, rows, cols, scratch};
  int64_t blocks = neap__row_blocks(rows);
  neap__cpu_parallel(blocks, neap__block_rows(rows) * cols, sum_block, &args);
  neap__cpu_sum_blocks(scratch, blocks, cols, cols, out, accumulate);
}
