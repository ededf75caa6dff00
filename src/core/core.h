/* Inside src/core: devices, storages, tensor slots, tapes. Nobody outside the core includes this.
 *
 * Who owns what. A storage is one counted block of device memory, alive while something refers to
 * it: tensor slots (handles), tapes (saved tensors) and gradients on their way. A slot is what a
 * handle names. A tape never refers to slots, but to storages and by id to leaves, so freeing a
 * handle never breaks a backward pass, and a stale handle is always found out.
 */
#ifndef NEAP_CORE_H
#define NEAP_CORE_H

#include "backend.h"
#include "core/host.h"

#define NEAP__UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
  NEAP__MAX_DEVICES = 64,
  NEAP__SLOT_BITS = 20,
  NEAP__SLAB_BITS = 12,
  NEAP__N_SLABS = 1 << (NEAP__SLOT_BITS - NEAP__SLAB_BITS),
  NEAP__ALIGN = 64,
  NEAP__MAX_OPS = 256
};

/* where the program is: an interned name, 0 for none (place.c) */
extern int neap__place;
const char *neap__place_name(int place); /* "" for none */

/* ---- heap: blocks cut out of segments that the backend gave (heap.c) ---- */

typedef struct neap__block neap__block;
struct neap__block {
  char *data;
  size_t bytes;
  neap__block *before, *after;        /* neighbours in the segment */
  neap__block *free_prev, *free_next; /* list of its size class */
  uint32_t is_free, is_first;         /* is_first: the segment starts here */
};

enum { NEAP__N_CLASSES = 64 * 8 };

typedef struct neap__heap {
  neap__block *lists[NEAP__N_CLASSES];
  uint64_t level_map;    /* levels with a free block */
  uint8_t class_map[64]; /* classes with a free block, by level */
  size_t reserved_bytes, free_bytes;
  int64_t n_segment_allocs;
} neap__heap;

typedef struct neap__device {
  const neap_backend *backend;
  void *context;
  uint32_t generation;
  int is_open;
  neap__heap heap;
  size_t live_bytes, size_bytes; /* size 0: unknown or unlimited */
  int64_t budget_bytes;          /* negative: none */
  int64_t n_allocs, n_tensors;
  size_t tag_live[NEAP_N_TAGS], tag_at_peak[NEAP_N_TAGS];
  size_t peak[NEAP_N_METERS];
} neap__device;

/* NULL with the error set when not open. */
neap__device *neap__device_get(int device);
extern neap__device neap__devices[NEAP__MAX_DEVICES];
int neap__device_id(int slot);

/* A block for `used` bytes, rounded up (and a gap where the backend guards its memory). */
neap__block *neap__heap_alloc(neap__device *device, size_t used);
void neap__heap_free(neap__device *device, neap__block *block);
void neap__heap_trim(neap__device *device);

/* ---- memory (memory.c) ---- */

typedef struct neap__storage {
  void *data;
  neap__block *block;
  size_t bytes; /* counted: rounded up to 64 */
  uint64_t id;
  int32_t refs;
  uint32_t version;
  int16_t device, tag; /* device: index into neap__devices */
  int32_t is_phantom;  /* a shape without memory: its recomputation was not needed */
  int32_t is_buffer;   /* what a recomputation must not write twice */
  int32_t write_place; /* where it was written in place last, and by what */
  const char *writer;
  uint64_t op; /* number of the traced op that made it, 0: none */
} neap__storage;

typedef struct neap__slot neap__slot;

extern int neap__tag;
int neap__storage_new(int device_slot, size_t bytes, int tag, neap__storage **out);
/* No bytes and no address; ops may pass it on, nothing may look into it. */
int neap__storage_phantom(int device_slot, int tag, neap__storage **out);
/* RECOMPUTE for a phantom: who wanted to look. */
int neap__phantom_error(const char *who);
/* Before an in-place write: the version rises, the writer is on record. who: a static text. The
 * first call may fail, then nothing may be written; the second is for what no region writes. */
