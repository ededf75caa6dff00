/* Counts every byte of device memory where it is allocated: live, by tag, high-water marks, a hard
 * budget. The budget and all predictions are about live bytes; cached free blocks are reserved, not
 * live, and are given back before an allocation is refused.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/trace.h"

int neap__tag = NEAP_TAG_ACTIVATIONS;

static const char *const tag_names[NEAP_N_TAGS] = {
    "parameters",  "buffers",   "gradients", "optimizer", "batch",
    "activations", "recompute", "scratch",   "workspace", "check"};

static neap__storage *spare_storages;
static uint64_t next_storage_id;

const char *neap_tag_name(int tag) {
  return tag >= 0 && tag < NEAP_N_TAGS ? tag_names[tag] : NULL;
}

int neap_tag_select(int tag) {
  int previous = neap__tag;
  if (tag < 0 || tag >= NEAP_N_TAGS) {
    return neap__error(NEAP_ERR_INVALID, "tag: expected 0..%d, found %d", NEAP_N_TAGS - 1, tag);
  }
  neap__tag = tag;
  return previous;
}

size_t neap__round(size_t bytes) {
  return (bytes + NEAP__ALIGN - 1) / NEAP__ALIGN * NEAP__ALIGN;
}

static size_t work_live(const neap__device *d) {
  return d->tag_live[NEAP_TAG_ACTIVATIONS] + d->tag_live[NEAP_TAG_RECOMPUTE] +
         d->tag_live[NEAP_TAG_SCRATCH] + d->tag_live[NEAP_TAG_WORKSPACE];
}

static int refuse(const neap__device *d, size_t asked, const char *why) {
  char tags[512];
  size_t at = 0;
  tags[0] = '\0';
  for (int i = 0; i < NEAP_N_TAGS && at < sizeof tags; i++) {
    if (d->tag_live[i] > 0) {
      at += (size_t)snprintf(tags + at, sizeof tags - at, "%s%s %zu", at > 0 ? ", " : "",
                             tag_names[i], d->tag_live[i]);
    }
  }
  char limit[64] = "no budget";
  if (d->budget_bytes >= 0) {
    snprintf(limit, sizeof limit, "budget %lld", (long long)d->budget_bytes);
  } else if (d->size_bytes > 0) {
    snprintf(limit, sizeof limit, "size %zu", d->size_bytes);
  }
  return neap__error(NEAP_ERR_MEMORY,
                     "out of memory on %s: %s; asked %zu bytes, live %zu (%s), peak %zu, %s, "
                     "reserved %zu",
                     d->backend->name, why, asked, d->live_bytes, tags, d->peak[NEAP_METER_RUN],
                     limit, d->heap.reserved_bytes);
}

static neap__storage *storage_header(void) {
  if (spare_storages == NULL) {
    enum { N = 256 };
    neap__storage *slab = neap__host_alloc(N * sizeof *slab); /* kept for the life of the process */
    if (slab == NULL) {
      return NULL;
    }
    for (int i = 0; i < N; i++) {
      slab[i].block = (neap__block *)spare_storages;
      spare_storages = &slab[i];
    }
  }
  neap__storage *storage = spare_storages;
  spare_storages = (neap__storage *)storage->block;
  return storage;
}

static void count_up(neap__device *d, size_t bytes, int tag) {
  d->live_bytes += bytes;
  d->tag_live[tag] += bytes;
  d->n_allocs++;
  for (int i = 0; i <= NEAP_METER_ACTION; i++) {
    if (d->live_bytes > d->peak[i]) {
      d->peak[i] = d->live_bytes;
      if (i == NEAP_METER_STEP) {
        memcpy(d->tag_at_peak, d->tag_live, sizeof d->tag_at_peak);
      }
    }
  }
  size_t work = work_live(d);
  d->peak[NEAP_METER_WORK] = work > d->peak[NEAP_METER_WORK] ? work : d->peak[NEAP_METER_WORK];
}

static void storage_fill(neap__storage *storage, int device_slot, int tag) {
  storage->id = ++next_storage_id;
  storage->refs = 1;
  storage->version = 0;
  storage->device = (int16_t)device_slot;
  storage->tag = (int16_t)tag;
  storage->is_phantom = storage->write_place = 0;
  storage->is_buffer = tag == NEAP_TAG_BUFFERS;
  storage->writer = NULL;
  storage->op = 0;
}

