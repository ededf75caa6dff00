/* Shape rules of the ops on images: convolution, batch normalisation, pooling. */
#include <math.h>
#include <string.h>

#include "core/rules.h"

enum { MOST_ATTR = 1 << 20 };

/* attribute number `at` as a whole number */
static int whole(const neap__rule *r, int at, const char *what, int low, int64_t *out) {
  double value = r->attrs[at];
  if (!(value >= low && value <= MOST_ATTR) || value != floor(value)) {
    return neap__error(NEAP_ERR_INVALID, "%s: %s must be a whole number, %d to %d, found %g",
                       r->name, what, low, MOST_ATTR, value);
  }
  *out = (int64_t)value;
  return NEAP_OK;
}

/* x is (N,C,H,W), its images not empty */
static int want_images(const neap__rule *r) {
  const neap_view *x = r->in[0];
  char a[96];
  if (x->n_dims != 4 || x->dims[2] < 1 || x->dims[3] < 1) {
    return neap__fail_shape(r, "x is %s, expected (images, channels, height, width)",
                            neap__dims_text(x, a));
  }
  return NEAP_OK;
}

/* how often a window of `kernel` fits into a padded length; 0: never */
static int64_t places(int64_t length, int64_t kernel, int64_t stride, int64_t padding) {
  int64_t room = length + 2 * padding - kernel;
  return room < 0 ? 0 : room / stride + 1;
}

/* bytes of the columns of one tile, checked */
static int conv_scratch(neap__rule *r, int64_t out_rows, int64_t out_width) {
  const int64_t *w = r->in[1]->dims;
  int64_t window = w[1], images, rows, floats;
  if (neap__conv_is_direct(w, r->attrs) || r->in[0]->n_elements == 0) {
    return NEAP_OK;
  }
  int overflows = __builtin_mul_overflow(window, w[2], &window);
  overflows = overflows || __builtin_mul_overflow(window, w[3], &window);
  overflows = overflows || __builtin_mul_overflow(window, out_width, &floats);
  if (!overflows) {
    neap__conv_tile(r->in[0]->dims[0], window, out_rows, out_width, &images, &rows);
    overflows = __builtin_mul_overflow(floats, images * rows, &floats);
  }
  if (overflows || floats > INT64_MAX / 8) {
    return neap__error(NEAP_ERR_OVERFLOW, "%s: the size of its columns overflows", r->name);
  }
  r->forward_scratch = (size_t)floats * sizeof(float);
  /* without the weight's or x's gradient, backward needs no columns */
  r->backward_scratch = r->needs_grad & 3 ? r->forward_scratch : 0;
  return NEAP_OK;
}

static int conv_shapes(neap__rule *r) {
  const neap_view *x = r->in[0], *w = r->in[1];
  char a[96], b[96];
  int code = want_images(r);
  if (code < 0) {
    return code;
  }
  if (w->n_dims != 4 || w->dims[1] != x->dims[1] || w->dims[2] < 1 || w->dims[3] < 1) {
    return neap__fail_shape(r,
                            "x is %s, the weight %s; expected a weight (out, %lld, height, width)",
                            neap__dims_text(x, a), neap__dims_text(w, b), (long long)x->dims[1]);
  }
  if (r->n_inputs == 3 && (r->in[2]->n_dims != 1 || r->in[2]->dims[0] != w->dims[0])) {
    return neap__fail_shape(r, "the bias is %s; expected (%lld)", neap__dims_text(r->in[2], a),
                            (long long)w->dims[0]);
  }
  return NEAP_OK;
}

int neap__rule_conv2d(neap__rule *r) {
  const neap_view *x = r->in[0], *w = r->in[1];
  int64_t stride = 1, padding = 0;
  int code = neap__want_f32(r);
  code = code < 0 ? code : whole(r, 0, "the stride", 1, &stride);
  code = code < 0 ? code : whole(r, 1, "the padding", 0, &padding);
  code = code < 0 ? code : conv_shapes(r);
  if (code < 0) {
    return code;
  }
  int64_t rows = places(x->dims[2], w->dims[2], stride, padding);
  int64_t width = places(x->dims[3], w->dims[3], stride, padding);
  if (rows == 0 || width == 0) {
    char a[96], b[96];
    return neap__fail_shape(r, "the weight %s is larger than the images %s with padding %lld",
                            neap__dims_text(w, b), neap__dims_text(x, a), (long long)padding);
  }
  int64_t dims[4] = {x->dims[0], w->dims[0], rows, width};
  neap__out_dims(r, 0, 4, dims);
  /* dw needs x, dx needs w */
  r->save_in = (r->needs_grad & 2 ? 1u : 0u) | (r->needs_grad & 1 ? 2u : 0u);
  double window = (double)w->dims[1] * (double)w->dims[2] * (double)w->dims[3];
  double product = 2.0 * (double)r->out[0].n_elements * window;
  r->forward_flops = product;
  r->backward_flops = product * ((r->needs_grad & 1 ? 1 : 0) + (r->needs_grad & 2 ? 1 : 0));
  return conv_scratch(r, rows, width);
}

