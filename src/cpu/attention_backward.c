/* attention backward: recomputes the probabilities block by block from qkv, out and lse, all saved.
 * With P = e^(S - lse), dP = dO V^T, D = rowsum(dO O) (scratch, (B,H,T)) and dS = P (dP - D):
 * dV = P^T dO, dQ = dS K / sqrt(d), dK = dS^T Q / sqrt(d). For each block of queries all its keys,
 * in order; dK and dV are added to as the queries pass, dQ stays in a buffer meanwhile.
 */
#include "cpu/attention.h"
#include <math.h>

typedef struct {
  _Alignas(64) float q_strips[NEAP_MAX_HEAD * NEAP_Q_BLOCK];  /* (strips,d,STRIP), scaled */
  _Alignas(64) float do_strips[NEAP_MAX_HEAD * NEAP_Q_BLOCK]; /* likewise, of dO */
  _Alignas(64) float q[NEAP_Q_BLOCK * NEAP_MAX_HEAD];         /* (queries,padded d), scaled */
  _Alignas(64) float d_o[NEAP_Q_BLOCK * NEAP_MAX_HEAD];       /* (queries,padded d) */
  _Alignas(64) float dq[NEAP_Q_BLOCK * NEAP_MAX_HEAD];        /* likewise, without scale */
  _Alignas(64) float k[NEAP_K_BLOCK * NEAP_MAX_HEAD];         /* (keys,padded d) */
  _Alignas(64) float v[NEAP_K_BLOCK * NEAP_MAX_HEAD];
  _Alignas(64) float dk[NEAP_K_BLOCK * NEAP_MAX_HEAD]; /* also dv */
  _Alignas(64) float p[NEAP_K_BLOCK * NEAP_Q_BLOCK];   /* (keys,queries) */
  _Alignas(64) float ds[NEAP_K_BLOCK * NEAP_Q_BLOCK];
  _Alignas(64) float lse[NEAP_Q_BLOCK], big_d[NEAP_Q_BLOCK];
} buffers;

/* One head of one item: pointers to its columns in the tensors. */
typedef struct {
  const float *qkv;   /* (T,3C) */
  const float *d_o;   /* (T,C) */
  const float *lse;   /* (T) */
  const float *big_d; /* (T) */
  float *dqkv;        /* (T,3C) */
} pair_data;

static int64_t padded(int64_t d) {
  return (d + NEAP_STRIP - 1) / NEAP_STRIP * NEAP_STRIP;
}

/* P and dS of one strip of queries, columns of p and ds, for the first `keys` keys. */
static void strip_gradient(const neap__attention *shape, buffers *buf, int64_t strip, int64_t keys,
                           int64_t ahead) {
  int64_t d = shape->head_dim, wide = padded(d), at = strip * NEAP_STRIP, row = NEAP_Q_BLOCK;
  float *p = buf->p + at, *ds = buf->ds + at;
  neap__block scores = {buf->k, wide, 1, buf->q_strips + at * d, NEAP_STRIP, p, row, d, 0};
  neap__block slopes = {buf->v, wide, 1, buf->do_strips + at * d, NEAP_STRIP, ds, row, d, 0};
  block_product(&scores, keys, NEAP_STRIP);
  block_product(&slopes, keys, NEAP_STRIP);
  if (shape->causal) {
    attention_mask(p, row, keys, ahead, -INFINITY);
  }
  for (int64_t half = 0; half < NEAP_STRIP; half += NEAP_LANES) {
    vf lse = v_load(buf->lse + at + half), big_d = v_load(buf->big_d + at + half);
    for (int64_t i = half; i < keys * row; i += row) {
      vf probability = v_exp_below(v_load(p + i) - lse);
      v_store(p + i, probability);
      v_store(ds + i, probability * (v_load(ds + i) - big_d));
    }
  }
}

/* to (keys,3C) += the transpose of weights (keys,queries) times rows (queries,padded d): dV or dK.
 * On the diagonal, queries before a group of keys do not see it. */
static void add_key_gradient(const neap__attention *shape, buffers *buf, const float *weights,
                             const float *rows, int64_t n, int64_t keys, int on_diagonal,
                             float *to) {
  int64_t d = shape->head_dim, wide = padded(d), group = on_diagonal ? NEAP_STRIP : keys;
  for (int64_t j = 0; j < keys; j += group) {
    int64_t skip = on_diagonal ? j : 0;
    neap__block product = {.a = weights + j * NEAP_Q_BLOCK + skip,
                           .a_row = NEAP_Q_BLOCK,
                           .a_col = 1,
                           .b = rows + skip * wide,
                           .b_row = wide,
                           .c = buf->dk + j * wide,
                           .c_row = wide,
                           .k = n - skip};
    block_product(&product, attention_smaller(group, keys - j), wide);
  }
  for (int64_t j = 0; j < keys; j++) {
    v_add_to(to + j * 3 * shape->width, buf->dk + j * wide, d);
  }
}

_Static_assert((int)NEAP_Q_BLOCK == (int)NEAP_K_BLOCK, "a block on the diagonal starts on it");

/* dq (queries,padded d) += dS K. On the diagonal, a strip of queries sees the first keys only. */
static void add_query_gradient(const neap__attention *shape, buffers *buf, int64_t n, int64_t keys,
                               int on_diagonal) {
  int64_t wide = padded(shape->head_dim), group = on_diagonal ? NEAP_STRIP : n;
  for (int64_t i = 0; i < n; i += group) {
    neap__block product = {.a = buf->ds + i,
                           .a_row = 1,
                           .a_col = NEAP_Q_BLOCK,
                           .b = buf->k,
                           .b_row = wide,
                           .c = buf->dq + i * wide,
                           .c_row = wide,
                           .k = on_diagonal ? attention_smaller(keys, i + group) : keys,
                           .add = 1};
    block_product(&product, attention_smaller(group, n - i), wide);
  }
}

