/* conv2d: y[n] = weight columns(x[n]) + bias, with weight (O,C*KH*KW) and the windows of x as
 * columns (C*KH*KW,OH*OW), made for a tile of images or rows at a time (neap__conv_tile). dx adds
 * weight^T dy back to where the columns came from, dweight = sum of dy columns^T over the tiles in
 * order, dbias = sum of dy. Saves x for dweight, the weight for dx. A weight of 1x1 that moves by 1
 * needs no columns: x is them.
 */
#include "cpu/cpu.h"
#include "cpu/vmath.h"

static neap__conv conv_of(const neap_call *call) {
  const int64_t *x = call->in[0]->dims, *w = call->in[1]->dims, *y = call->out[0]->dims;
  return (neap__conv){.n = x[0],
                      .c = x[1],
                      .height = x[2],
                      .width = x[3],
                      .o = w[0],
                      .kh = w[2],
                      .kw = w[3],
                      .oh = y[2],
                      .ow = y[3],
                      .stride = (int64_t)call->attrs[0],
                      .padding = (int64_t)call->attrs[1],
                      .window = w[1] * w[2] * w[3]};
}

typedef struct {
  const float *bias; /* (O) */
  float *y;          /* (N,O,inner) */
  int64_t channels, inner;
} fill_args;

static void fill_planes(const void *arg, int64_t first, int64_t last) {
  const fill_args *args = arg;
  for (int64_t plane = first; plane < last; plane++) {
    float value = args->bias[plane % args->channels], *y = args->y + plane * args->inner;
    for (int64_t i = 0; i < args->inner; i++) {
      y[i] = value;
    }
  }
}

/* the next tile after part; 0: there is none */
static int next_part(const neap__conv *conv, int64_t images, int64_t rows, neap__conv_part *part) {
  if (part->images == 0) {
    *part = (neap__conv_part){0, 0, 0, 0};
  } else if (part->first_row + part->rows < conv->oh) {
    part->first_row += part->rows;
  } else {
    part->first_image += part->images;
    part->first_row = 0;
  }
  int64_t images_left = conv->n - part->first_image, rows_left = conv->oh - part->first_row;
  part->images = images < images_left ? images : images_left;
  part->rows = rows < rows_left ? rows : rows_left;
  return part->images > 0;
}

/* y of one tile = beta y + weight columns */
static int forward_part(const neap__conv *conv, const neap__conv_part *part, const float *weight,
                        const float *columns, float beta, float *y) {
  int64_t inner = conv->oh * conv->ow, n = part->rows * conv->ow;
  return neap__cpu_gemm_blocks(
      &(neap__products){.n_batches = part->images,
                        .m = conv->o,
                        .n = n,
                        .k = conv->window,
                        .a = weight,
                        .lda = conv->window,
                        .b = columns,
                        .ldb = n,
                        .b_stride = conv->window * n,
                        .beta = beta,
                        .c = y + part->first_image * conv->o * inner + part->first_row * conv->ow,
                        .ldc = inner,
                        .c_stride = conv->o * inner});
}

/* all of it, where x is its own columns */
static neap__conv_part whole(const neap__conv *conv) {
  return (neap__conv_part){0, conv->n, 0, conv->oh};
}

int neap__cpu_conv2d_forward(const neap_call *call) {
  neap__conv conv = conv_of(call);
  const float *x = call->in[0]->data, *weight = call->in[1]->data;
  float *y = call->out[0]->data;
  int64_t inner = conv.oh * conv.ow, images, rows;
  float beta = call->n_inputs == 3 ? 1.0f : 0.0f;
  if (call->out[0]->n_elements == 0) {
    return NEAP_OK;
  }
  if (call->n_inputs == 3) {
    fill_args args = {call->in[2]->data, y, conv.o, inner};
    neap__cpu_parallel(conv.n * conv.o, inner, fill_planes, &args);
  }
  if (conv.window == 0 || neap__conv_is_direct(call->in[1]->dims, call->attrs)) {
    neap__conv_part all = whole(&conv);
    return forward_part(&conv, &all, weight, x, beta, y);
  }
  neap__conv_tile(conv.n, conv.window, conv.oh, conv.ow, &images, &rows);
  int code = NEAP_OK;
  for (neap__conv_part part = {0}; code == NEAP_OK && next_part(&conv, images, rows, &part);) {
    neap__cpu_columns(&conv, &part, x, call->scratch);
    code = forward_part(&conv, &part, weight, call->scratch, beta, y);
  }
  return code;
}