int neap__write_begin(neap__slot *slot, const char *who);
void neap__write_note(neap__storage *storage, const char *who);
/* " by fill in stage 'x'", or "" when nobody knows. */
const char *neap__written_text(const neap__storage *storage, char text[160]);
void neap__storage_unref(neap__storage *storage);
size_t neap__round(size_t bytes);
/* Scratch: counted under its tag, freed when the op returns. *out NULL for 0 bytes. */
int neap__scratch(int device_slot, size_t bytes, neap__storage **out);

/* ---- tensors (tensor.c) ---- */

struct neap__slot {
  uint32_t generation; /* odd: alive */
  int32_t index;
  neap_view view;
  neap__storage *storage;
  /* list of the scope it belongs to; scope 0 = nobody's */
  int32_t scope, scope_prev, scope_next;
  /* history: what made it. tape 0: nothing. edge >= 0: value of the tape; <= -2: start -2 - edge */
  int32_t tape, node, edge;
  uint64_t serial;
  /* leaf */
  int32_t requires_grad, leaf_start;
  uint64_t leaf_epoch;
  double grad;
  int32_t of_gradient; /* it is a leaf's gradient, or was computed from one */
};

extern neap__slot *neap__slabs[NEAP__N_SLABS];
extern int neap__n_slots;

/* The slot a handle names, or NULL (no error text is set). */
static inline neap__slot *neap__slot_find(double id) {
  if (!(id >= 1.0 && id < 9007199254740992.0)) {
    return NULL;
  }
  uint64_t n = (uint64_t)id;
  int index = (int)(n & ((1u << NEAP__SLOT_BITS) - 1));
  if ((double)n != id || index >= neap__n_slots) {
    return NULL;
  }
  neap__slot *slot = &neap__slabs[index >> NEAP__SLAB_BITS][index & ((1 << NEAP__SLAB_BITS) - 1)];
  return slot->generation == (uint32_t)(n >> NEAP__SLOT_BITS) && (slot->generation & 1) ? slot
                                                                                        : NULL;
}

static inline double neap__slot_id(const neap__slot *slot) {
  return (double)slot->index + (double)slot->generation * (double)(1 << NEAP__SLOT_BITS);
}

neap__slot *neap__slot_get(double id); /* NULL with the error STALE set */
/* A live slot that takes over one reference of storage; NULL (reference kept by the caller) on
 * error. */
neap__slot *neap__slot_new(neap__storage *storage, const neap_view *view);
void neap__slot_free(neap__slot *slot);
size_t neap__dtype_bytes(int dtype);
const char *neap__dtype_name(int dtype);
/* n_elements and bytes of dims, checked. */
int neap__view_set(neap_view *view, int dtype, int n_dims, const double *dims);
size_t neap__view_bytes(const neap_view *view);
/* "(2, 3)" into a buffer, for messages. */
const char *neap__dims_text(const neap_view *view, char text[96]);

/* ---- op rules (rule_*.c) ---- */

typedef struct neap__rule {
  const char *name;
  const neap_view *in[NEAP_MAX_INPUTS];
  const double *attrs;
  int n_inputs;
  uint32_t needs_grad; /* bit i: input i needs a gradient */
  /* what the rule says */
  neap_view out[NEAP_MAX_OUTPUTS]; /* data unset */
  int n_outputs, n_visible;        /* visible ones first; the rest are for backward only */
  uint32_t save_in, save_out;
  uint32_t alias;      /* inputs whose gradient is grad_out[0] itself */
  uint32_t reuse_grad; /* grad_in[0] may be written over grad_out[0] */
  uint32_t reuse_in;   /* grad_in[0] may be written over the saved in[0] */
  uint32_t is_view, draws;
  int64_t view_first; /* first element of in[0] that a view shows */
  size_t forward_scratch, backward_scratch;
  double forward_flops, backward_flops;
} neap__rule;

