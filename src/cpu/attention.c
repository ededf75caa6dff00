/* attention forward: softmax(q k^T / sqrt(C/H)) v per head; qkv (B,T,3C) -> (B,T,C), C = H heads.
 * The T x T matrix is never stored (Dao et al. 2022): a block of queries meets the keys block by
 * block, with a running maximum and sum a query; what was summed so far is rescaled when the
 * maximum rises. Vectors run over queries: scores are held as (keys,queries), so that maxima and
 * sums need no steps across lanes and neither keys nor values have to be transposed. out[1] =
 * log-sum-exp (B,H,T). A pair of batch and head is one thread's, in fixed order.
 */
#include "cpu/attention.h"
#include <math.h>

typedef struct {
  _Alignas(64) float q[NEAP_MAX_HEAD * NEAP_Q_BLOCK];   /* (strips,d,STRIP), scaled */
  _Alignas(64) float o[NEAP_MAX_HEAD * NEAP_Q_BLOCK];   /* (strips,d,STRIP), not yet divided */
  _Alignas(64) float k[NEAP_K_BLOCK * NEAP_MAX_HEAD];   /* (keys,d) */
  _Alignas(64) float v[NEAP_K_BLOCK * NEAP_MAX_HEAD];   /* (keys,d) */
  _Alignas(64) float scores[NEAP_K_BLOCK * NEAP_STRIP]; /* (keys,STRIP) */
  _Alignas(64) float most[NEAP_Q_BLOCK], sum[NEAP_Q_BLOCK];
} buffers;

/* scores -> e^(score - most); most and sum go on; returns through factor what o must shrink by. */
static void soften(float *scores, int64_t keys, float *most, float *sum, float *factor) {
  for (int64_t half = 0; half < NEAP_STRIP; half += NEAP_LANES) {
    vf before = v_load(most + half), high = before;
    for (int64_t j = 0; j < keys; j++) {
      high = v_max(high, v_load(scores + j * NEAP_STRIP + half));
    }
    vf shrink = v_exp_below(before - high), total = {0};
    for (int64_t j = 0; j < keys; j++) {
      float *at = scores + j * NEAP_STRIP + half;
      vf p = v_exp_below(v_load(at) - high);
      v_store(at, p);
      total += p;
    }
    v_store(most + half, high);
    v_store(sum + half, v_fma(v_load(sum + half), shrink, total));
    v_store(factor + half, shrink);
  }
}

/* One strip of queries against one block of keys. */
static void attend(const neap__attention *shape, buffers *buf, int64_t strip, int64_t keys,
                   int64_t ahead) {
  int64_t d = shape->head_dim, at = strip * NEAP_STRIP;
  float *o = buf->o + at * d;
  _Alignas(64) float factor[NEAP_STRIP];
  neap__block scores = {buf->k, d, 1, buf->q + at * d, NEAP_STRIP, buf->scores, NEAP_STRIP, d, 0};
  block_product(&scores, keys, NEAP_STRIP);
  if (shape->causal) {
    attention_mask(buf->scores, NEAP_STRIP, keys, ahead, -INFINITY);
  }
  soften(buf->scores, keys, buf->most + at, buf->sum + at, factor);
  vf f0 = v_load(factor), f1 = v_load(factor + NEAP_LANES);
  for (int64_t i = 0; i < d; i++) {
    float *line = o + i * NEAP_STRIP;
    v_store(line, v_load(line) * f0);
    v_store(line + NEAP_LANES, v_load(line + NEAP_LANES) * f1);
  }
  neap__block values = {buf->v, 1, d, buf->scores, NEAP_STRIP, o, NEAP_STRIP, keys, 1};
  block_product(&values, d, NEAP_STRIP);
}

