/* Shape rules of the ops that layers are made of. */
#include <math.h>
#include <string.h>

#include "core/rules.h"

/* gain and bias have the length of x's last dimension */
static int norm(neap__rule *r, int n_aux) {
  const neap_view *x = r->in[0];
  int code = neap__want_f32(r);
  if (code < 0) {
    return code;
  }
  int64_t rows, columns;
  neap__rows(x, &rows, &columns);
  for (int i = 1; i < r->n_inputs; i++) {
    if (x->n_dims < 1 || r->in[i]->n_dims != 1 || r->in[i]->dims[0] != columns) {
      char a[96], b[96];
      return neap__fail_shape(r, "x is %s, input %d is %s; expected (%lld)", neap__dims_text(x, a),
                              i + 1, neap__dims_text(r->in[i], b), (long long)columns);
    }
  }
  if (!(r->attrs[0] > 0) || !isfinite(r->attrs[0])) {
    return neap__error(NEAP_ERR_INVALID, "%s: eps must be above 0, found %g", r->name, r->attrs[0]);
  }
  neap__out_like(r, 0, x);
  int64_t aux[2] = {rows, n_aux};
  neap__out_dims(r, 1, n_aux > 1 ? 2 : 1, aux);
  r->n_outputs = 2;
  r->save_in = 3;
  r->save_out = 2;
  r->reuse_grad = 1;
  r->backward_scratch = (size_t)(neap__row_blocks(rows) * n_aux * columns) * sizeof(float);
  r->forward_flops = 8.0 * (double)x->n_elements;
  r->backward_flops = 16.0 * (double)x->n_elements;
  return NEAP_OK;
}

int neap__rule_layernorm(neap__rule *r) {
  return norm(r, 2);
}

int neap__rule_rmsnorm(neap__rule *r) {
  return norm(r, 1);
}

int neap__rule_embedding(neap__rule *r) {
  const neap_view *ids = r->in[0], *weight = r->in[1];
  int code = neap__want_dtype(r, 0, NEAP_I32);
  code = code < 0 ? code : neap__want_dtype(r, 1, NEAP_F32);
  if (code < 0) {
    return code;
  }
  if (weight->n_dims != 2 || ids->n_dims >= NEAP_MAX_DIMS) {
    char a[96];
    return neap__fail_shape(r, "the weight must be (vocabulary, width), found %s",
                            neap__dims_text(weight, a));
  }
  int64_t dims[NEAP_MAX_DIMS];
  memcpy(dims, ids->dims, sizeof dims);
  dims[ids->n_dims] = weight->dims[1];
  neap__out_dims(r, 0, ids->n_dims + 1, dims);
  r->save_in = 1;
  r->forward_flops = r->backward_flops = (double)r->out[0].n_elements;
  return NEAP_OK;
}

int neap__rule_linear(neap__rule *r) {
  const neap_view *x = r->in[0], *w = r->in[1];
  int code = neap__want_f32(r);
  if (code < 0) {
    return code;
  }
  int64_t rows, k;
  neap__rows(x, &rows, &k);
  if (x->n_dims < 1 || w->n_dims != 2 || w->dims[1] != k) {
    char a[96], b[96];
    return neap__fail_shape(r, "x is %s, the weight %s; expected a weight (out, %lld)",
                            neap__dims_text(x, a), neap__dims_text(w, b), (long long)k);
  }
  if (r->n_inputs == 3 && (r->in[2]->n_dims != 1 || r->in[2]->dims[0] != w->dims[0])) {
    char a[96];
    return neap__fail_shape(r, "the bias is %s; expected (%lld)", neap__dims_text(r->in[2], a),
                            (long long)w->dims[0]);
  }
  int64_t dims[NEAP_MAX_DIMS];
  memcpy(dims, x->dims, sizeof dims);
  dims[x->n_dims - 1] = w->dims[0];
  neap__out_dims(r, 0, x->n_dims, dims);
  /* dw needs x, dx needs w */
  r->save_in = (r->needs_grad & 2 ? 1u : 0u) | (r->needs_grad & 1 ? 2u : 0u);
  if (r->n_inputs == 3 && (r->needs_grad & 4)) {
    r->backward_scratch = (size_t)(neap__row_blocks(rows) * w->dims[0]) * sizeof(float);
  }
  double product = 2.0 * (double)rows * (double)k * (double)w->dims[0];
  r->forward_flops = product;
  r->backward_flops = product * ((r->needs_grad & 1 ? 1 : 0) + (r->needs_grad & 2 ? 1 : 0));
  return NEAP_OK;
}

