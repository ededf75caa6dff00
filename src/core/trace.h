/* What ops ask before and after they run, while a trace is open or followed (trace.c). */
#ifndef NEAP_TRACE_H
#define NEAP_TRACE_H

#include "core/core.h"

/* What to do with one op. */
typedef struct neap__traced {
  int skips;    /* outputs get a shape and no memory: nothing will look at them */
  int auxes;    /* outputs for backward alone are made, although nothing is saved now */
  int position; /* of the op in the trace that is followed, -1: not in there */
  neap__storage *take[NEAP_MAX_OUTPUTS]; /* held since the first forward; not computed again */
} neap__traced;

/* Set while an op has to be looked at: a trace is open or followed. */
extern int neap__traces_active;

/* Whether a recomputation is recorded on this tape. */
int neap__trace_follows(const neap__tape *tape);
/* Before an op runs: room for its entry, and what the followed trace says about it. Nothing has
 * changed after it, whether it fails or not. */
int neap__trace_before(neap__traced *traced, int op, const neap__rule *rule, neap__slot *const *in,
                       int records);
/* After it computed, before it is recorded: copies for the value check, comparison with them. */
int neap__trace_values(const neap__traced *traced, const neap__rule *rule, neap__slot *const *in,
                       neap__slot *const *out, neap__storage *const *aux, int records);
/* It ran: never fails. */
void neap__trace_commit(const neap__traced *traced, int op, const neap__rule *rule,
                        neap__slot *const *in, neap__slot *const *out, neap__storage *const *aux,
                        int records);
/* The host, or a node of this tape (0: nobody's in particular), looks at the contents: they have to
 * be made again by every recomputation. */
void neap__trace_needs(const neap__storage *storage, int tape);
/* A tensor with a history elsewhere is used under a weak tape: fine for an argument of the region.
 */
int neap__trace_argument(const neap__tape *tape, const neap__slot *slot);
/* An in-place write is about to happen: keeps what a buffer held, for the recomputation. */
int neap__trace_write(neap__slot *slot);

#endif
