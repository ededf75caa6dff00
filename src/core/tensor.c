/* Tensors as a caller sees them: made, looked at, copied, filled. Row-major and contiguous, always.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "core/trace.h"

static const size_t dtype_bytes[NEAP_N_DTYPES] = {4, 2, 4};
static const char *const dtype_names[NEAP_N_DTYPES] = {"f32", "bf16", "i32"};

size_t neap__dtype_bytes(int dtype) {
  return dtype_bytes[dtype];
}

const char *neap__dtype_name(int dtype) {
  return dtype_names[dtype];
}

size_t neap__view_bytes(const neap_view *view) {
  return (size_t)view->n_elements * dtype_bytes[view->dtype];
}

int neap__view_set(neap_view *view, int dtype, int n_dims, const double *dims) {
  if (dtype < 0 || dtype >= NEAP_N_DTYPES) {
    return neap__error(NEAP_ERR_DTYPE, "tensor: unknown dtype %d", dtype);
  }
  if (n_dims < 0 || n_dims > NEAP_MAX_DIMS || (n_dims > 0 && dims == NULL)) {
    return neap__error(NEAP_ERR_SHAPE, "tensor: expected 0..%d dimensions, found %d", NEAP_MAX_DIMS,
                       n_dims);
  }
  int64_t n = 1;
  int is_empty = 0, overflows = 0;
  memset(view, 0, sizeof *view);
  for (int i = 0; i < n_dims; i++) {
    if (!(dims[i] >= 0 && dims[i] <= 9007199254740992.0) || dims[i] != floor(dims[i])) {
      return neap__error(NEAP_ERR_SHAPE,
                         "tensor: dimension %d is %.17g; expected a whole number 0..2^53", i + 1,
                         dims[i]);
    }
    view->dims[i] = (int64_t)dims[i];
    is_empty |= view->dims[i] == 0;
    overflows |= __builtin_mul_overflow(n, view->dims[i], &n);
  }
  n = is_empty ? 0 : n;
  int64_t bytes;
  overflows |= __builtin_mul_overflow(n, (int64_t)dtype_bytes[dtype], &bytes);
  if (!is_empty && (overflows || bytes > INT64_MAX / 4)) {
    return neap__error(NEAP_ERR_OVERFLOW, "tensor: the product of its %d dimensions overflows",
                       n_dims);
  }
  view->n_elements = n;
  view->n_dims = n_dims;
  view->dtype = dtype;
  return NEAP_OK;
}

const char *neap__dims_text(const neap_view *view, char text[96]) {
  size_t at = (size_t)snprintf(text, 96, "(");
  for (int i = 0; i < view->n_dims && at < 80; i++) {
    at += (size_t)snprintf(text + at, 96 - at, i > 0 ? ", %lld" : "%lld", (long long)view->dims[i]);
  }
  snprintf(text + at, 96 - at, ")");
  return text;
}

double neap_tensor_new(int device, int dtype, int n_dims, const double *dims, int tag) {
  neap_view view;
  neap__storage *storage;
  if (neap__device_get(device) == NULL) {
    return NEAP_ERR_DEVICE;
  }
  if (tag < -1 || tag >= NEAP_N_TAGS) {
    return neap__error(NEAP_ERR_INVALID, "tensor: unknown memory tag %d", tag);
  }
  int code = neap__view_set(&view, dtype, n_dims, dims);
  if (code < 0) {
    return code;
  }
  code = neap__storage_new(device % NEAP__MAX_DEVICES, neap__view_bytes(&view),
                           tag < 0 ? neap__tag : tag, &storage);
  if (code < 0) {
    return code;
  }
  view.data = storage->data;
  neap__slot *slot = neap__slot_new(storage, &view);
  if (slot == NULL) {
    neap__storage_unref(storage);
    return NEAP_ERR_MEMORY;
  }
  return neap__slot_id(slot);
}

static double another(neap__slot *slot, const neap_view *view) {
  neap__slot *made = neap__slot_new(slot->storage, view);
  if (made == NULL) {
    return NEAP_ERR_MEMORY;
  }
  slot->storage->refs++;
  return neap__slot_id(made);
}

double neap_tensor_detach(double id) {
  neap__slot *slot = neap__slot_get(id);
  return slot == NULL ? NEAP_ERR_STALE : another(slot, &slot->view);
}

double neap_tensor_view(double id, int n_dims, const double *dims, double first_element) {
  neap__slot *slot = neap__slot_get(id);
  neap_view view;
  if (slot == NULL) {
    return NEAP_ERR_STALE;
  }
  int code = neap__view_set(&view, slot->view.dtype, n_dims, dims);
  if (code < 0) {
    return code;
  }
  if (!(first_element >= 0) || first_element != floor(first_element) ||
      first_element + (double)view.n_elements > (double)slot->view.n_elements) {
    char text[96];
    return neap__error(NEAP_ERR_SHAPE, "view: %lld elements from element %.17g are not inside %s",
                       (long long)view.n_elements, first_element,
                       neap__dims_text(&slot->view, text));
  }
  view.data = view.n_elements == 0 || slot->storage->is_phantom
                  ? NULL
                  : (char *)slot->view.data + (size_t)first_element * dtype_bytes[view.dtype];
  return another(slot, &view);
}

/* one look at a slot, or the error */
#define LOOK(id, expression)                                                                       \
  neap__slot *slot = neap__slot_get(id);                                                           \
  return slot == NULL ? NEAP_ERR_STALE : (expression)

