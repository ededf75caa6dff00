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

/* to (strips,d,NEAP_STRIP) = transposed rows of from, in strips of rows; rows from n on are 0. */
static inline void attention_pack_strips(float *to, const float *from, int64_t from_row, int64_t n,
                                         int64_t d, float factor) {
  for (int64_t first = 0; first < n; first += NEAP_STRIP, to += d * NEAP_STRIP) {
    for (int64_t i = 0; i < NEAP_STRIP; i++) {
      const float *row = from + (first + i) * from_row;
      for (int64_t j = 0; j < d; j++) {
        to[j * NEAP_STRIP + i] = first + i < n ? factor * row[j] : 0.0f;
      }
    }
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