int neap__storage_new(int device_slot, size_t bytes, int tag, neap__storage **out) {
  neap__device *d = &neap__devices[device_slot];
  if (bytes > SIZE_MAX / 4) {
    return neap__error(NEAP_ERR_OVERFLOW, "%zu bytes are more than a tensor can have", bytes);
  }
  size_t rounded = neap__round(bytes);
  if (NEAP__UNLIKELY(neap__host_fails())) {
    return refuse(d, rounded, "the allocation was made to fail");
  }
  if (d->budget_bytes >= 0 && d->live_bytes + rounded > (size_t)d->budget_bytes) {
    return refuse(d, rounded, "the budget is exceeded");
  }
  if (d->size_bytes > 0 && d->live_bytes + rounded > d->size_bytes) {
    return refuse(d, rounded, "the device is full");
  }
  neap__storage *storage = storage_header();
  if (storage == NULL) {
    return refuse(d, rounded, "no host memory for its header");
  }
  storage->block = rounded > 0 ? neap__heap_alloc(d, bytes) : NULL;
  if (rounded > 0 && storage->block == NULL) {
    storage->block = (neap__block *)spare_storages;
    spare_storages = storage;
    return refuse(d, rounded, "the device gave no memory");
  }
  storage->data = rounded > 0 ? storage->block->data : NULL;
  storage->bytes = rounded;
  storage_fill(storage, device_slot, tag);
  count_up(d, rounded, tag);
  *out = storage;
  return NEAP_OK;
}

int neap__storage_phantom(int device_slot, int tag, neap__storage **out) {
  neap__storage *storage = neap__host_fails() ? NULL : storage_header();
  if (storage == NULL) {
    return refuse(&neap__devices[device_slot], 0, "no host memory for a tensor's header");
  }
  storage->block = NULL;
  storage->data = NULL;
  storage->bytes = 0;
  storage_fill(storage, device_slot, tag);
  storage->is_phantom = 1;
  *out = storage;
  return NEAP_OK;
}

int neap__phantom_error(const char *who) {
  return neap__error(NEAP_ERR_RECOMPUTE,
                     "%s: it looks at a tensor that this recomputation did not make again, because "
                     "the first forward never looked at it",
                     who);
}

void neap__write_note(neap__storage *storage, const char *who) {
  storage->version++;
  storage->writer = who;
  storage->write_place = neap__place;
}

const char *neap__written_text(const neap__storage *storage, char text[160]) {
  text[0] = '\0';
  if (storage->writer != NULL) {
    const char *place = neap__place_name(storage->write_place);
    snprintf(text, 160, " by %s%s%s", storage->writer, place[0] != '\0' ? " in " : "", place);
  }
  return text;
}

int neap__write_begin(neap__slot *slot, const char *who) {
  int code = neap__traces_active ? neap__trace_write(slot) : NEAP_OK;
  if (code >= 0) {
    neap__write_note(slot->storage, who);
  }
  return code;
}

void neap__storage_unref(neap__storage *storage) {
  if (storage == NULL || --storage->refs > 0) {
    return;
  }
  neap__device *d = &neap__devices[storage->device];
  d->live_bytes -= storage->bytes;
  d->tag_live[storage->tag] -= storage->bytes;
  if (storage->block != NULL) {
    neap__heap_free(d, storage->block);
  }
  storage->block = (neap__block *)spare_storages;
  spare_storages = storage;
}

int neap_tensor_retag(double id, int tag) {
  neap__slot *slot = neap__slot_get(id);
  if (slot == NULL) {
    return NEAP_ERR_STALE;
  }
  if (tag < 0 || tag >= NEAP_N_TAGS) {
    return neap__error(NEAP_ERR_INVALID, "tag: expected 0..%d, found %d", NEAP_N_TAGS - 1, tag);
  }
  neap__storage *storage = slot->storage;
  neap__device *d = &neap__devices[storage->device];
  d->tag_live[storage->tag] -= storage->bytes;
  d->tag_live[tag] += storage->bytes;
  storage->tag = (int16_t)tag;
  return NEAP_OK;
}

