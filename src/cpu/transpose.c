/* transpose: (..,M,N) -> (..,N,M), a copy. Saves nothing.
 * Tiles of 16 x 16 go through a buffer: every cache line is read once and written once, whole.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

enum { TILE = 16 };

typedef struct {
  const float *from; /* (batch,rows,cols) */
  float *to;         /* (batch,cols,rows) */
  int64_t rows, cols;
  int accumulate;
} transpose_args;

static void move_tile(const transpose_args *args, const float *from, float *to, int64_t n_rows,
                      int64_t n_cols) {
  float tile[TILE][TILE];
  for (int64_t i = 0; i < n_rows; i++) {
    memcpy(tile[i], from + i * args->cols, (size_t)n_cols * sizeof(float));
  }
  for (int64_t j = 0; j < n_cols; j++) {
    float *line = to + j * args->rows;
    for (int64_t i = 0; i < n_rows; i++) {
      line[i] = args->accumulate ? line[i] + tile[i][j] : tile[i][j];
    }
  }
}

/* An item is one band of TILE rows of one matrix. */
static void transpose_range(const void *arg, int64_t first, int64_t last) {
  const transpose_args *args = arg;
  int64_t bands = (args->rows + TILE - 1) / TILE;
  for (int64_t item = first; item < last; item++) {
    int64_t matrix = item / bands, row = item % bands * TILE;
    int64_t n_rows = args->rows - row < TILE ? args->rows - row : TILE;
    const float *from = args->from + (matrix * args->rows + row) * args->cols;
    float *to = args->to + matrix * args->rows * args->cols + row;
    for (int64_t col = 0; col < args->cols; col += TILE) {
      int64_t n_cols = args->cols - col < TILE ? args->cols - col : TILE;
      move_tile(args, from + col, to + col * args->rows, n_rows, n_cols);
    }
  }
}

static void transpose(const neap_view *from, const neap_view *to, int accumulate) {
  if (from->n_elements == 0) {
    return;
  }
  int64_t rows = from->dims[from->n_dims - 2], cols = from->dims[from->n_dims - 1];
  int64_t bands = (rows + TILE - 1) / TILE;
  transpose_args args = {from->data, to->data, rows, cols, accumulate};
  neap__cpu_parallel(from->n_elements / (rows * cols) * bands, TILE * cols, transpose_range, &args);
}

int neap__cpu_transpose_forward(const neap_call *call) {
  transpose(call->in[0], call->out[0], 0);
  return NEAP_OK;
}

int neap__cpu_transpose_backward(const neap_call *call) {
  if (call->grad_in[0]) {
    transpose(call->grad_out[0], call->grad_in[0], call->accumulate[0]);
  }
  return NEAP_OK;
}
