/* What forward and backward of attention share: where a head's rows lie, and their packing. */
#ifndef NEAP_CPU_ATTENTION_H
#define NEAP_CPU_ATTENTION_H

#include "cpu/block.h"
#include "cpu/cpu.h"

/* Blocks of queries and of keys, and the widest head. A strip is NEAP_STRIP queries. */
enum { NEAP_Q_BLOCK = 64, NEAP_K_BLOCK = 64, NEAP_MAX_HEAD = 256 };

typedef struct {
  int64_t batch, tokens, width, heads, head_dim; /* B, T, C, H, C / H */
  int causal;
  float scale;
} neap__attention;

static inline neap__attention attention_describe(const neap_call *call, const neap_view *qkv) {
  neap__attention shape = {
      .batch = qkv->dims[0],
      .tokens = qkv->dims[1],
      .width = qkv->dims[2] / 3,
      .heads = (int64_t)call->attrs[0],
      .causal = call->attrs[1] != 0.0,
  };
  shape.head_dim = shape.width / shape.heads;
  shape.scale = 1.0f / __builtin_sqrtf((float)shape.head_dim);
  return shape;
}

static inline int64_t attention_smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* to (n,to_row) = rows of from, from_row apart, the first d columns; the others 0. */
static inline void attention_pack(float *to, int64_t to_row, const float *from, int64_t from_row,
                                  int64_t n, int64_t d, float factor) {
  for (int64_t i = 0; i < n; i++, to += to_row, from += from_row) {
    for (int64_t j = 0; j < d; j++) {
      to[j] = factor * from[j];
    }
    for (int64_t j = d; j < to_row; j++) {
      to[j] = 0.0f;
    }
  }
}

/* to (cols,to_row) = factor * from (rows,from_row) transposed. */
static inline void attention_turn(float *to, int64_t to_row, const float *from, int64_t from_row,
                                  int64_t rows, int64_t cols, float factor) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const float *at = from + i * from_row;
    int64_t j = 0;
    for (; j + 4 <= cols; j += 4, at += 4) {
      v4 quad[4] = {v4_load(at), v4_load(at + from_row), v4_load(at + 2 * from_row),
                    v4_load(at + 3 * from_row)};
      v4_turn(quad);
#pragma GCC unroll 4
      for (int k = 0; k < 4; k++) {
        v4_store(to + (j + k) * to_row + i, quad[k] * factor);
      }
    }
    for (; j < cols; j++, at++) {
      for (int k = 0; k < 4; k++) {
        to[j * to_row + i + k] = factor * at[k * from_row];
      }
    }
  }
  for (; i < rows; i++) {
    for (int64_t j = 0; j < cols; j++) {
      to[j * to_row + i] = factor * from[i * from_row + j];
    }
  }
}

/* to (strips,d,NEAP_STRIP) = transposed rows of from, in strips of rows; rows from n on are 0. */
static inline void attention_pack_strips(float *to, const float *from, int64_t from_row, int64_t n,
                                         int64_t d, float factor) {
  for (int64_t first = 0; first < n; first += NEAP_STRIP, to += d * NEAP_STRIP) {
    int64_t rows = attention_smaller(NEAP_STRIP, n - first);
    if (rows < NEAP_STRIP) {
      memset(to, 0, (size_t)(d * NEAP_STRIP) * sizeof(float));
    }
    attention_turn(to, NEAP_STRIP, from + first * from_row, from_row, rows, d, factor);
  }
}

/* Queries of a strip that come before a key may not see it. scores (keys,c_row); `ahead` = first
 * key - first query of the strip. */
static inline void attention_mask(float *scores, int64_t row, int64_t keys, int64_t ahead,
                                  float value) {
  for (int64_t j = ahead < 0 ? -ahead : 0; j < keys; j++) {
    int64_t hidden = attention_smaller(ahead + j, NEAP_STRIP);
    for (int64_t i = 0; i < hidden; i++) {
      scores[j * row + i] = value;
    }
  }
}

int neap__cpu_attention_run(const neap_call *call, const neap__attention *shape,
                            neap__cpu_range range);

#endif