int neap__scratch(int device_slot, size_t bytes, neap__storage **out) {
  *out = NULL;
  return bytes == 0 ? NEAP_OK : neap__storage_new(device_slot, bytes, NEAP_TAG_SCRATCH, out);
}

int neap_memory_get(int device, neap_memory_stats *out) {
  neap__device *d = neap__device_get(device);
  if (d == NULL || out == NULL) {
    return d == NULL ? NEAP_ERR_DEVICE : neap__error(NEAP_ERR_INVALID, "memory_get: no result");
  }
  out->live_bytes = (double)d->live_bytes;
  out->reserved_bytes = (double)d->heap.reserved_bytes;
  out->cached_bytes = (double)(d->heap.reserved_bytes - d->live_bytes);
  out->budget_bytes = (double)d->budget_bytes;
  out->size_bytes = d->size_bytes > 0 ? (double)d->size_bytes : -1.0;
  size_t free_bytes, total_bytes;
  if (d->backend->memory_info != NULL &&
      d->backend->memory_info(d->context, &free_bytes, &total_bytes) == NEAP_OK) {
    out->size_bytes = (double)total_bytes;
  }
  out->n_allocations = (double)d->n_allocs;
  out->n_device_allocations = (double)d->heap.n_segment_allocs;
  out->n_tensors = (double)d->n_tensors;
  for (int i = 0; i < NEAP_N_TAGS; i++) {
    out->tag_live_bytes[i] = (double)d->tag_live[i];
    out->tag_at_peak_bytes[i] = (double)d->tag_at_peak[i];
  }
  for (int i = 0; i < NEAP_N_METERS; i++) {
    out->peak_bytes[i] = (double)d->peak[i];
  }
  return NEAP_OK;
}

double neap_memory_available(int device) {
  neap__device *d = neap__device_get(device);
  if (d == NULL) {
    return NEAP_ERR_DEVICE;
  }
  size_t free_bytes, total_bytes;
  if (d->size_bytes > 0) {
    return (double)(d->size_bytes - d->live_bytes);
  }
  if (d->backend->memory_info == NULL ||
      d->backend->memory_info(d->context, &free_bytes, &total_bytes) < 0) {
    return neap__error(NEAP_ERR_UNSUPPORTED, "device %s does not tell its free memory",
                       d->backend->name);
  }
  return (double)free_bytes;
}

int neap_memory_restart(int device, int meter) {
  neap__device *d = neap__device_get(device);
  if (d == NULL) {
    return NEAP_ERR_DEVICE;
  }
  if (meter < 0 || meter >= NEAP_N_METERS) {
    return neap__error(NEAP_ERR_INVALID, "memory meter: expected 0..%d, found %d",
                       NEAP_N_METERS - 1, meter);
  }
  d->peak[meter] = meter == NEAP_METER_WORK ? work_live(d) : d->live_bytes;
  if (meter == NEAP_METER_STEP) {
    memcpy(d->tag_at_peak, d->tag_live, sizeof d->tag_at_peak);
  }
  return NEAP_OK;
}

double neap_memory_peak(int device, int meter) {
  neap__device *d = neap__device_get(device);
  if (d == NULL) {
    return NEAP_ERR_DEVICE;
  }
  if (meter < 0 || meter >= NEAP_N_METERS) {
    return neap__error(NEAP_ERR_INVALID, "memory meter: expected 0..%d, found %d",
                       NEAP_N_METERS - 1, meter);
  }
  return (double)d->peak[meter];
}

double neap_memory_live(int device) {
  neap__device *d = neap__device_get(device);
  return d == NULL ? NEAP_ERR_DEVICE : (double)d->live_bytes;
}

int neap_memory_budget(int device, double bytes) {
  neap__device *d = neap__device_get(device);
  if (d == NULL) {
    return NEAP_ERR_DEVICE;
  }
  if (isnan(bytes) || bytes > 9e15) {
    return neap__error(NEAP_ERR_INVALID, "budget: expected bytes up to 9e15, found %g", bytes);
  }
  d->budget_bytes = bytes < 0 ? -1 : (int64_t)bytes;
  return NEAP_OK;
}

int neap_memory_trim(int device) {
  neap__device *d = neap__device_get(device);
  if (d == NULL) {
    return NEAP_ERR_DEVICE;
  }
  neap__heap_trim(d);
  return NEAP_OK;
}