/* out (n,C) = o / sum, turned back into rows; lse (n) unless NULL. */
static void finish(const neap__attention *shape, buffers *buf, float *out, float *lse, int64_t n) {
  int64_t d = shape->head_dim;
  for (int64_t first = 0; first < n; first += NEAP_STRIP) {
    float *o = buf->o + first * d;
    vf share0 = 1.0f / v_load(buf->sum + first);
    vf share1 = 1.0f / v_load(buf->sum + first + NEAP_LANES);
    for (int64_t i = 0; i < d; i++) {
      float *line = o + i * NEAP_STRIP;
      v_store(line, v_load(line) * share0);
      v_store(line + NEAP_LANES, v_load(line + NEAP_LANES) * share1);
    }
    attention_turn(out + first * shape->width, shape->width, o, NEAP_STRIP, d,
                   attention_smaller(NEAP_STRIP, n - first), 1.0f);
  }
  for (int64_t i = 0; i < n && lse; i++) {
    lse[i] = buf->most[i] + logf(buf->sum[i]);
  }
}

/* One block of queries against all keys it may see. */
static void forward_block(const neap__attention *shape, buffers *buf, const float *q, float *out,
                          float *lse, int64_t first, int64_t n) {
  int64_t d = shape->head_dim, row = 3 * shape->width;
  const float *k = q + shape->width, *v = k + shape->width; /* (T,3C), this head's columns */
  attention_pack_strips(buf->q, q + first * row, row, n, d, shape->scale);
  for (int64_t i = 0; i < NEAP_Q_BLOCK; i++) {
    buf->most[i] = -INFINITY;
    buf->sum[i] = 0.0f;
  }
  memset(buf->o, 0, (size_t)((n + NEAP_STRIP - 1) / NEAP_STRIP * NEAP_STRIP * d) * sizeof(float));
  int64_t seen = shape->causal ? first + n : shape->tokens;
  for (int64_t key = 0; key < seen; key += NEAP_K_BLOCK) {
    int64_t keys = attention_smaller(NEAP_K_BLOCK, seen - key);
    attention_pack(buf->k, d, k + key * row, row, keys, d, 1.0f);
    attention_pack(buf->v, d, v + key * row, row, keys, d, 1.0f);
    for (int64_t strip = 0; strip * NEAP_STRIP < n; strip++) {
      int64_t query = first + strip * NEAP_STRIP, visible = keys;
      if (shape->causal) {
        visible = attention_smaller(keys, query + NEAP_STRIP - key);
      }
      if (visible > 0) {
        attend(shape, buf, strip, visible, key - query);
      }
    }
  }
  finish(shape, buf, out + first * shape->width, lse ? lse + first : NULL, n);
}

static void forward_pairs(const void *arg, int64_t begin, int64_t end) {
  const neap_call *call = arg;
  neap__attention shape = attention_describe(call, call->in[0]);
  buffers buf;
  for (int64_t pair = begin; pair < end; pair++) {
    int64_t b = pair / shape.heads, column = pair % shape.heads * shape.head_dim;
    int64_t token = b * shape.tokens;
    const float *q = (const float *)call->in[0]->data + token * 3 * shape.width + column;
    float *out = (float *)call->out[0]->data + token * shape.width + column;
    float *lse = call->out[1]->data; /* (B,H,T) */
    lse = lse ? lse + pair * shape.tokens : NULL;
    for (int64_t first = 0; first < shape.tokens; first += NEAP_Q_BLOCK) {
      int64_t n = attention_smaller(NEAP_Q_BLOCK, shape.tokens - first);
      forward_block(&shape, &buf, q, out, lse, first, n);
    }
  }
}

int neap__cpu_attention_run(const neap_call *call, const neap__attention *shape,
                            neap__cpu_range range) {
  if (shape->tokens > 0 && shape->head_dim > 0) {
    int64_t cost = shape->tokens * shape->head_dim * (1 + shape->tokens / 8);
    neap__cpu_parallel(shape->batch * shape->heads, cost, range, call);
  }
  return NEAP_OK;
}

int neap__cpu_attention_forward(const neap_call *call) {
  neap__attention shape = attention_describe(call, call->in[0]);
  return neap__cpu_attention_run(call, &shape, forward_pairs);
}
