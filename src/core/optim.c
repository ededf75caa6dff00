/* Optimizer steps: checks here, arithmetic in the backend. */
#include <math.h>
#include <string.h>

#include "core/core.h"

/* slots of n f32 tensors of one shape on one device; id 0 gives NULL where allowed */
static int gather(const char *who, int n, const double *ids, int may_miss, neap__slot **slots) {
  for (int i = 0; i < n; i++) {
    slots[i] = ids[i] == 0 && i == may_miss ? NULL : neap__slot_get(ids[i]);
    if (slots[i] == NULL) {
      if (ids[i] == 0 && i == may_miss) {
        continue;
      }
      return NEAP_ERR_STALE;
    }
    const neap_view *a = &slots[0]->view, *b = &slots[i]->view;
    if (b->dtype != NEAP_F32 || slots[i]->storage->device != slots[0]->storage->device ||
        a->n_dims != b->n_dims || memcmp(a->dims, b->dims, sizeof a->dims) != 0) {
      char x[96], y[96];
      return neap__error(NEAP_ERR_SHAPE,
                         "%s: expected f32 tensors of one shape and device, found %s "
                         "and %s %s",
                         who, neap__dims_text(a, x), neap__dtype_name(b->dtype),
                         neap__dims_text(b, y));
    }
  }
  return NEAP_OK;
}

static int all_finite(const char *who, int n, const double *numbers) {
  for (int i = 0; i < n; i++) {
    if (!isfinite(numbers[i])) {
      return neap__error(NEAP_ERR_INVALID, "%s: hyper-parameter %d is %g, expected a finite number",
                         who, i + 1, numbers[i]);
    }
  }
  return NEAP_OK;
}

int neap_adamw(double param, double grad, double m, double v, double lr, double beta1, double beta2,
               double eps, double decay, double step, double grad_scale) {
  double ids[4] = {param, grad, m, v};
  double hyper[7] = {lr, beta1, beta2, eps, decay, step, grad_scale};
  neap__slot *slots[4];
  int code = gather("adamw", 4, ids, -1, slots);
  code = code < 0 ? code : all_finite("adamw", 7, hyper);
  if (code < 0) {
    return code;
  }
  if (!(step >= 1) || !(beta1 >= 0 && beta1 < 1) || !(beta2 >= 0 && beta2 < 1) || !(eps > 0)) {
    return neap__error(NEAP_ERR_INVALID,
                       "adamw: expected step >= 1, betas in [0, 1), eps > 0; found "
                       "%g, %g, %g, %g",
                       step, beta1, beta2, eps);
  }
  neap__write_note(slots[0]->storage, "adamw");
  neap__write_note(slots[2]->storage, "adamw");
  neap__write_note(slots[3]->storage, "adamw");
  neap__device *d = &neap__devices[slots[0]->storage->device];
  if (slots[0]->view.n_elements == 0 || !d->backend->computes) {
    return NEAP_OK;
  }
  return d->backend->adamw(d->context, &slots[0]->view, &slots[1]->view, &slots[2]->view,
                           &slots[3]->view, hyper);
}

int neap_sgd(double param, double grad, double velocity, double lr, double momentum, double decay,
             double grad_scale) {
  double ids[3] = {param, grad, velocity}, hyper[4] = {lr, momentum, decay, grad_scale};
  neap__slot *slots[3];
  int code = gather("sgd", 3, ids, 2, slots);
  code = code < 0 ? code : all_finite("sgd", 4, hyper);
  if (code < 0) {
    return code;
  }
  neap__write_note(slots[0]->storage, "sgd");
  if (slots[2] != NULL) {
    neap__write_note(slots[2]->storage, "sgd");
  }
  neap__device *d = &neap__devices[slots[0]->storage->device];
  if (slots[0]->view.n_elements == 0 || !d->backend->computes) {
    return NEAP_OK;
  }
  return d->backend->sgd(d->context, &slots[0]->view, &slots[1]->view,
                         slots[2] != NULL ? &slots[2]->view : NULL, hyper);
}

int neap_global_norm(int n, const double *ids, double *norm) {
  if (n < 0 || (n > 0 && ids == NULL) || norm == NULL) {
    return neap__error(NEAP_ERR_INVALID,
                       "global_norm: expected tensors and a place for the result");
  }
  double sum = 0;
  int64_t most = 0;
  int device = -1;
  for (int i = 0; i < n; i++) {
    neap__slot *slot = neap__slot_get(ids[i]);
    if (slot == NULL) {
      return NEAP_ERR_STALE;
    }
    if (slot->view.dtype != NEAP_F32 || (device >= 0 && slot->storage->device != device)) {
      return neap__error(NEAP_ERR_INVALID, "global_norm: expected f32 tensors on one device");
    }
    device = slot->storage->device;
    most = slot->view.n_elements > most ? slot->view.n_elements : most;
  }
  neap__storage *scratch;
  size_t blocks = (size_t)((most + NEAP_NORM_BLOCK - 1) / NEAP_NORM_BLOCK);
  int code = neap__scratch(device < 0 ? 0 : device, blocks * sizeof(double), &scratch);
  for (int i = 0; i < n && code >= 0; i++) {
    neap__slot *slot = neap__slot_find(ids[i]);
    neap__device *d = &neap__devices[device];
    double part = 0;
    if (slot->view.n_elements > 0 && d->backend->computes) {
      code = d->backend->sum_squares(d->context, &slot->view, scratch->data, &part);
    }
    sum += part;
  }
  neap__storage_unref(scratch);
  if (code >= 0) {
    *norm = sqrt(sum);
  }
  return code;
}
