/* Products of small matrices that lie in the first cache, for attention. C is cut into tiles of up
 * to 6 rows by 2 vectors, which fill 12 of 16 registers; every element is summed over k in order.
 */
#ifndef NEAP_CPU_BLOCK_H
#define NEAP_CPU_BLOCK_H

#include "cpu/vmath.h"

enum { NEAP_STRIP = 2 * NEAP_LANES, NEAP_TILE_ROWS = 6 };

typedef struct {
  const float *a; /* (m,k): element (i,l) is a[i * a_row + l * a_col] */
  int64_t a_row, a_col;
  const float *b; /* (k,n), rows b_row apart */
  int64_t b_row;
  float *c; /* (m,n), rows c_row apart */
  int64_t c_row;
  int64_t k;
  int add; /* to what is in c */
} neap__block;

/* rows is a constant where this is inlined. */
NEAP_INLINE void block_tile(const neap__block *p, int64_t i, int64_t j, const int rows) {
  vf sums[NEAP_TILE_ROWS][2];
  const float *a = p->a + i * p->a_row, *b = p->b + j;
  float *c = p->c + i * p->c_row + j;
  int64_t a_row = p->a_row, a_col = p->a_col, b_row = p->b_row, k = p->k;
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
    sums[r][0] = sums[r][1] = (vf){0};
  }
  for (int64_t l = 0; l < k; l++, a += a_col, b += b_row) {
    vf b0 = v_load(b), b1 = v_load(b + NEAP_LANES);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
      vf x = v_set(a[r * a_row]);
      sums[r][0] = v_fma(x, b0, sums[r][0]);
      sums[r][1] = v_fma(x, b1, sums[r][1]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
    float *line = c + r * p->c_row;
    v_store(line, p->add ? v_load(line) + sums[r][0] : sums[r][0]);
    v_store(line + NEAP_LANES, p->add ? v_load(line + NEAP_LANES) + sums[r][1] : sums[r][1]);
  }
}

/* n must be a multiple of NEAP_STRIP. */
static inline void block_product(const neap__block *p, int64_t m, int64_t n) {
  for (int64_t j = 0; j < n; j += NEAP_STRIP) {
    int64_t i = 0;
    for (; i + 6 <= m; i += 6) {
      block_tile(p, i, j, 6);
    }
    switch (m - i) {
    case 5:
      block_tile(p, i, j, 5);
      break;
    case 4:
      block_tile(p, i, j, 4);
      break;
    case 3:
      block_tile(p, i, j, 3);
      break;
    case 2:
      block_tile(p, i, j, 2);
      break;
    case 1:
      block_tile(p, i, j, 1);
      break;
    default:
      break;
    }
  }
}

#endif
