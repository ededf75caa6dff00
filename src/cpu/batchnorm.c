/* batchnorm: y = (x - mean) rstd gain + bias with the mean and the variance (biased) of each
 * channel over the batch (Ioffe and Szegedy 2015), rstd = 1 / sqrt(variance + eps). Saves x, gain,
 * and the two statistics, which are outputs too.
 * With n = (x - mean) rstd over m elements: dgain = sum dy n, dbias = sum dy, dx = gain rstd (dy -
 * mean(dy) - n mean(dy n)) + dmean / m + 2 dvariance (x - mean) / m. dx may be dy.
 * A channel is one item, summed image after image in double.
 */
#include "cpu/planes.h"
#include "cpu/cpu.h"
#include <math.h>

typedef struct {
  const neap_call *call;
  int64_t images, channels, inner;
} norm_args;

static norm_args args_of(const neap_call *call) {
  const neap_view *x = call->in[0];
  norm_args args = {call, x->dims[0], x->dims[1], 1};
  for (int i = 2; i < x->n_dims; i++) {
    args.inner *= x->dims[i];
  }
  return args;
}

NEAP_INLINE vf value_of(vf x, vf y, vf a, vf b) {
  (void)y, (void)a, (void)b;
  return x;
}

NEAP_INLINE vf squared_deviation(vf x, vf y, vf a, vf b) {
  (void)y, (void)b;
  return (x - a) * (x - a);
}

NEAP_INLINE vf normal_times(vf x, vf y, vf a, vf b) {
  return (x - a) * b * y;
}

/* sum over one channel of x and perhaps y, both (images,C,inner) */
NEAP_INLINE double channel_sum(const norm_args *args, int64_t c, const float *x, const float *y,
                               float a, float b, vf (*f)(vf, vf, vf, vf)) {
  double sum = 0;
  for (int64_t i = 0; i < args->images; i++) {
    int64_t at = (i * args->channels + c) * args->inner;
    sum += (double)plane_sum(x + at, y ? y + at : NULL, args->inner, v_set(a), v_set(b), f);
  }
  return sum;
}

/* to = (x - mean) scale + bias over a plane */
static void plane_scale(const float *x, float mean, float scale, float bias, float *to, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    to[i] = (x[i] - mean) * scale + bias;
  }
}

static void forward_range(const void *arg, int64_t first, int64_t last) {
  const norm_args *args = arg;
  const neap_call *call = args->call;
  const float *x = call->in[0]->data, *gain = call->in[1]->data, *bias = call->in[2]->data;
  float *y = call->out[0]->data, *means = call->out[1]->data, *variances = call->out[2]->data;
  int64_t m = args->images * args->inner;
  for (int64_t c = first; c < last; c++) {
    double n = m > 0 ? (double)m : 1.0;
    float mean = (float)(channel_sum(args, c, x, NULL, 0, 0, value_of) / n);
    float variance = (float)(channel_sum(args, c, x, NULL, mean, 0, squared_deviation) / n);
    float scale = gain[c] / sqrtf(variance + (float)call->attrs[0]);
    for (int64_t i = 0; i < args->images; i++) {
      int64_t at = (i * args->channels + c) * args->inner;
      plane_scale(x + at, mean, scale, bias[c], y + at, args->inner);
    }
    means[c] = mean;
    variances[c] = variance;
  }
}

int neap__cpu_batchnorm_forward(const neap_call *call) {
  norm_args args = args_of(call);
  neap__cpu_parallel(args.channels, 4 * args.images * args.inner, forward_range, &args);
  return NEAP_OK;
}

/* dx = or += dy k[0] + (x - mean) k[1] + k[2] over a plane; dx may be dy, dy may be NULL */
static void plane_slope(const float *x, const float *dy, float mean, const float k[3], float *dx,
                        int accumulate, int64_t n) {
  float dy_scale = k[0], x_scale = k[1], shift = k[2];
  for (int64_t i = 0; i < n; i++) {
    float slope = (dy ? dy[i] * dy_scale : 0.0f) + ((x[i] - mean) * x_scale + shift);
    dx[i] = accumulate ? dx[i] + slope : slope;
  }
}

static void put(const neap_view *grad, int accumulate, int64_t c, double value) {
  if (grad) {
    float *to = (float *)grad->data + c;
    *to = accumulate ? *to + (float)value : (float)value;
  }
}

