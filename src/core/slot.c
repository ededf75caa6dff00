/* Slots: what handles name. Scopes: lists of slots that are freed together.
 *
 * A handle is slot + generation * 2^20; the generation rises when a slot is taken and when it is
 * freed, so a stale handle never matches. Slabs never move, so a slot's address is good while it
 * lives.
 */
#include <stdio.h>
#include <string.h>

#include "core/core.h"

neap__slot *neap__slabs[NEAP__N_SLABS];
int neap__n_slots;

static int free_head = -1; /* free slots, linked by scope_next */
static int *scope_heads;   /* scope d >= 1 has its list at d - 1 */
static int scope_capacity, depth;

static neap__slot *slot_at(int index) {
  return &neap__slabs[index >> NEAP__SLAB_BITS][index & ((1 << NEAP__SLAB_BITS) - 1)];
}

neap__slot *neap__slot_get(double id) {
  neap__slot *slot = neap__slot_find(id);
  if (NEAP__UNLIKELY(slot == NULL)) {
    neap__error(NEAP_ERR_STALE,
                "tensor handle %.17g names no living tensor: it was freed, or its "
                "scope has ended",
                id);
  }
  return slot;
}

static void scope_link(neap__slot *slot, int scope) {
  slot->scope = scope;
  slot->scope_prev = -1;
  slot->scope_next = -1;
  if (scope > 0) {
    int head = scope_heads[scope - 1];
    slot->scope_next = head;
    if (head >= 0) {
      slot_at(head)->scope_prev = slot->index;
    }
    scope_heads[scope - 1] = slot->index;
  }
}

static void scope_unlink(neap__slot *slot) {
  if (slot->scope > 0) {
    if (slot->scope_prev >= 0) {
      slot_at(slot->scope_prev)->scope_next = slot->scope_next;
    } else {
      scope_heads[slot->scope - 1] = slot->scope_next;
    }
    if (slot->scope_next >= 0) {
      slot_at(slot->scope_next)->scope_prev = slot->scope_prev;
    }
  }
  slot->scope = 0;
}

static int slab_add(void) {
  int slab = neap__n_slots >> NEAP__SLAB_BITS;
  size_t n = (size_t)1 << NEAP__SLAB_BITS;
  neap__slot *slots = slab < NEAP__N_SLABS ? neap__host_alloc(n * sizeof *slots) : NULL;
  if (slots == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for more than %d tensors",
                       neap__n_slots);
  }
  memset(slots, 0, n * sizeof *slots);
  neap__slabs[slab] = slots;
  for (int i = (int)n - 1; i >= 0; i--) {
    slots[i].index = neap__n_slots + i;
    slots[i].scope_next = free_head;
    free_head = slots[i].index;
  }
  neap__n_slots += (int)n;
  return NEAP_OK;
}

neap__slot *neap__slot_new(neap__storage *storage, const neap_view *view) {
  if (NEAP__UNLIKELY(free_head < 0) && slab_add() < 0) {
    return NULL;
  }
  neap__slot *slot = slot_at(free_head);
  free_head = slot->scope_next;
  slot->generation++;
  slot->view = *view;
  slot->storage = storage;
  slot->tape = 0;
  slot->edge = -1;
  slot->node = -1;
  slot->requires_grad = 0;
  slot->leaf_epoch = 0;
  slot->grad = 0;
  slot->of_gradient = 0;
  scope_link(slot, depth);
  neap__devices[storage->device].n_tensors++;
  return slot;
}

void neap__slot_free(neap__slot *slot) {
  if (slot->tape != 0) {
    neap__history_drop(slot);
  }
  if (slot->grad != 0) {
    neap_tensor_free(slot->grad);
  }
  scope_unlink(slot);
  neap__devices[slot->storage->device].n_tensors--;
  neap__storage_unref(slot->storage);
  slot->storage = NULL;
  slot->generation++;
  slot->scope_next = free_head;
  free_head = slot->index;
}

int neap_tensor_free(double id) {
  neap__slot *slot = neap__slot_find(id);
  if (slot == NULL) {
    return 1;
  }
  neap__slot_free(slot);
  return 0;
}

int neap_tensor_alive(double id) {
  return neap__slot_find(id) != NULL;
}

int neap_tensor_list(int tag, int capacity, double *ids) {
  if (neap_tag_name(tag) == NULL || (capacity > 0 && ids == NULL)) {
    return neap__error(NEAP_ERR_INVALID,
                       "tensor_list: expected a tag of 0..%d, found %d, and a "
                       "place for the result",
                       NEAP_N_TAGS - 1, tag);
  }
  int n = 0;
  for (int i = 0; i < neap__n_slots; i++) {
    const neap__slot *slot = slot_at(i);
    if ((slot->generation & 1) && slot->storage->tag == tag) {
      if (n < capacity) {
        ids[n] = neap__slot_id(slot);
      }
      n++;
    }
  }
  return n;
}

int neap_scope_begin(void) {
  int code =
      neap__host_grow((void **)&scope_heads, &scope_capacity, depth + 1, sizeof *scope_heads);
  if (code < 0) {
    return code;
  }
  scope_heads[depth++] = -1;
  return depth;
}

int neap_scope_end(int scope, int n_keep, const double *keep) {
  if (scope < 1 || scope > depth || n_keep < 0 || (n_keep > 0 && keep == NULL)) {
    return neap__error(NEAP_ERR_STATE, "scope_end: scope %d is not open (depth is %d)", scope,
                       depth);
  }
  for (int i = 0; i < n_keep; i++) {
    neap__slot *slot = neap__slot_find(keep[i]);
    if (slot != NULL && slot->scope >= scope) {
      scope_unlink(slot);
      scope_link(slot, scope - 1);
    }
  }
  while (depth >= scope) {
    while (scope_heads[depth - 1] >= 0) {
      neap__slot_free(slot_at(scope_heads[depth - 1]));
    }
    depth--;
  }
  return NEAP_OK;
}

int neap_scope_depth(void) {
  return depth;
}

int neap_tensor_scope(double id) {
  neap__slot *slot = neap__slot_get(id);
  return slot == NULL ? NEAP_ERR_STALE : slot->scope;
}

int neap_scope_leave(double id) {
  neap__slot *slot = neap__slot_get(id);
  if (slot == NULL) {
    return NEAP_ERR_STALE;
  }
  scope_unlink(slot);
  return NEAP_OK;
}
