/* The registry of opened devices. An id carries a generation, so a closed device is found out. */
#include <string.h>

#include "core/core.h"

extern const neap_backend neap__cpu_backend, neap__null_backend;

neap__device neap__devices[NEAP__MAX_DEVICES];

static const neap_backend *const backends[] = {&neap__cpu_backend, &neap__null_backend};
enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

const char *neap_backend_name(int index) {
  return index >= 0 && index < (int)N_BACKENDS ? backends[index]->name : NULL;
}

int neap__device_id(int slot) {
  return slot + (int)(neap__devices[slot].generation * NEAP__MAX_DEVICES);
}

neap__device *neap__device_get(int device) {
  if (device >= 0) {
    neap__device *d = &neap__devices[device % NEAP__MAX_DEVICES];
    if (d->is_open && neap__device_id(device % NEAP__MAX_DEVICES) == device) {
      return d;
    }
  }
  neap__error(NEAP_ERR_DEVICE, "device %d is not open", device);
  return NULL;
}

int neap_device_open(const char *name, double size_bytes, int *device) {
  const neap_backend *backend = NULL;
  if (name == NULL || device == NULL || !(size_bytes >= 0 && size_bytes < 9e15)) {
    return neap__error(NEAP_ERR_INVALID,
                       "device: expected a backend's name and a size of 0 or more");
  }
  for (int i = 0; i < (int)N_BACKENDS; i++) {
    backend = strcmp(backends[i]->name, name) == 0 ? backends[i] : backend;
  }
  if (backend == NULL) {
    return neap__error(NEAP_ERR_DEVICE, "device: there is no backend '%s'", name);
  }
  if (backend->abi != NEAP_BACKEND_ABI) {
    return neap__error(NEAP_ERR_DEVICE, "device: backend '%s' has ABI %u, this library expects %d",
                       name, backend->abi, NEAP_BACKEND_ABI);
  }
  int slot = 0;
  while (slot < NEAP__MAX_DEVICES && neap__devices[slot].is_open) {
    slot++;
  }
  if (slot == NEAP__MAX_DEVICES) {
    return neap__error(NEAP_ERR_DEVICE, "device: %d devices are open already; close one",
                       NEAP__MAX_DEVICES);
  }
  neap__device *d = &neap__devices[slot];
  uint32_t generation = (d->generation + 1) & 0xFFFFFF;
  void *context = NULL;
  int code = backend->open != NULL ? backend->open(&context) : NEAP_OK;
  if (code < 0) {
    return code;
  }
  memset(d, 0, sizeof *d);
  d->backend = backend;
  d->context = context;
  d->generation = generation;
  d->is_open = 1;
  d->budget_bytes = -1;
  d->size_bytes = backend->computes ? 0 : (size_t)size_bytes;
  *device = neap__device_id(slot);
  return NEAP_OK;
}

int neap_device_close(int device) {
  neap__device *d = neap__device_get(device);
  if (d == NULL) {
    return NEAP_ERR_DEVICE;
  }
  if (d->live_bytes > 0 || d->n_tensors > 0) {
    return neap__error(NEAP_ERR_STATE,
                       "device %s: cannot close, %lld tensors (%zu bytes) are alive",
                       d->backend->name, (long long)d->n_tensors, d->live_bytes);
  }
  neap__heap_trim(d);
  if (d->backend->close != NULL) {
    d->backend->close(d->context);
  }
  d->is_open = 0;
  return NEAP_OK;
}

const char *neap_device_name(int device) {
  neap__device *d = neap__device_get(device);
  return d == NULL ? NULL : d->backend->name;
}

int neap_device_computes(int device) {
  neap__device *d = neap__device_get(device);
  return d == NULL ? NEAP_ERR_DEVICE : d->backend->computes;
}
