/* Cached free memory of one device: good-fit allocation with immediate coalescing, after the TLSF
 * of Masmano et al. (2004): a free list a size class (8 classes an octave), two bitmaps, no search.
 * Block headers live on the host, so device memory is never touched. Large segments are asked of
 * the backend and cut up; a segment that is free as a whole is given back by trim.
 */
#include <string.h>

#include "core/core.h"

enum { CLASS_BITS = 3, N_SUB = 1 << CLASS_BITS, SEGMENT_UNIT = 2 << 20, SEGMENT_MOST = 64 << 20 };

static neap__block *spare_headers;

static neap__block *header_new(void) {
  if (spare_headers == NULL) {
    enum { N = 128 };
    neap__block *slab = neap__host_alloc(N * sizeof *slab); /* kept for the life of the process */
    if (slab == NULL) {
      return NULL;
    }
    for (int i = 0; i < N; i++) {
      slab[i].free_next = spare_headers;
      spare_headers = &slab[i];
    }
  }
  neap__block *header = spare_headers;
  spare_headers = header->free_next;
  memset(header, 0, sizeof *header);
  return header;
}

static void header_free(neap__block *header) {
  header->free_next = spare_headers;
  spare_headers = header;
}

/* class of a size in units of 64 bytes: octave and eighth of it; sizes below 8 units have their own
 */
static int class_of(size_t bytes) {
  uint64_t units = bytes / NEAP__ALIGN;
  if (units < N_SUB) {
    return (int)units;
  }
  int top = 63 - __builtin_clzll(units);
  return (top - CLASS_BITS + 1) * N_SUB + (int)((units >> (top - CLASS_BITS)) & (N_SUB - 1));
}

static void list_push(neap__heap *heap, neap__block *block) {
  int class = class_of(block->bytes);
  block->is_free = 1;
  block->free_prev = NULL;
  block->free_next = heap->lists[class];
  if (block->free_next != NULL) {
    block->free_next->free_prev = block;
  }
  heap->lists[class] = block;
  heap->level_map |= 1ull << (class / N_SUB);
  heap->class_map[class / N_SUB] |= (uint8_t)(1u << (class % N_SUB));
  heap->free_bytes += block->bytes;
}

static void list_remove(neap__heap *heap, neap__block *block) {
  int class = class_of(block->bytes);
  if (block->free_prev != NULL) {
    block->free_prev->free_next = block->free_next;
  } else {
    heap->lists[class] = block->free_next;
  }
  if (block->free_next != NULL) {
    block->free_next->free_prev = block->free_prev;
  }
  if (heap->lists[class] == NULL) {
    heap->class_map[class / N_SUB] &= (uint8_t) ~(1u << (class % N_SUB));
    if (heap->class_map[class / N_SUB] == 0) {
      heap->level_map &= ~(1ull << (class / N_SUB));
    }
  }
  block->is_free = 0;
  heap->free_bytes -= block->bytes;
}

/* the own class may hold a block that fits; every higher class holds only such blocks */
static neap__block *list_find(neap__heap *heap, size_t bytes) {
  int class = class_of(bytes);
  neap__block *best = NULL;
  int looked = 0;
  for (neap__block *b = heap->lists[class]; b != NULL && looked < 16; b = b->free_next, looked++) {
    if (b->bytes >= bytes && (best == NULL || b->bytes < best->bytes)) {
      best = b;
    }
  }
  if (best != NULL) {
    return best;
  }
  int level = class / N_SUB;
  uint32_t subs = heap->class_map[level] & (0xFEu << (class % N_SUB));
  if (subs == 0) {
    uint64_t levels = level >= 63 ? 0 : heap->level_map & (~0ull << (level + 1));
    if (levels == 0) {
      return NULL;
    }
    level = __builtin_ctzll(levels);
    subs = heap->class_map[level];
  }
  return heap->lists[level * N_SUB + __builtin_ctz(subs)];
}

/* a new segment as one free block; larger ones as the device fills, so that small models stay small
 */
static neap__block *segment_new(neap__device *device, size_t bytes) {
  size_t exact = (bytes + SEGMENT_UNIT - 1) / SEGMENT_UNIT * SEGMENT_UNIT;
  size_t wanted = device->heap.reserved_bytes / 2 / SEGMENT_UNIT * SEGMENT_UNIT;
  wanted = wanted > SEGMENT_MOST ? SEGMENT_MOST : wanted;
  wanted = wanted < exact ? exact : wanted;
  if (exact < bytes) {
    return NULL;
  }
  neap__block *block = header_new();
  if (block == NULL) {
    return NULL;
  }
  void *data = NULL;
  if (device->backend->alloc(device->context, wanted, &data) < 0) {
    neap__heap_trim(device);
    wanted = exact;
    if (device->backend->alloc(device->context, wanted, &data) < 0) {
      header_free(block);
      return NULL;
    }
  }
  if (device->backend->guard != NULL) {
    device->backend->guard(device->context, data, 0, wanted);
  }
  device->heap.n_segment_allocs++;
  device->heap.reserved_bytes += wanted;
  block->data = data;
  block->bytes = wanted;
  block->is_first = 1;
  return block;
}

neap__block *neap__heap_alloc(neap__device *device, size_t used) {
  neap__heap *heap = &device->heap;
  size_t bytes = neap__round(used) + (device->backend->guard != NULL ? NEAP__ALIGN : 0);
  neap__block *block = list_find(heap, bytes);
  if (block != NULL) {
    list_remove(heap, block);
  } else {
    block = segment_new(device, bytes);
    if (block == NULL) {
      return NULL;
    }
  }
  if (block->bytes > bytes) {
    neap__block *rest = header_new();
    if (rest == NULL) {
      neap__heap_free(device, block);
      return NULL;
    }
    rest->data = block->data + bytes;
    rest->bytes = block->bytes - bytes;
    rest->before = block;
    rest->after = block->after;
    if (rest->after != NULL) {
      rest->after->before = rest;
    }
    block->after = rest;
    block->bytes = bytes;
    list_push(heap, rest);
  }
  if (device->backend->guard != NULL) {
    device->backend->guard(device->context, block->data, used, block->bytes);
  }
  return block;
}

static neap__block *merge(neap__block *left, neap__block *right) {
  left->bytes += right->bytes;
  left->after = right->after;
  if (left->after != NULL) {
    left->after->before = left;
  }
  header_free(right);
  return left;
}

void neap__heap_free(neap__device *device, neap__block *block) {
  neap__heap *heap = &device->heap;
  if (device->backend->guard != NULL) {
    device->backend->guard(device->context, block->data, 0, block->bytes);
  }
  if (block->after != NULL && block->after->is_free) {
    list_remove(heap, block->after);
    block = merge(block, block->after);
  }
  if (block->before != NULL && block->before->is_free) {
    list_remove(heap, block->before);
    block = merge(block->before, block);
  }
  list_push(heap, block);
}

void neap__heap_trim(neap__device *device) {
  neap__heap *heap = &device->heap;
  for (int class = 0; class < NEAP__N_CLASSES; class ++) {
    for (neap__block *block = heap->lists[class], *next; block != NULL; block = next) {
      next = block->free_next;
      if (block->is_first && block->after == NULL) {
        list_remove(heap, block);
        heap->reserved_bytes -= block->bytes;
        device->backend->free(device->context, block->data, block->bytes);
        header_free(block);
      }
    }
  }
}