/* x (N,C) to (N,C,..,..,..); the other inputs (C); eps */
static int batch_norm(neap__rule *r) {
  const neap_view *x = r->in[0];
  int code = neap__want_f32(r);
  char a[96], b[96];
  if (code < 0) {
    return code;
  }
  if (x->n_dims < 2 || x->n_dims > 5) {
    return neap__fail_shape(r, "x is %s, expected 2 to 5 dimensions, the channels second",
                            neap__dims_text(x, a));
  }
  for (int i = 1; i < r->n_inputs; i++) {
    if (r->in[i]->n_dims != 1 || r->in[i]->dims[0] != x->dims[1]) {
      return neap__fail_shape(r, "x is %s, input %d is %s; expected (%lld)", neap__dims_text(x, a),
                              i + 1, neap__dims_text(r->in[i], b), (long long)x->dims[1]);
    }
  }
  if (!(r->attrs[0] > 0) || !isfinite(r->attrs[0])) {
    return neap__error(NEAP_ERR_INVALID, "%s: eps must be above 0, found %g", r->name, r->attrs[0]);
  }
  neap__out_like(r, 0, x);
  r->reuse_grad = 1;
  r->forward_flops = 8.0 * (double)x->n_elements;
  r->backward_flops = 16.0 * (double)x->n_elements;
  return NEAP_OK;
}

int neap__rule_batchnorm(neap__rule *r) {
  int code = batch_norm(r);
  if (code < 0) {
    return code;
  }
  neap__out_dims(r, 1, 1, &r->in[0]->dims[1]);
  neap__out_dims(r, 2, 1, &r->in[0]->dims[1]);
  r->n_outputs = r->n_visible = 3;
  /* the bias' gradient alone is a sum of dy */
  r->save_in = (r->needs_grad & 3 ? 1u : 0u) | (r->needs_grad & 1 ? 2u : 0u);
  r->save_out = r->needs_grad & 3 ? 6u : 0u;
  return NEAP_OK;
}

int neap__rule_batchnorm_inference(neap__rule *r) {
  int code = batch_norm(r);
  uint32_t wanted = r->needs_grad;
  if (code < 0) {
    return code;
  }
  r->forward_flops = 4.0 * (double)r->in[0]->n_elements;
  /* x and the mean where the gain or the variance want a gradient, the variance for all but the
   * bias, the gain for x, the mean and the variance */
  r->save_in = (wanted & 18 ? 1u | 8u : 0u) | (wanted & 25 ? 2u : 0u) | (wanted & 27 ? 16u : 0u);
  return NEAP_OK;
}

static int pool(neap__rule *r) {
  const neap_view *x = r->in[0];
  int64_t kernel = 1, stride = 1, padding = 0;
  int code = neap__want_f32(r);
  code = code < 0 ? code : whole(r, 0, "the kernel", 1, &kernel);
  code = code < 0 ? code : whole(r, 1, "the stride", 1, &stride);
  code = code < 0 ? code : whole(r, 2, "the padding", 0, &padding);
  code = code < 0 ? code : want_images(r);
  if (code < 0) {
    return code;
  }
  /* every window then touches the image */
  if (padding > kernel / 2) {
    return neap__error(NEAP_ERR_INVALID,
                       "%s: the padding must be at most half the kernel, found %lld of %lld",
                       r->name, (long long)padding, (long long)kernel);
  }
  int64_t rows = places(x->dims[2], kernel, stride, padding);
  int64_t width = places(x->dims[3], kernel, stride, padding);
  if (rows == 0 || width == 0) {
    char a[96];
    return neap__fail_shape(r, "a kernel of %lld is larger than the images %s with padding %lld",
                            (long long)kernel, neap__dims_text(x, a), (long long)padding);
  }
  int64_t dims[4] = {x->dims[0], x->dims[1], rows, width};
  neap__out_dims(r, 0, 4, dims);
  r->forward_flops = (double)r->out[0].n_elements * (double)kernel * (double)kernel;
  r->backward_flops = r->forward_flops;
  return NEAP_OK;
}

int neap__rule_maxpool2d(neap__rule *r) {
  int code = pool(r);
  if (code < 0) {
    return code;
  }
  int64_t n = r->out[0].n_elements;
  /* places in windows, packed into i32 */
  n = neap__pool_is_wide((int64_t)r->attrs[0]) || n == INT64_MAX / 8 ? n : (n + 3) / 4;
  neap__out_dims(r, 1, 1, &n);
  r->out[1].dtype = NEAP_I32;
  r->n_outputs = 2;
  r->save_out = 2;
  r->backward_flops = (double)r->out[0].n_elements;
  return NEAP_OK;
}

int neap__rule_avgpool2d(neap__rule *r) {
  return pool(r);
}
