/* What a trace is made of; for trace*.c alone. */
#ifndef NEAP_TRACES_H
#define NEAP_TRACES_H

#include "core/trace.h"

/* One op of a first forward. */
typedef struct neap__entry {
  neap_view out; /* of output 0; the data in it means nothing */
  int32_t op, first_ref;
  uint8_t n_inputs, recorded, is_view, draws;
  uint8_t save_in, save_out;
  uint8_t needed, computes, keeps;
} neap__entry;

/* One input of it. */
typedef struct neap__ref {
  int32_t made_by;  /* entry, -1: it was there before */
  uint32_t version; /* of that storage then */
  uint64_t storage;
} neap__ref;

/* An output that the recomputation takes over instead of computing it. */
typedef struct neap__held {
  int32_t entry, output;
  uint32_t version;
  neap__storage *storage;
} neap__held;

/* A saved tensor's contents in the first forward, for the value check. */
typedef struct neap__copy {
  int32_t entry, value; /* value: inputs first, then outputs */
  uint32_t version;
  uint64_t of;
  neap_view view; /* of what was copied; its data is the place in the original */
  neap__storage *storage;
} neap__copy;

/* A buffer that the region wrote; the storage that it does not have at the moment. */
typedef struct neap__snapshot {
  double id;
  neap__storage *storage;
  void *data;
} neap__snapshot;

typedef struct neap__argument {
  double id;
  uint32_t version;
} neap__argument;

enum { NEAP__TRACE_IDLE, NEAP__TRACE_RECORDING, NEAP__TRACE_READY };

typedef struct neap__trace neap__trace;
struct neap__trace {
  int32_t id, is_open, state, check, snapshots_buffers;
  uint32_t generation;
  int32_t tape; /* weak while recording, the recomputation's while followed */
  int32_t is_followed, early, lost, next, next_copy;
  uint64_t first_op;
  neap__entry *entries;
  neap__ref *refs;
  neap__held *held;
  neap__copy *copies;
  neap__snapshot *snapshots;
  neap__argument *arguments;
  int32_t *keep_at;
  int n_entries, n_refs, n_held, n_copies, n_snapshots, n_arguments, n_keep_at;
  int cap_entries, cap_refs, cap_held, cap_copies, cap_snapshots, cap_arguments, cap_keep_at;
  uint64_t keep_ops[NEAP__MAX_OPS / 64];
  neap__trace *outer, *outer_followed;
};

extern neap__trace *neap__trace_open, *neap__trace_followed;

neap__trace *neap__trace_get(int id); /* NULL with the error set */
/* neap__traces_active is right again. */
void neap__trace_active_set(void);
/* What the followed trace says about an op that is about to run. */
int neap__trace_op(neap__traced *traced, int op, const neap__rule *rule, neap__slot *const *in,
                   int records);
/* Whether an input was left out by the recomputation. */
int neap__any_phantom(const neap__rule *rule, neap__slot *const *in);
/* A counted copy of what the view shows. */
int neap__trace_copy(const neap__storage *from, const neap_view *view, int tag,
                     neap__storage **out);
/* Not open and not followed any more. */
void neap__trace_forget(neap__trace *t);
/* Gives back all that it holds; what to keep and the arguments stay. */
void neap__trace_clear(neap__trace *t);
/* Drops the copies made for this entry and later ones (trace_check.c). */
void neap__trace_copies_cut(neap__trace *t, int entry);
/* Buffers get what they held in the first forward, or, called again, what they hold now. */
void neap__trace_swap(neap__trace *t);

#endif
