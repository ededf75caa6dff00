/* select: one index of one dim, the others as they are; x (outer,length,inner) -> (outer,inner).
 * Any dtype. Saves nothing; dx is dy at the index and 0 elsewhere.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

typedef struct {
  int64_t outer, inner; /* elements */
  int64_t first, step;  /* of the index in x; from one outer index to the next */
} places;

static places find(const neap_call *call) {
  const neap_view *x = call->in[0];
  int dim = (int)call->attrs[0];
  places p = {1, 1, 0, 0};
  for (int i = 0; i < dim; i++) {
    p.outer *= x->dims[i];
  }
  for (int i = dim + 1; i < x->n_dims; i++) {
    p.inner *= x->dims[i];
  }
  p.first = (int64_t)call->attrs[1] * p.inner;
  p.step = x->dims[dim] * p.inner;
  return p;
}

static size_t element_bytes(int dtype) {
  return dtype == NEAP_BF16 ? 2 : 4;
}

int neap__cpu_select_forward(const neap_call *call) {
  places p = find(call);
  size_t bytes = element_bytes(call->in[0]->dtype), row_bytes = (size_t)p.inner * bytes;
  if (call->out[0]->n_elements == 0) {
    return NEAP_OK;
  }
  const char *from = (const char *)call->in[0]->data + (size_t)p.first * bytes;
  char *to = call->out[0]->data;
  for (int64_t i = 0; i < p.outer; i++) {
    memcpy(to + (size_t)i * row_bytes, from + (size_t)(i * p.step) * bytes, row_bytes);
  }
  return NEAP_OK;
}

int neap__cpu_select_backward(const neap_call *call) {
  const neap_view *dx = call->grad_in[0], *dy = call->grad_out[0];
  if (dx == NULL || dx->n_elements == 0) {
    return NEAP_OK;
  }
  places p = find(call);
  if (!call->accumulate[0]) {
    memset(dx->data, 0, (size_t)dx->n_elements * sizeof(float));
  }
  for (int64_t i = 0; i < p.outer; i++) {
    v_add_to((float *)dx->data + p.first + i * p.step, (const float *)dy->data + i * p.inner,
             p.inner);
  }
  return NEAP_OK;
}
