/* Shape rules of views and of ops that work element by element or reduce. */
#include <math.h>
#include <string.h>

#include "core/rules.h"

int neap__rule_reshape(neap__rule *r) {
  double n_dims = r->attrs[0];
  neap_view view;
  if (!(n_dims >= 0 && n_dims <= NEAP_MAX_DIMS) || n_dims != floor(n_dims)) {
    return neap__fail_shape(r, "expected 0..%d dimensions, found %g", NEAP_MAX_DIMS, n_dims);
  }
  int code = neap__view_set(&view, r->in[0]->dtype, (int)n_dims, r->attrs + 1);
  if (code < 0) {
    return code;
  }
  if (view.n_elements != r->in[0]->n_elements) {
    char a[96], b[96];
    return neap__fail_shape(r, "%s has %lld elements, %s has %lld", neap__dims_text(r->in[0], a),
                            (long long)r->in[0]->n_elements, neap__dims_text(&view, b),
                            (long long)view.n_elements);
  }
  neap__out_like(r, 0, &view);
  r->is_view = 1;
  r->alias = 1;
  return NEAP_OK;
}

int neap__rule_narrow(neap__rule *r) {
  const neap_view *x = r->in[0];
  double first = r->attrs[0], n = r->attrs[1];
  if (x->n_dims < 1 || !(first >= 0 && n >= 0) || first != floor(first) || n != floor(n) ||
      first + n > (double)x->dims[0]) {
    char a[96];
    return neap__fail_shape(r, "%g rows from row %g are not inside %s", n, first + 1,
                            neap__dims_text(x, a));
  }
  int64_t dims[NEAP_MAX_DIMS];
  memcpy(dims, x->dims, sizeof dims);
  dims[0] = (int64_t)n;
  neap__out_dims(r, 0, x->n_dims, dims);
  r->out[0].dtype = x->dtype;
  r->is_view = 1;
  r->view_first = x->dims[0] > 0 ? (int64_t)first * (x->n_elements / x->dims[0]) : 0;
  return NEAP_OK;
}

int neap__rule_transpose(neap__rule *r) {
  const neap_view *x = r->in[0];
  int code = neap__want_dtype(r, 0, NEAP_F32);
  if (code < 0) {
    return code;
  }
  if (x->n_dims < 2) {
    char a[96];
    return neap__fail_shape(r, "expected 2 or more dimensions, found %s", neap__dims_text(x, a));
  }
  int64_t dims[NEAP_MAX_DIMS];
  memcpy(dims, x->dims, sizeof dims);
  dims[x->n_dims - 1] = x->dims[x->n_dims - 2];
  dims[x->n_dims - 2] = x->dims[x->n_dims - 1];
  neap__out_dims(r, 0, x->n_dims, dims);
  return NEAP_OK;
}

/* b's dims are a's, or a's last ones. *rows: how often b is repeated, 0 when the shapes are equal
 */
static int broadcast(neap__rule *r, int64_t *rows) {
  const neap_view *a = r->in[0], *b = r->in[1];
  int code = neap__want_dtype(r, 0, NEAP_F32);
  code = code < 0 ? code : neap__want_dtype(r, 1, NEAP_F32);
  if (code < 0) {
    return code;
  }
  int lead = a->n_dims - b->n_dims;
  if (lead < 0 || memcmp(a->dims + lead, b->dims, (size_t)b->n_dims * sizeof b->dims[0]) != 0) {
    char x[96], y[96];
    return neap__fail_shape(r,
                            "the second shape %s is neither the first, %s, nor its last dimensions",
                            neap__dims_text(b, y), neap__dims_text(a, x));
  }
  *rows = 0;
  if (lead > 0) {
    *rows = b->n_elements > 0 ? a->n_elements / b->n_elements : 0;
    r->backward_scratch = (size_t)(neap__row_blocks(*rows) * b->n_elements) * sizeof(float);
  }
  neap__out_like(r, 0, a);
  r->forward_flops = (double)a->n_elements;
  return lead > 0;
}

int neap__rule_add(neap__rule *r) {
  int64_t rows;
  int code = broadcast(r, &rows);
  if (code < 0) {
    return code;
  }
  r->alias = code == 1 ? 1 : 3;
  r->backward_flops = code == 1 ? r->forward_flops : 0;
  return NEAP_OK;
}

/* db = -dy: b's gradient is never dy itself */
int neap__rule_subtract(neap__rule *r) {
  int64_t rows;
  int code = broadcast(r, &rows);
  if (code < 0) {
    return code;
  }
  r->alias = 1;
  r->backward_flops = r->forward_flops;
  if (code == 1) { /* the sum over rows, before it is taken off */
    r->backward_scratch += (size_t)r->in[1]->n_elements * sizeof(float);
  }
  return NEAP_OK;
}

int neap__rule_multiply(neap__rule *r) {
  int64_t rows;
  int code = broadcast(r, &rows);
  if (code < 0) {
    return code;
  }
  r->save_in = (r->needs_grad & 1 ? 2u : 0u) | (r->needs_grad & 2 ? 1u : 0u);
  r->reuse_grad = 1;
  r->backward_flops = 2 * r->forward_flops;
  return NEAP_OK;
}

static int pointwise(neap__rule *r, double flops) {
  int code = neap__want_dtype(r, 0, NEAP_F32);
  if (code < 0) {
    return code;
  }
  neap__out_like(r, 0, r->in[0]);
  r->reuse_grad = 1;
  r->forward_flops = r->backward_flops = flops * (double)r->in[0]->n_elements;
  return NEAP_OK;
}

int neap__rule_pointwise(neap__rule *r) {
  if (!isfinite(r->attrs[0])) {
    return neap__error(NEAP_ERR_INVALID, "%s: expected a finite number, found %g", r->name,
                       r->attrs[0]);
  }
  return pointwise(r, 1);
}

int neap__rule_activation(neap__rule *r) {
  r->save_in = 1;
  return pointwise(r, 8);
}

/* the slope is a function of the output, which the next op often holds anyway */
int neap__rule_from_output(neap__rule *r) {
  r->save_out = 1;
  return pointwise(r, 8);
}

int neap__rule_dropout(neap__rule *r) {
  if (!(r->attrs[0] >= 0 && r->attrs[0] < 1)) {
    return neap__error(NEAP_ERR_INVALID, "%s: p must be at least 0 and below 1, found %g", r->name,
                       r->attrs[0]);
  }
  r->draws = 1;
  return pointwise(r, 4);
}

int neap__rule_reduce(neap__rule *r) {
  const neap_view *x = r->in[0];
  double dim = r->attrs[0];
  int code = neap__want_dtype(r, 0, NEAP_F32);
  if (code < 0) {
    return code;
  }
  if (!(dim >= -1 && dim < x->n_dims) || dim != floor(dim)) {
    char a[96];
    return neap__fail_shape(r, "%s has no dimension %g", neap__dims_text(x, a), dim + 1);
  }
  int64_t dims[NEAP_MAX_DIMS];
  int n = 0;
  for (int i = 0; dim >= 0 && i < x->n_dims; i++) {
    if (i != (int)dim) {
      dims[n++] = x->dims[i];
    }
  }
  neap__out_dims(r, 0, n, dims);
  if (dim < 0) {
    r->forward_scratch = (size_t)((x->n_elements + 4095) / 4096) * sizeof(double);
  }
  r->forward_flops = r->backward_flops = (double)x->n_elements;
  return NEAP_OK;
}
