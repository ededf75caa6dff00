/* transpose: (..,M,N) -> (..,N,M), a copy. Saves nothing.
 * Tiles of 16 x 16 go through a buffer: every cache line is read once and written once, whole,
 * however badly row lengths fall on the sets of the cache. Inside, 4 x 4 are turned in registers.
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

/* 4 lines of 4, line_length apart = or += 4 rows of a tile, turned. */
NEAP_INLINE void turn_quad(const float *tile, float *line, int64_t line_length, int accumulate) {
  v4 rows[4] = {v4_load(tile), v4_load(tile + TILE), v4_load(tile + 2 * TILE),
                v4_load(tile + 3 * TILE)};
  v4_turn(rows);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++, line += line_length) {
    v4_store(line, accumulate ? v4_load(line) + rows[i] : rows[i]);
  }
}

static void move_full_tile(const transpose_args *args, const float *from, float *to) {
  _Alignas(64) float tile[TILE * TILE];
  for (int64_t i = 0; i < TILE; i++) {
    memcpy(tile + i * TILE, from + i * args->cols, TILE * sizeof(float));
  }
  /* four lines at a time until they are whole */
  for (int64_t j = 0; j < TILE; j += 4) {
    for (int64_t i = 0; i < TILE; i += 4) {
      turn_quad(tile + i * TILE + j, to + j * args->rows + i, args->rows, args->accumulate);
    }
  }
}

static void move_tile(const transpose_args *args, const float *from, float *to, int64_t n_rows,
                      int64_t n_cols) {
  if (n_rows == TILE && n_cols == TILE) {
    move_full_tile(args, from, to);
    return;
  }
  for (int64_t j = 0; j < n_cols; j++) {
    float *line = to + j * args->rows;
    for (int64_t i = 0; i < n_rows; i++) {
      float x = from[i * args->cols + j];
      line[i] = args->accumulate ? line[i] + x : x;
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
