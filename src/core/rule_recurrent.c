/* Shape rules of the ops that chains over time are made of. */
#include <math.h>
#include <string.h>

#include "core/rules.h"

int neap__rule_select(neap__rule *r) {
  const neap_view *x = r->in[0];
  double dim = r->attrs[0], index = r->attrs[1];
  char a[96];
  if (!(dim >= 0 && dim < x->n_dims) || dim != floor(dim)) {
    return neap__fail_shape(r, "%s has no dimension %.15g", neap__dims_text(x, a), dim + 1);
  }
  int64_t length = x->dims[(int)dim];
  if (!(index >= 0 && index < (double)length) || index != floor(index)) {
    return neap__fail_shape(r, "index %.15g is not one of 1..%lld, dimension %.15g of %s",
                            index + 1, (long long)length, dim + 1, neap__dims_text(x, a));
  }
  int64_t dims[NEAP_MAX_DIMS];
  int n = 0;
  for (int i = 0; i < x->n_dims; i++) {
    if (i != (int)dim) {
      dims[n++] = x->dims[i];
    }
  }
  neap__out_dims(r, 0, n, dims);
  r->out[0].dtype = x->dtype;
  return NEAP_OK;
}

/* input k is (rows, n_gates * width) f32, as the last input's (rows, width) asks for */
static int gates(neap__rule *r, int k, int n_gates, const neap_view *state) {
  const neap_view *x = r->in[k];
  int code = neap__want_dtype(r, k, NEAP_F32);
  if (code < 0) {
    return code;
  }
  if (x->n_dims != 2 || state->n_dims != 2 || x->dims[0] != state->dims[0] ||
      x->dims[1] % n_gates != 0 || x->dims[1] / n_gates != state->dims[1]) {
    char a[96], b[96];
    return neap__fail_shape(r,
                            "input %d is %s, input %d %s; expected (rows, %d * width) and "
                            "(rows, width)",
                            k + 1, neap__dims_text(x, a), r->n_inputs, neap__dims_text(state, b),
                            n_gates);
  }
  return NEAP_OK;
}

/* Backward needs the four activations and tanh(c'): all are functions of the gates and of c, which
 * are saved as they came. c is what the step before gave, held as a boundary anyway; the gates'
 * gradient may be written over them. */
int neap__rule_lstm_cell(neap__rule *r) {
  const neap_view *c = r->in[1];
  int code = neap__want_dtype(r, 1, NEAP_F32);
  code = code < 0 ? code : gates(r, 0, 4, c);
  if (code < 0) {
    return code;
  }
  neap__out_like(r, 0, c);
  neap__out_like(r, 1, c);
  r->n_outputs = r->n_visible = 2;
  r->save_in = 3;
  r->reuse_in = 1;
  r->forward_flops = 44.0 * (double)c->n_elements;
  r->backward_flops = 70.0 * (double)c->n_elements;
  return NEAP_OK;
}

/* Backward needs r, z, n and h's part of n before r: four widths a row in out[1], where both inputs
 * of gates would be six. h is what the step before gave. */
int neap__rule_gru_cell(neap__rule *r) {
  const neap_view *h = r->in[2];
  int code = neap__want_dtype(r, 2, NEAP_F32);
  code = code < 0 ? code : gates(r, 0, 3, h);
  code = code < 0 ? code : gates(r, 1, 3, h);
  if (code < 0) {
    return code;
  }
  int64_t aux[2] = {h->dims[0], 4 * h->dims[1]};
  neap__out_like(r, 0, h);
  neap__out_dims(r, 1, 2, aux);
  r->n_outputs = 2;
  r->save_in = 4;
  r->save_out = 2;
  r->forward_flops = 32.0 * (double)h->n_elements;
  r->backward_flops = 20.0 * (double)h->n_elements;
  return NEAP_OK;
}