int neap_tensor_device(double id) {
  LOOK(id, neap__device_id(slot->storage->device));
}

int neap_tensor_dtype(double id) {
  LOOK(id, slot->view.dtype);
}

int neap_tensor_n_dims(double id) {
  LOOK(id, slot->view.n_dims);
}

double neap_tensor_dim(double id, int dim) {
  LOOK(id, dim < 0 || dim >= slot->view.n_dims
               ? neap__error(NEAP_ERR_SHAPE, "tensor: it has %d dimensions, asked for number %d",
                             slot->view.n_dims, dim + 1)
               : (double)slot->view.dims[dim]);
}

double neap_tensor_n_elements(double id) {
  LOOK(id, (double)slot->view.n_elements);
}

double neap_tensor_bytes(double id) {
  LOOK(id, (double)slot->storage->bytes);
}

double neap_tensor_storage(double id) {
  LOOK(id, (double)slot->storage->id);
}

double neap_tensor_version(double id) {
  LOOK(id, (double)slot->storage->version);
}

int neap_tensor_tag(double id) {
  LOOK(id, slot->storage->tag);
}

static int check_bytes(const char *who, const neap__slot *slot, const void *host, size_t bytes) {
  if ((host == NULL && bytes > 0) || bytes != neap__view_bytes(&slot->view)) {
    return neap__error(NEAP_ERR_SHAPE, "%s: the tensor has %zu bytes, found %zu", who,
                       neap__view_bytes(&slot->view), host == NULL ? 0 : bytes);
  }
  return NEAP_OK;
}

int neap_tensor_write(double id, const void *from, size_t bytes) {
  neap__slot *slot = neap__slot_get(id);
  int code = slot == NULL ? NEAP_ERR_STALE : check_bytes("write", slot, from, bytes);
  if (code < 0 || bytes == 0) {
    return code;
  }
  code = neap__write_begin(slot, "write");
  if (code < 0 || slot->storage->is_phantom) {
    return code;
  }
  neap__device *d = &neap__devices[slot->storage->device];
  return d->backend->write(d->context, slot->view.data, from, bytes);
}

int neap_tensor_read(double id, void *to, size_t bytes) {
  neap__slot *slot = neap__slot_get(id);
  int code = slot == NULL ? NEAP_ERR_STALE : check_bytes("read", slot, to, bytes);
  if (code < 0 || bytes == 0) {
    return code;
  }
  neap__device *d = &neap__devices[slot->storage->device];
  if (slot->storage->is_phantom) {
    return neap__phantom_error("read");
  }
  neap__trace_needs(slot->storage, 0);
  if (!d->backend->computes) {
    memset(to, 0, bytes);
    return NEAP_OK;
  }
  return d->backend->read(d->context, to, slot->view.data, bytes);
}