/* dweight = beta dweight + dy columns^T of one tile */
static int weight_part(const neap__conv *conv, const neap__conv_part *part, const float *dy,
                       const float *columns, float beta, float *dweight) {
  int64_t inner = conv->oh * conv->ow, n = part->rows * conv->ow;
  return neap__cpu_gemm_blocks(
      &(neap__products){.n_batches = part->images,
                        .m = conv->o,
                        .n = conv->window,
                        .k = n,
                        .trans_b = 1,
                        .a = dy + part->first_image * conv->o * inner + part->first_row * conv->ow,
                        .lda = inner,
                        .a_stride = conv->o * inner,
                        .b = columns,
                        .ldb = n,
                        .b_stride = conv->window * n,
                        .beta = beta,
                        .c = dweight,
                        .ldc = conv->window});
}

/* columns of one tile = weight^T dy + beta columns */
static int input_part(const neap__conv *conv, const neap__conv_part *part, const float *weight,
                      const float *dy, float beta, float *columns) {
  int64_t inner = conv->oh * conv->ow, n = part->rows * conv->ow;
  return neap__cpu_gemm_blocks(
      &(neap__products){.n_batches = part->images,
                        .m = conv->window,
                        .n = n,
                        .k = conv->o,
                        .trans_a = 1,
                        .a = weight,
                        .lda = conv->window,
                        .b = dy + part->first_image * conv->o * inner + part->first_row * conv->ow,
                        .ldb = inner,
                        .b_stride = conv->o * inner,
                        .beta = beta,
                        .c = columns,
                        .ldc = n,
                        .c_stride = conv->window * n});
}

static int backward_direct(const neap_call *call, const neap__conv *conv) {
  const float *dy = call->grad_out[0]->data;
  neap__conv_part all = whole(conv);
  int code = NEAP_OK;
  if (call->grad_in[1]) {
    code = weight_part(conv, &all, dy, call->in[0]->data, call->accumulate[1] ? 1.0f : 0.0f,
                       call->grad_in[1]->data);
  }
  if (code == NEAP_OK && call->grad_in[0]) {
    code = input_part(conv, &all, call->in[1]->data, dy, call->accumulate[0] ? 1.0f : 0.0f,
                      call->grad_in[0]->data);
  }
  return code;
}

static int backward_tiles(const neap_call *call, const neap__conv *conv) {
  const float *dy = call->grad_out[0]->data;
  float beta = call->accumulate[1] ? 1.0f : 0.0f;
  int64_t images, rows;
  int code = NEAP_OK;
  if (call->grad_in[0] && !call->accumulate[0]) {
    neap__cpu_zero(NULL, call->grad_in[0]->data,
                   (size_t)call->grad_in[0]->n_elements * sizeof(float));
  }
  neap__conv_tile(conv->n, conv->window, conv->oh, conv->ow, &images, &rows);
  for (neap__conv_part part = {0}; code == NEAP_OK && next_part(conv, images, rows, &part);) {
    if (call->grad_in[1]) {
      neap__cpu_columns(conv, &part, call->in[0]->data, call->scratch);
      code = weight_part(conv, &part, dy, call->scratch, beta, call->grad_in[1]->data);
      beta = 1.0f;
    }
    if (code == NEAP_OK && call->grad_in[0]) {
      code = input_part(conv, &part, call->in[1]->data, dy, 0.0f, call->scratch);
      neap__cpu_columns_add(conv, &part, call->scratch, call->grad_in[0]->data);
    }
  }
  return code;
}

int neap__cpu_conv2d_backward(const neap_call *call) {
  neap__conv conv = conv_of(call);
  if (call->n_inputs == 3 && call->grad_in[2]) {
    neap__cpu_sum_channels(call->grad_out[0]->data, conv.n, conv.o, conv.oh * conv.ow,
                           call->grad_in[2]->data, call->accumulate[2]);
  }
  if (conv.n == 0 || conv.o == 0 || conv.window == 0) {
    /* nothing to sum over */
    for (int input = 0; input < 2; input++) {
      const neap_view *grad = call->grad_in[input];
      if (grad && !call->accumulate[input] && grad->n_elements > 0) {
        memset(grad->data, 0, (size_t)grad->n_elements * sizeof(float));
      }
    }
    return NEAP_OK;
  }
  return neap__conv_is_direct(call->in[1]->dims, call->attrs) ? backward_direct(call, &conv)
                                                              : backward_tiles(call, &conv);
}
