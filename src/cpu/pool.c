/* maxpool2d and avgpool2d over windows of kernel x kernel. Max remembers for each output which
 * place of its window it came from (the first of equals; the last NaN) in out[1], bytes or i32, and
 * saves nothing else. Avg divides by kernel^2: zeros outside the image count. dx is not dy.
 * A plane (one channel of one image) is an item.
 */
#include "cpu/cpu.h"
#include <math.h>
#include <string.h>

typedef struct {
  const neap_call *call;
  int64_t height, width, oh, ow, kernel, stride, padding;
  int wide;
} pool_args;

static pool_args args_of(const neap_call *call) {
  const int64_t *x = call->in[0]->dims, *y = call->out[0]->dims;
  int64_t kernel = (int64_t)call->attrs[0];
  return (pool_args){call,
                     x[2],
                     x[3],
                     y[2],
                     y[3],
                     kernel,
                     (int64_t)call->attrs[1],
                     (int64_t)call->attrs[2],
                     neap__pool_is_wide(kernel)};
}

/* the part of a window that starts at `start` (from -padding) and lies inside the image */
typedef struct {
  int64_t first, last;
} span;

static span inside(int64_t start, int64_t kernel, int64_t length) {
  span s = {start < 0 ? 0 : start, start + kernel < length ? start + kernel : length};
  return s;
}

/* the largest of one window; *place: where in it */
static float largest(const pool_args *args, const float *x, int64_t top, int64_t left,
                     int64_t *place) {
  span rows = inside(top, args->kernel, args->height);
  span columns = inside(left, args->kernel, args->width);
  float best = -INFINITY;
  *place = (rows.first - top) * args->kernel + columns.first - left;
  for (int64_t i = rows.first; i < rows.last; i++) {
    for (int64_t j = columns.first; j < columns.last; j++) {
      float value = x[i * args->width + j];
      if (value > best || value != value) {
        best = value;
        *place = (i - top) * args->kernel + j - left;
      }
    }
  }
  return best;
}

static void max_range(const void *arg, int64_t first, int64_t last) {
  const pool_args *args = arg;
  void *places = args->call->out[1]->data;
  int64_t at = first * args->oh * args->ow, place;
  float *y = args->call->out[0]->data;
  for (int64_t plane = first; plane < last; plane++) {
    const float *x = (const float *)args->call->in[0]->data + plane * args->height * args->width;
    for (int64_t i = 0; i < args->oh; i++) {
      for (int64_t j = 0; j < args->ow; j++, at++) {
        y[at] = largest(args, x, i * args->stride - args->padding, j * args->stride - args->padding,
                        &place);
        if (places && args->wide) {
          ((int32_t *)places)[at] = (int32_t)place;
        } else if (places) {
          ((uint8_t *)places)[at] = (uint8_t)place;
        }
      }
    }
  }
}

static void run(const pool_args *args, neap__cpu_range range) {
  const neap_view *x = args->call->in[0];
  int64_t window = args->kernel * args->kernel, outputs = args->oh * args->ow;
  /* windows that overlap cost more than the plane has elements */
  double cost = (double)window * (double)outputs;
  neap__cpu_parallel(x->dims[0] * x->dims[1], cost < 1e15 ? (int64_t)cost : (int64_t)1e15, range,
                     args);
}

int neap__cpu_maxpool2d_forward(const neap_call *call) {
  pool_args args = args_of(call);
  run(&args, max_range);
  return NEAP_OK;
}

/* dx of planes first .. last - 1, zeroed unless it is added to */
static float *slope_planes(const pool_args *args, int64_t first, int64_t last) {
  int64_t plane = args->height * args->width;
  float *dx = (float *)args->call->grad_in[0]->data + first * plane;
  if (!args->call->accumulate[0]) {
    memset(dx, 0, (size_t)((last - first) * plane) * sizeof *dx);
  }
  return dx;
}

static void max_backward_range(const void *arg, int64_t first, int64_t last) {
  const pool_args *args = arg;
  const void *places = args->call->out[1]->data;
  const float *dy = args->call->grad_out[0]->data;
  float *dx = slope_planes(args, first, last);
  int64_t at = first * args->oh * args->ow;
  for (int64_t plane = first; plane < last; plane++, dx += args->height * args->width) {
    for (int64_t i = 0; i < args->oh; i++) {
      for (int64_t j = 0; j < args->ow; j++, at++) {
        int64_t place = args->wide ? ((const int32_t *)places)[at] : ((const uint8_t *)places)[at];
        int64_t row = i * args->stride - args->padding + place / args->kernel;
        int64_t column = j * args->stride - args->padding + place % args->kernel;
        dx[row * args->width + column] += dy[at];
      }
    }
  }
}

int neap__cpu_maxpool2d_backward(const neap_call *call) {
  pool_args args = args_of(call);
  run(&args, max_backward_range);
  return NEAP_OK;
}

static void avg_range(const void *arg, int64_t first, int64_t last) {
  const pool_args *args = arg;
  float *y = (float *)args->call->out[0]->data + first * args->oh * args->ow;
  float scale = 1.0f / ((float)args->kernel * (float)args->kernel);
  for (int64_t plane = first; plane < last; plane++) {
    const float *x = (const float *)args->call->in[0]->data + plane * args->height * args->width;
    for (int64_t i = 0; i < args->oh; i++) {
      span rows = inside(i * args->stride - args->padding, args->kernel, args->height);
      for (int64_t j = 0; j < args->ow; j++) {
        span columns = inside(j * args->stride - args->padding, args->kernel, args->width);
        float sum = 0.0f;
        for (int64_t k = rows.first; k < rows.last; k++) {
          for (int64_t l = columns.first; l < columns.last; l++) {
            sum += x[k * args->width + l];
          }
        }
        *y++ = sum * scale;
      }
    }
  }
}

int neap__cpu_avgpool2d_forward(const neap_call *call) {
  pool_args args = args_of(call);
  run(&args, avg_range);
  return NEAP_OK;
}

static void avg_backward_range(const void *arg, int64_t first, int64_t last) {
  const pool_args *args = arg;
  const float *dy = (const float *)args->call->grad_out[0]->data + first * args->oh * args->ow;
  float *dx = slope_planes(args, first, last);
  float scale = 1.0f / ((float)args->kernel * (float)args->kernel);
  for (int64_t plane = first; plane < last; plane++, dx += args->height * args->width) {
    for (int64_t i = 0; i < args->oh; i++) {
      span rows = inside(i * args->stride - args->padding, args->kernel, args->height);
      for (int64_t j = 0; j < args->ow; j++, dy++) {
        span columns = inside(j * args->stride - args->padding, args->kernel, args->width);
        for (int64_t k = rows.first; k < rows.last; k++) {
          for (int64_t l = columns.first; l < columns.last; l++) {
            dx[k * args->width + l] += *dy * scale;
          }
        }
      }
    }
  }
}

int neap__cpu_avgpool2d_backward(const neap_call *call) {
  pool_args args = args_of(call);
  run(&args, avg_backward_range);
  return NEAP_OK;
}