int neap_tensor_fill(double id, double value) {
  neap__slot *slot = neap__slot_get(id);
  if (slot == NULL) {
    return NEAP_ERR_STALE;
  }
  if (slot->view.dtype == NEAP_I32 && !(fabs(value) < 2147483648.0 && value == floor(value))) {
    return neap__error(NEAP_ERR_INVALID, "fill: %.17g is no whole number of 32 bits", value);
  }
  int code = neap__write_begin(slot, "fill");
  neap__device *d = &neap__devices[slot->storage->device];
  if (code < 0 || slot->view.n_elements == 0 || slot->storage->is_phantom ||
      !d->backend->computes) {
    return code;
  }
  return d->backend->fill(d->context, &slot->view, value);
}

static int fill_random(double id, int normal, double a, double b, double seed, double stream) {
  neap__slot *slot = neap__slot_get(id);
  if (slot == NULL) {
    return NEAP_ERR_STALE;
  }
  if (slot->view.dtype != NEAP_F32 || !isfinite(a) || !isfinite(b) || !isfinite(seed) ||
      !isfinite(stream)) {
    return neap__error(NEAP_ERR_INVALID, "fill: expected a f32 tensor and finite numbers");
  }
  int code = neap__write_begin(slot, "fill");
  neap__device *d = &neap__devices[slot->storage->device];
  if (code < 0 || slot->view.n_elements == 0 || slot->storage->is_phantom ||
      !d->backend->computes) {
    return code;
  }
  return d->backend->fill_random(d->context, &slot->view, normal, a, b,
                                 neap__rng_key(seed, stream));
}

int neap_tensor_fill_normal(double id, double mean, double std, double seed, double stream) {
  return fill_random(id, 1, mean, std, seed, stream);
}

int neap_tensor_fill_uniform(double id, double lo, double hi, double seed, double stream) {
  return fill_random(id, 0, lo, hi, seed, stream);
}

static int same_shape(const neap_view *a, const neap_view *b) {
  return a->dtype == b->dtype && a->n_dims == b->n_dims &&
         memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

int neap_tensor_copy(double to_id, double from_id) {
  neap__slot *to = neap__slot_get(to_id);
  neap__slot *from = to == NULL ? NULL : neap__slot_get(from_id);
  if (from == NULL) {
    return NEAP_ERR_STALE;
  }
  if (!same_shape(&to->view, &from->view)) {
    char a[96], b[96];
    return neap__error(NEAP_ERR_SHAPE, "copy: to is %s %s, from is %s %s",
                       dtype_names[to->view.dtype], neap__dims_text(&to->view, a),
                       dtype_names[from->view.dtype], neap__dims_text(&from->view, b));
  }
  size_t bytes = neap__view_bytes(&to->view);
  if (to->storage == from->storage && bytes > 0) {
    int64_t apart = (char *)to->view.data - (char *)from->view.data;
    if (apart == 0) {
      return NEAP_OK;
    }
    if ((size_t)(apart < 0 ? -apart : apart) < bytes) {
      return neap__error(NEAP_ERR_INVALID, "copy: the two tensors overlap in memory");
    }
  }
  neap__device *dt = &neap__devices[to->storage->device];
  neap__device *df = &neap__devices[from->storage->device];
  if (from->storage->is_phantom && !to->storage->is_phantom) {
    return neap__phantom_error("copy");
  }
  neap__trace_needs(from->storage, 0);
  int code = neap__write_begin(to, "copy");
  if (code < 0 || to->storage->is_phantom) {
    return code;
  }
  if (bytes == 0 || !dt->backend->computes || !df->backend->computes) {
    return NEAP_OK;
  }
  if (dt == df) {
    return dt->backend->copy(dt->context, to->view.data, from->view.data, bytes);
  }
  void *host = neap__host_alloc(bytes);
  if (host == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: copy between devices needs %zu host bytes",
                       bytes);
  }
  code = df->backend->read(df->context, host, from->view.data, bytes);
  code = code < 0 ? code : dt->backend->write(dt->context, to->view.data, host, bytes);
  neap__host_free(host);
  return code;
}

