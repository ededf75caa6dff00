/* Windows of images as columns of a matrix, and back, for convolution. A row of columns is one
 * channel at one place (ky,kx) of the weight; a column is one place of the output. Rows of one
 * channel add to one plane of dx, in order, whoever computes them.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

typedef struct {
  const neap__conv *conv;
  const neap__conv_part *part;
  const float *x; /* (N,C,H,W), or columns */
  float *to;      /* columns (images,C*KH*KW,rows*OW), or dx */
} columns_args;

/* outputs first .. last - 1 of a row have their place kx inside the image */
static void inside(const neap__conv *conv, int64_t kx, int64_t *first, int64_t *last) {
  int64_t before = conv->padding - kx;
  *first = before > 0 ? (before + conv->stride - 1) / conv->stride : 0;
  int64_t end = conv->width + before; /* x of an output * stride is below it */
  *last = end > 0 ? (end + conv->stride - 1) / conv->stride : 0;
  *first = *first < conv->ow ? *first : conv->ow;
  *last = *last < conv->ow ? *last : conv->ow;
  *last = *last > *first ? *last : *first;
}

static void take_row(const neap__conv *conv, const float *x, int64_t first, int64_t last,
                     int64_t kx, float *to) {
  memset(to, 0, (size_t)first * sizeof *to);
  memset(to + last, 0, (size_t)(conv->ow - last) * sizeof *to);
  if (conv->stride == 1 && last > first) {
    memcpy(to + first, x + first + kx - conv->padding, (size_t)(last - first) * sizeof *to);
    return;
  }
  for (int64_t i = first; i < last; i++) {
    to[i] = x[i * conv->stride + kx - conv->padding];
  }
}

/* an item is a row of columns of one image */
static void take_range(const void *arg, int64_t range_first, int64_t range_last) {
  const columns_args *args = arg;
  const neap__conv *conv = args->conv;
  const neap__conv_part *part = args->part;
  int64_t place = conv->kh * conv->kw, plane = conv->height * conv->width;
  for (int64_t item = range_first; item < range_last; item++) {
    int64_t image = part->first_image + item / conv->window, row = item % conv->window;
    int64_t ky = row % place / conv->kw, kx = row % conv->kw, first, last;
    const float *x = args->x + (image * conv->c + row / place) * plane;
    float *to = args->to + item * part->rows * conv->ow;
    inside(conv, kx, &first, &last);
    for (int64_t r = 0; r < part->rows; r++, to += conv->ow) {
      int64_t y = (part->first_row + r) * conv->stride + ky - conv->padding;
      if (y < 0 || y >= conv->height) {
        memset(to, 0, (size_t)conv->ow * sizeof *to);
      } else {
        take_row(conv, x + y * conv->width, first, last, kx, to);
      }
    }
  }
}

void neap__cpu_columns(const neap__conv *conv, const neap__conv_part *part, const float *x,
                       float *columns) {
  columns_args args = {conv, part, x, columns};
  neap__cpu_parallel(part->images * conv->window, part->rows * conv->ow, take_range, &args);
}

static void add_row(const neap__conv *conv, const float *from, int64_t first, int64_t last,
                    int64_t kx, float *dx) {
  if (conv->stride == 1 && last > first) {
    v_add_to(dx + first + kx - conv->padding, from + first, last - first);
    return;
  }
  for (int64_t i = first; i < last; i++) {
    dx[i * conv->stride + kx - conv->padding] += from[i];
  }
}

/* an item is a channel of one image */
static void add_range(const void *arg, int64_t range_first, int64_t range_last) {
  const columns_args *args = arg;
  const neap__conv *conv = args->conv;
  const neap__conv_part *part = args->part;
  int64_t place = conv->kh * conv->kw, plane = conv->height * conv->width;
  for (int64_t item = range_first; item < range_last; item++) {
    float *dx = args->to + (part->first_image * conv->c + item) * plane;
    const float *from = args->x + item * place * part->rows * conv->ow;
    for (int64_t k = 0; k < place; k++) {
      int64_t ky = k / conv->kw, kx = k % conv->kw, first, last;
      inside(conv, kx, &first, &last);
      for (int64_t r = 0; r < part->rows; r++, from += conv->ow) {
        int64_t y = (part->first_row + r) * conv->stride + ky - conv->padding;
        if (y >= 0 && y < conv->height) {
          add_row(conv, from, first, last, kx, dx + y * conv->width);
        }
      }
    }
  }
}

void neap__cpu_columns_add(const neap__conv *conv, const neap__conv_part *part,
                           const float *columns, float *dx) {
  columns_args args = {conv, part, columns, dx};
  neap__cpu_parallel(part->images * conv->c, conv->kh * conv->kw * part->rows * conv->ow, add_range,
                     &args);
}
