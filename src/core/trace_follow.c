/* Following a trace: which entry an op of the recomputation is, and what is left out.
 *
 * Recorded ops must come in the same order with the same shapes, or the check fails. Ops without
 * gradient may be left out or added (a closure may ask whether it is recomputing).
 */
#include <string.h>

#include "core/traces.h"

static int same_shape(const neap_view *a, const neap_view *b) {
  return a->n_dims == b->n_dims && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static int differs(const neap__trace *t, int at, int op, const neap__rule *rule) {
  char a[96], b[96];
  const char *made = neap__dims_text(&rule->out[0], a);
  if (at == t->n_entries) {
    return neap__error(NEAP_ERR_RECOMPUTE,
                       "it differs from the first forward: one op more, %s, which makes %s",
                       neap__ops[op].name, made);
  }
  const neap__entry *e = &t->entries[at];
  const char *before = neap__dims_text(&e->out, b);
  if (e->op == op && same_shape(&e->out, &rule->out[0])) {
    return neap__error(NEAP_ERR_RECOMPUTE,
                       "it differs from the first forward: %s (op %d) has %d inputs, it had %d",
                       neap__ops[op].name, at + 1, rule->n_inputs, e->n_inputs);
  }
  if (e->op == op) {
    return neap__error(NEAP_ERR_SHAPE,
                       "it differs from the first forward: the output of %s (op %d) is %s, it was "
                       "%s",
                       neap__ops[op].name, at + 1, made, before);
  }
  return neap__error(NEAP_ERR_RECOMPUTE,
                     "it differs from the first forward: op %d is %s and makes %s, it was %s and "
                     "made %s",
                     at + 1, neap__ops[op].name, made, neap__ops[e->op].name, before);
}

/* what was there before the region has to be as it was */
static int check_inputs(const neap__trace *t, int at, const neap__rule *rule,
                        neap__slot *const *in) {
  const neap__entry *e = &t->entries[at];
  for (int i = 0; i < rule->n_inputs && i < e->n_inputs; i++) {
    const neap__ref *ref = &t->refs[e->first_ref + i];
    const neap__storage *now = in[i]->storage;
    if (ref->made_by < 0 && ref->storage == now->id && ref->version != now->version &&
        !now->is_buffer) {
      char by[160];
      return neap__error(NEAP_ERR_MODIFIED,
                         "input %d of %s (op %d) was written in place after the first forward%s",
                         i + 1, neap__ops[e->op].name, at + 1, neap__written_text(now, by));
    }
  }
  return NEAP_OK;
}

static int is_entry(const neap__trace *t, int at, int op, const neap__rule *rule) {
  const neap__entry *e = &t->entries[at];
  return e->op == op && e->n_inputs == rule->n_inputs && same_shape(&e->out, &rule->out[0]);
}

/* the entry of a recorded op: the next recorded one, which must be the same op */
static int match_recorded(neap__trace *t, int op, const neap__rule *rule, neap__slot *const *in) {
  int at = t->next;
  while (at < t->n_entries && !t->entries[at].recorded) {
    at++;
  }
  if (at == t->n_entries || !is_entry(t, at, op, rule)) {
    if (t->check != NEAP_CHECK_NONE) {
      return differs(t, at, op, rule);
    }
    t->lost = 1;
    return -1;
  }
  int code = check_inputs(t, at, rule, in);
  return code < 0 ? code : at;
}

/* one of the next unrecorded entries, or none: the first that looks like it */
static int match_unrecorded(const neap__trace *t, int op, const neap__rule *rule) {
  for (int at = t->next; at < t->n_entries && !t->entries[at].recorded; at++) {
    if (is_entry(t, at, op, rule)) {
      return at;
    }
  }
  return -1;
}

static int take_held(neap__trace *t, int at, neap__traced *traced) {
  for (int i = 0; i < t->n_held; i++) {
    const neap__held *h = &t->held[i];
    if (h->entry == at && h->version != h->storage->version) {
      char by[160];
      return neap__error(NEAP_ERR_MODIFIED,
                         "the kept output %d of %s (op %d) was written in place after the first "
                         "forward%s",
                         h->output + 1, neap__ops[t->entries[at].op].name, at + 1,
                         neap__written_text(h->storage, by));
    }
    if (h->entry == at) {
      traced->take[h->output] = h->storage;
    }
  }
  return NEAP_OK;
}

/* whether the unrecorded entry, or a later one that looks the same, has to be computed: when ops
 * were left out, nobody can tell which of them it is */
static int may_compute(const neap__trace *t, int at) {
  const neap__entry *e = &t->entries[at];
  for (int i = at; i < t->n_entries && !t->entries[i].recorded; i++) {
    if (t->entries[i].computes && t->entries[i].op == e->op &&
        same_shape(&t->entries[i].out, &e->out)) {
      return 1;
    }
  }
  return 0;
}

int neap__any_phantom(const neap__rule *rule, neap__slot *const *in) {
  for (int i = 0; i < rule->n_inputs; i++) {
    if (in[i]->storage->is_phantom) {
      return 1;
    }
  }
  return 0;
}

int neap__trace_op(neap__traced *traced, int op, const neap__rule *rule, neap__slot *const *in,
                   int records) {
  neap__trace *t = neap__trace_followed;
  int recorded = records && neap__selected->id == t->tape;
  int at = -1;
  if (!t->lost) {
    at = recorded ? match_recorded(t, op, rule, in) : match_unrecorded(t, op, rule);
  }
  if (at < -1) {
    return at;
  }
  traced->position = at;
  if (!t->early || rule->is_view) {
    return NEAP_OK;
  }
  if (at < 0) { /* nobody asked for it in the first forward */
    traced->skips = !recorded && neap__any_phantom(rule, in);
    return NEAP_OK;
  }
  const neap__entry *e = &t->entries[at];
  if (e->keeps) {
    return take_held(t, at, traced);
  }
  traced->skips = recorded ? !e->computes : !may_compute(t, at) || neap__any_phantom(rule, in);
  return NEAP_OK;
}

int neap__trace_follows(const neap__tape *tape) {
  const neap__trace *t = neap__trace_followed;
  while (t != NULL && t->tape != tape->id) {
    t = t->outer_followed;
  }
  return t != NULL;
}

int neap_trace_follow(int id, int tape, int early) {
  neap__trace *t = neap__trace_get(id);
  if (t == NULL || t->state != NEAP__TRACE_READY || t->is_followed) {
    return t == NULL ? NEAP_ERR_STATE
                     : neap__error(NEAP_ERR_STATE, "trace: there is nothing to follow");
  }
  if (neap__tape_get(tape) == NULL) {
    return NEAP_ERR_GRAPH;
  }
  t->tape = tape;
  t->is_followed = 1;
  t->early = early != 0;
  t->next = t->next_copy = t->lost = 0;
  t->outer_followed = neap__trace_followed;
  neap__trace_followed = t;
  neap__trace_swap(t);
  neap__trace_active_set();
  return NEAP_OK;
}

int neap_trace_unfollow(int id, int complete) {
  neap__trace *t = neap__trace_get(id);
  if (t == NULL || t->state == NEAP__TRACE_RECORDING) {
    return t == NULL ? NEAP_ERR_STATE
                     : neap__error(NEAP_ERR_STATE, "trace: it is recorded, not followed");
  }
  complete = complete && t->is_followed;
  neap__trace_forget(t);
  neap__trace_copies_cut(t, 0);
  t->tape = 0;
  for (int at = t->next; complete && !t->lost && at < t->n_entries; at++) {
    if (t->entries[at].recorded && t->check != NEAP_CHECK_NONE) {
      char text[96];
      return neap__error(NEAP_ERR_RECOMPUTE,
                         "it differs from the first forward: it ended before op %d, %s, which made "
                         "%s",
                         at + 1, neap__ops[t->entries[at].op].name,
                         neap__dims_text(&t->entries[at].out, text));
    }
  }
  return NEAP_OK;
}