/* One block of queries (packed) against one block of keys. */
static void block_gradient(const neap__attention *shape, buffers *buf, const pair_data *data,
                           int64_t first, int64_t n, int64_t key, int64_t keys) {
  int64_t d = shape->head_dim, wide = padded(d), row = 3 * shape->width;
  int on_diagonal = shape->causal && key == first;
  const float *k = data->qkv + shape->width + key * row;
  float *dk = data->dqkv + shape->width + key * row;
  attention_pack(buf->k, wide, k, row, keys, d, 1.0f);
  attention_pack(buf->v, wide, k + shape->width, row, keys, d, 1.0f);
  for (int64_t i = 0; i < n; i += NEAP_STRIP) {
    int64_t visible = on_diagonal ? attention_smaller(keys, i + NEAP_STRIP) : keys;
    strip_gradient(shape, buf, i / NEAP_STRIP, visible, key - first - i);
  }
  add_query_gradient(shape, buf, n, keys, on_diagonal);
  add_key_gradient(shape, buf, buf->p, buf->d_o, n, keys, on_diagonal, dk + shape->width);
  add_key_gradient(shape, buf, buf->ds, buf->q, n, keys, on_diagonal, dk);
}

static void query_gradient(const neap__attention *shape, buffers *buf, const pair_data *data,
                           int64_t first, int64_t n) {
  int64_t d = shape->head_dim, wide = padded(d), row = 3 * shape->width;
  const float *q = data->qkv + first * row, *d_o = data->d_o + first * shape->width;
  attention_pack_strips(buf->q_strips, q, row, n, d, shape->scale);
  attention_pack_strips(buf->do_strips, d_o, shape->width, n, d, 1.0f);
  attention_pack(buf->q, wide, q, row, n, d, shape->scale);
  attention_pack(buf->d_o, wide, d_o, shape->width, n, d, 1.0f);
  memset(buf->dq, 0, (size_t)(n * wide) * sizeof(float));
  for (int64_t i = 0; i < NEAP_Q_BLOCK; i++) { /* lanes without a query: P = e^-inf = 0 */
    buf->lse[i] = i < n ? data->lse[first + i] : INFINITY;
    buf->big_d[i] = i < n ? data->big_d[first + i] : 0.0f;
  }
  int64_t seen = shape->causal ? first + n : shape->tokens;
  for (int64_t key = 0; key < seen; key += NEAP_K_BLOCK) {
    block_gradient(shape, buf, data, first, n, key, attention_smaller(NEAP_K_BLOCK, seen - key));
  }
  for (int64_t i = 0; i < n; i++) {
    float *to = data->dqkv + (first + i) * row;
    for (int64_t j = 0; j < d; j++) {
      to[j] += shape->scale * buf->dq[i * wide + j];
    }
  }
}

/* D (T) = rowsum(dO O) of one head; the head's columns of dqkv become 0 unless they are added to.
 */
static void prepare(const neap__attention *shape, const float *out, const pair_data *data,
                    float *big_d, int accumulate) {
  size_t bytes = (size_t)shape->head_dim * sizeof(float);
  for (int64_t i = 0; i < shape->tokens; i++) {
    const float *o = out + i * shape->width, *d_o = data->d_o + i * shape->width;
    float sum = 0.0f;
    for (int64_t j = 0; j < shape->head_dim; j++) {
      sum += o[j] * d_o[j];
    }
    big_d[i] = sum;
    for (int part = 0; part < 3 && !accumulate; part++) {
      memset(data->dqkv + (3 * i + part) * shape->width, 0, bytes);
    }
  }
}

static void backward_pairs(const void *arg, int64_t begin, int64_t end) {
  const neap_call *call = arg;
  neap__attention shape = attention_describe(call, call->grad_in[0]);
  buffers buf;
  for (int64_t pair = begin; pair < end; pair++) {
    int64_t column = pair % shape.heads * shape.head_dim;
    int64_t token = pair / shape.heads * shape.tokens;
    float *big_d = (float *)call->scratch + pair * shape.tokens;
    const float *out = (const float *)call->out[0]->data + token * shape.width + column;
    pair_data data = {
        .qkv = (const float *)call->in[0]->data + token * 3 * shape.width + column,
        .d_o = (const float *)call->grad_out[0]->data + token * shape.width + column,
        .lse = (const float *)call->out[1]->data + pair * shape.tokens,
        .big_d = big_d,
        .dqkv = (float *)call->grad_in[0]->data + token * 3 * shape.width + column,
    };
    prepare(&shape, out, &data, big_d, call->accumulate[0]);
    for (int64_t first = 0; first < shape.tokens; first += NEAP_Q_BLOCK) {
      int64_t n = attention_smaller(NEAP_Q_BLOCK, shape.tokens - first);
      query_gradient(&shape, &buf, &data, first, n);
    }
  }
}

int neap__cpu_attention_backward(const neap_call *call) {
  if (!call->grad_in[0]) {
    return NEAP_OK;
  }
  neap__attention shape = attention_describe(call, call->grad_in[0]);
  return neap__cpu_attention_run(call, &shape, backward_pairs);
}