typedef int (*neap__rule_fn)(neap__rule *rule);

typedef struct neap__op {
  const char *name;
  neap__rule_fn rule; /* NULL: a Lua op */
  int32_t kernel;     /* NEAP_OP_* whose kernels it uses; -1: a Lua op */
  int32_t least, most, n_attrs, n_outputs;
} neap__op;

extern neap__op neap__ops[NEAP__MAX_OPS];
extern int neap__n_ops;
void neap__ops_init(void);

int neap__fail_shape(const neap__rule *rule, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void neap__out_like(neap__rule *rule, int k, const neap_view *view);
void neap__out_dims(neap__rule *rule, int k, int n_dims, const int64_t *dims);

/* ---- tapes (tape.c, record.c, backward.c) ---- */

typedef struct neap__value {
  neap_view view;       /* data NULL unless saved */
  neap__storage *saved; /* one reference, or NULL */
  neap__storage *grad;  /* outputs: gradient on its way; one reference */
  int64_t grad_offset;  /* bytes */
  uint32_t version;
  int32_t edge; /* inputs: where the gradient goes. -1: nowhere */
} neap__value;

typedef struct neap__node {
  int32_t op, first; /* values: n_inputs inputs, n_outputs outputs, n_extra more saved ones */
  uint8_t n_inputs, n_outputs, n_extra, alias;
  uint8_t reuse_grad, reuse_in, served, device;
  int32_t n_refs; /* live handles of its outputs + later nodes that use them + marks */
  int32_t place;  /* where it ran */
  int32_t trace;  /* a region's: freed with the node; 0: none */
  size_t backward_scratch;
  double backward_flops;
  uint64_t serial;
  int64_t view_first;
  neap_rng rng;
  double attrs[NEAP_MAX_ATTRS];
} neap__node;

typedef struct neap__start {
  neap_view view;
  double leaf; /* id of the leaf, 0 for an input */
  neap__storage *grad;
  int64_t grad_offset;
  int32_t wants, device;
  uint32_t version; /* of an input when it came in */
} neap__start;

typedef struct neap__mark {
  neap_view view;
  int32_t edge;
} neap__mark;

typedef struct neap__tape {
  int32_t id, is_open, walking;
  int32_t is_weak; /* of a trace: knows what would be saved, holds nothing */
  uint32_t generation;
  uint64_t epoch; /* changes when the starts change meaning */
  neap__node *nodes;
  neap__value *values;
  neap__start *starts;
  neap__mark *outputs;
  int32_t *inputs; /* input k -> start */
  int n_nodes, n_values, n_starts, n_outputs, n_inputs;
  int cap_nodes, cap_values, cap_starts, cap_outputs, cap_inputs;
} neap__tape;

extern neap__tape *neap__selected;
neap__tape *neap__tape_get(int id); /* NULL with the error set */
/* The slot's edge on the tape: -1 when it has none there; GRAPH when its history is elsewhere. */
int neap__edge(neap__tape *tape, neap__slot *slot, int *edge);
int neap__slot_has_history(const neap__slot *slot);
/* The handle is going: its node has one reference less; a tail nobody needs is dropped. */
void neap__history_drop(neap__slot *slot);
void neap__tape_pop(neap__tape *tape);
void neap__tape_clear(neap__tape *tape);
/* Appends a node for an op that ran. */
int neap__record(neap__tape *tape, int op, const neap__rule *rule, neap__slot *const *in,
                 neap__slot *const *out, neap__storage *const *aux, const int *edges,
                 const neap_rng *rng);

/* ---- randomness (rng.c) ---- */

void neap__rng_draw(neap_rng *rng, int op, const neap_view *view);
void neap__rng_undo(void); /* the draw did not happen */
uint64_t neap__rng_key(double seed, double stream);

void neap__count_backward(int op, double flops, double bytes);

#endif