int neap__rule_matmul(neap__rule *r) {
  const neap_view *a = r->in[0], *b = r->in[1];
  int code = neap__want_f32(r);
  if (code < 0) {
    return code;
  }
  char ta[96], tb[96];
  if (a->n_dims < 2 || b->n_dims < 2) {
    return neap__fail_shape(r, "expected 2 or more dimensions, found %s and %s",
                            neap__dims_text(a, ta), neap__dims_text(b, tb));
  }
  int ra = a->n_dims, rb = b->n_dims, trans_a = r->attrs[0] != 0, trans_b = r->attrs[1] != 0;
  int64_t m = a->dims[ra - (trans_a ? 1 : 2)], k = a->dims[ra - (trans_a ? 2 : 1)];
  int64_t kb = b->dims[rb - (trans_b ? 1 : 2)], n = b->dims[rb - (trans_b ? 2 : 1)];
  int leads_match =
      rb == 2 || (ra == rb && memcmp(a->dims, b->dims, (size_t)(ra - 2) * sizeof a->dims[0]) == 0);
  if (k != kb || !leads_match) {
    return neap__fail_shape(r, "%s%s and %s%s do not multiply", neap__dims_text(a, ta),
                            trans_a ? " transposed" : "", neap__dims_text(b, tb),
                            trans_b ? " transposed" : "");
  }
  int64_t dims[NEAP_MAX_DIMS], batches = 1;
  memcpy(dims, a->dims, sizeof dims);
  for (int i = 0; i < ra - 2; i++) {
    batches *= a->dims[i];
  }
  dims[ra - 2] = m;
  dims[ra - 1] = n;
  neap__out_dims(r, 0, ra, dims);
  r->save_in = (r->needs_grad & 2 ? 1u : 0u) | (r->needs_grad & 1 ? 2u : 0u);
  double product = 2.0 * (double)batches * (double)m * (double)n * (double)k;
  r->forward_flops = product;
  r->backward_flops = product * ((r->needs_grad & 1 ? 1 : 0) + (r->needs_grad & 2 ? 1 : 0));
  return NEAP_OK;
}

int neap__rule_attention(neap__rule *r) {
  enum { MOST_HEAD_DIM = 256 };
  const neap_view *qkv = r->in[0];
  double heads = r->attrs[0];
  int code = neap__want_f32(r);
  if (code < 0) {
    return code;
  }
  char a[96];
  if (qkv->n_dims != 3 || qkv->dims[2] % 3 != 0) {
    return neap__fail_shape(r, "expected (batch, time, 3 * width), found %s",
                            neap__dims_text(qkv, a));
  }
  int64_t batch = qkv->dims[0], time = qkv->dims[1], width = qkv->dims[2] / 3;
  if (!(heads >= 1 && heads <= (double)(width > 0 ? width : 1)) || heads != floor(heads) ||
      width % (int64_t)heads != 0 || width / (int64_t)heads > MOST_HEAD_DIM) {
    return neap__fail_shape(r, "width %lld does not split into %g heads of at most %d",
                            (long long)width, heads, MOST_HEAD_DIM);
  }
  int64_t dims[3] = {batch, time, width}, lse[3] = {batch, (int64_t)heads, time};
  neap__out_dims(r, 0, 3, dims);
  neap__out_dims(r, 1, 3, lse);
  r->n_outputs = 2;
  r->save_in = 1;
  r->save_out = 3;
  r->backward_scratch = (size_t)r->out[1].n_elements * sizeof(float);
  double pairs = (double)time * (double)time * (r->attrs[1] != 0 ? 0.5 : 1.0);
  r->forward_flops = 4.0 * (double)batch * pairs * (double)width;
  r->backward_flops = 2.5 * r->forward_flops;
  return NEAP_OK;
}

int neap__rule_cross_entropy(neap__rule *r) {
  const neap_view *logits = r->in[0], *targets = r->in[1];
  int code = neap__want_dtype(r, 0, NEAP_F32);
  code = code < 0 ? code : neap__want_dtype(r, 1, NEAP_I32);
  if (code < 0) {
    return code;
  }
  int64_t rows, columns;
  neap__rows(logits, &rows, &columns);
  if (logits->n_dims < 1 || targets->n_dims != logits->n_dims - 1 || rows == 0 || columns == 0 ||
      memcmp(targets->dims, logits->dims, (size_t)targets->n_dims * sizeof targets->dims[0]) != 0) {
    char a[96], b[96];
    return neap__fail_shape(r,
                            "logits are %s, targets %s; expected logits (.., classes) of the "
                            "targets' shape, none empty",
                            neap__dims_text(logits, a), neap__dims_text(targets, b));
  }
  neap__out_dims(r, 0, 0, NULL);
  neap__out_dims(r, 1, 1, &rows);
  r->n_outputs = 2;
  r->save_in = 3;
  r->save_out = 2;
  r->reuse_in = 1;
  r->forward_scratch = (size_t)neap__row_blocks(rows) * sizeof(double);
  r->forward_flops = 6.0 * (double)logits->n_elements;
  r->backward_flops = 4.0 * (double)logits->n_elements;
  return NEAP_OK;
}