static void backward_range(const void *arg, int64_t first, int64_t last) {
  const norm_args *args = arg;
  const neap_call *call = args->call;
  const float *x = call->in[0]->data, *means = call->out[1]->data;
  const float *variances = call->out[2]->data;
  const float *dy = call->grad_out[0] ? call->grad_out[0]->data : NULL;
  const float *dmean = call->grad_out[1] ? call->grad_out[1]->data : NULL;
  const float *dvariance = call->grad_out[2] ? call->grad_out[2]->data : NULL;
  double n = (double)(args->images * args->inner > 0 ? args->images * args->inner : 1);
  for (int64_t c = first; c < last; c++) {
    double sum = dy ? channel_sum(args, c, dy, NULL, 0, 0, value_of) : 0, sum_normal = 0;
    put(call->grad_in[2], call->accumulate[2], c, sum);
    if (!means) { /* the bias alone */
      continue;
    }
    float mean = means[c], rstd = 1.0f / sqrtf(variances[c] + (float)call->attrs[0]);
    sum_normal = dy ? channel_sum(args, c, x, dy, mean, rstd, normal_times) : 0;
    put(call->grad_in[1], call->accumulate[1], c, sum_normal);
    if (!call->grad_in[0]) {
      continue;
    }
    double scale = (double)((const float *)call->in[1]->data)[c] * (double)rstd;
    double of_mean = dmean ? (double)dmean[c] : 0,
           of_variance = dvariance ? (double)dvariance[c] : 0;
    float k[3] = {(float)scale, (float)((2 * of_variance - scale * (double)rstd * sum_normal) / n),
                  (float)((of_mean - scale * sum) / n)};
    for (int64_t i = 0; i < args->images; i++) {
      int64_t at = (i * args->channels + c) * args->inner;
      plane_slope(x + at, dy ? dy + at : NULL, mean, k, (float *)call->grad_in[0]->data + at,
                  call->accumulate[0], args->inner);
    }
  }
}

int neap__cpu_batchnorm_backward(const neap_call *call) {
  norm_args args = args_of(call);
  neap__cpu_parallel(args.channels, 4 * args.images * args.inner, backward_range, &args);
  return NEAP_OK;
}

static void sum_range(const void *arg, int64_t first, int64_t last) {
  const norm_args *args = arg;
  const neap_call *call = args->call;
  for (int64_t c = first; c < last; c++) {
    double sum = channel_sum(args, c, call->in[0]->data, NULL, 0, 0, value_of);
    put(call->grad_in[0], call->accumulate[0], c, sum);
  }
}

void neap__cpu_sum_channels(const float *x, int64_t images, int64_t channels, int64_t inner,
                            float *out, int accumulate) {
  neap_view from = {.data = (void *)(uintptr_t)x}, to = {.data = out};
  neap_call call = {.in = {&from}, .grad_in = {&to}, .accumulate = {(uint8_t)accumulate}};
  norm_args args = {&call, images, channels, inner};
  neap__cpu_parallel(channels, images * inner, sum_range, &args);
}

/* ---- with given statistics ----
 * dx = dy gain rstd, dgain = sum dy n, dbias = sum dy, dmean = -gain rstd sum dy, dvariance = -gain
 * rstd^2 / 2 sum dy n. */

static void inference_range(const void *arg, int64_t first, int64_t last) {
  const norm_args *args = arg;
  const neap_call *call = args->call;
  const float *gain = call->in[1]->data, *bias = call->in[2]->data, *means = call->in[3]->data;
  const float *variances = call->in[4]->data;
  for (int64_t plane = first; plane < last; plane++) {
    int64_t c = plane % args->channels, at = plane * args->inner;
    float scale = gain[c] / sqrtf(variances[c] + (float)call->attrs[0]);
    plane_scale((const float *)call->in[0]->data + at, means[c], scale, bias[c],
                (float *)call->out[0]->data + at, args->inner);
  }
}

int neap__cpu_batchnorm_inference_forward(const neap_call *call) {
  norm_args args = args_of(call);
  if (call->out[0]->n_elements > 0) {
    neap__cpu_parallel(args.images * args.channels, args.inner, inference_range, &args);
  }
  return NEAP_OK;
}

static void inference_backward_range(const void *arg, int64_t first, int64_t last) {
  const norm_args *args = arg;
  const neap_call *call = args->call;
  const neap_view *const *grad = call->grad_in;
  const float *x = call->in[0]->data, *gain = call->in[1]->data, *means = call->in[3]->data;
  const float *dy = call->grad_out[0]->data, *variances = call->in[4]->data;
  for (int64_t c = first; c < last; c++) {
    float rstd = variances ? 1.0f / sqrtf(variances[c] + (float)call->attrs[0]) : 0.0f;
    double scale = gain ? (double)gain[c] * (double)rstd : 0;
    double sum = grad[2] || grad[3] ? channel_sum(args, c, dy, NULL, 0, 0, value_of) : 0;
    double sum_normal = 0;
    if (grad[1] || grad[4]) {
      sum_normal = channel_sum(args, c, x, dy, means[c], rstd, normal_times);
    }
    put(grad[1], call->accumulate[1], c, sum_normal);
    put(grad[2], call->accumulate[2], c, sum);
    put(grad[3], call->accumulate[3], c, -scale * sum);
    put(grad[4], call->accumulate[4], c, -0.5 * scale * (double)rstd * sum_normal);
    for (int64_t i = 0; grad[0] && i < args->images; i++) {
      int64_t at = (i * args->channels + c) * args->inner;
      float k[3] = {(float)scale, 0.0f, 0.0f};
      plane_slope(dy + at, dy + at, 0.0f, k, (float *)grad[0]->data + at, call->accumulate[0],
                  args->inner);
    }
  }
}

int neap__cpu_batchnorm_inference_backward(const neap_call *call) {
  norm_args args = args_of(call);
  neap__cpu_parallel(args.channels, 2 * args.images * args.inner, inference_backward_range, &args);
  return NEAP_OK;
}