static int lerp_check(const neap__slot *to, const neap__slot *from, double weight) {
  char a[96], b[96];
  if (to->view.dtype != NEAP_F32 || from->view.dtype != NEAP_F32) {
    return neap__error(NEAP_ERR_DTYPE, "lerp: expected two f32 tensors, found %s and %s",
                       dtype_names[to->view.dtype], dtype_names[from->view.dtype]);
  }
  if (!same_shape(&to->view, &from->view)) {
    return neap__error(NEAP_ERR_SHAPE, "lerp: to is %s, from is %s; expected one shape",
                       neap__dims_text(&to->view, a), neap__dims_text(&from->view, b));
  }
  if (to->storage->device != from->storage->device) {
    return neap__error(NEAP_ERR_DEVICE, "lerp: the two tensors are on different devices (%s, %s)",
                       neap__devices[to->storage->device].backend->name,
                       neap__devices[from->storage->device].backend->name);
  }
  if (!isfinite(weight)) {
    return neap__error(NEAP_ERR_INVALID, "lerp: expected a finite weight, found %g", weight);
  }
  if (neap__devices[to->storage->device].backend->lerp == NULL) {
    return neap__error(NEAP_ERR_UNSUPPORTED, "lerp: the %s backend does not have it",
                       neap__devices[to->storage->device].backend->name);
  }
  return NEAP_OK;
}

int neap_tensor_lerp(double to_id, double from_id, double weight) {
  neap__slot *to = neap__slot_get(to_id);
  neap__slot *from = to == NULL ? NULL : neap__slot_get(from_id);
  if (from == NULL) {
    return NEAP_ERR_STALE;
  }
  int code = lerp_check(to, from, weight);
  if (code < 0) {
    return code;
  }
  neap__device *d = &neap__devices[to->storage->device];
  if (from->storage->is_phantom && !to->storage->is_phantom) {
    return neap__phantom_error("lerp");
  }
  neap__trace_needs(from->storage, 0);
  code = neap__write_begin(to, "lerp");
  if (code < 0 || to->view.n_elements == 0 || to->storage->is_phantom || !d->backend->computes) {
    return code;
  }
  return d->backend->lerp(d->context, &to->view, &from->view, weight);
}

int neap_tensor_hash(double n, const double *ids, char *hex33) {
  XXH3_state_t *state = XXH3_createState();
  int code = state == NULL || ids == NULL || hex33 == NULL || !(n >= 0 && n < 1e9)
                 ? neap__error(NEAP_ERR_INVALID, "hash: expected tensors and a place for 33 bytes")
                 : NEAP_OK;
  if (code == NEAP_OK) {
    XXH3_128bits_reset(state);
  }
  for (int64_t i = 0; code == NEAP_OK && i < (int64_t)n; i++) {
    neap__slot *slot = neap__slot_get(ids[i]);
    size_t bytes = slot == NULL ? 0 : neap__view_bytes(&slot->view);
    void *host = slot == NULL ? NULL : neap__host_alloc(bytes);
    code = slot == NULL ? NEAP_ERR_STALE
           : host == NULL
               ? neap__error(NEAP_ERR_MEMORY, "out of memory: hash needs %zu host bytes", bytes)
               : neap_tensor_read(ids[i], host, bytes);
    if (code == NEAP_OK) {
      XXH3_128bits_update(state, host, bytes);
    }
    neap__host_free(host);
  }
  if (code == NEAP_OK) {
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    snprintf(hex33, 33, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
  }
  XXH3_freeState(state);
  return code;
}
