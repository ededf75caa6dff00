/* Traces: what a forward did, remembered without holding what it made, so that a recomputation can
 * be checked against it and stop early.
 *
 * Recording. Every op that runs while a trace is open appends an entry: which op, what shape, which
 * entries made its inputs, whether it is recorded on the trace's weak tape, and what it would save.
 * At the end one walk backwards marks the entries that a recomputation has to compute: those whose
 * output something saves, an op that has to be computed reads, or the host looked at. Everything
 * else, the last matmul of a transformer block first of all, gets a shape and no memory.
 */
#include <string.h>

#include "core/traces.h"

int neap__traces_active;
neap__trace *neap__trace_open, *neap__trace_followed;

static uint64_t op_number;

void neap__trace_active_set(void) {
  neap__traces_active = neap__trace_open != NULL || neap__trace_followed != NULL;
}

void neap__trace_forget(neap__trace *t) {
  for (neap__trace **at = &neap__trace_open; *at != NULL; at = &(*at)->outer) {
    if (*at == t) {
      *at = t->outer;
      break;
    }
  }
  for (neap__trace **at = &neap__trace_followed; *at != NULL; at = &(*at)->outer_followed) {
    if (*at == t) {
      *at = t->outer_followed;
      t->is_followed = 0;
      neap__trace_swap(t);
      break;
    }
  }
  neap__trace_active_set();
}

/* entry of t that made the storage, -1: none */
static int made_by(const neap__trace *t, const neap__storage *storage) {
  return storage->op >= t->first_op && storage->op < t->first_op + (uint64_t)t->n_entries
             ? (int)(storage->op - t->first_op)
             : -1;
}

static neap__trace *trace_of_tape(int tape) {
  neap__trace *t = neap__trace_open;
  while (t != NULL && t->tape != tape) {
    t = t->outer;
  }
  return t;
}

static int keeps(const neap__trace *t, int op) {
  if (t->keep_ops[op / 64] >> (op % 64) & 1) {
    return 1;
  }
  for (int i = 0; i < t->n_keep_at; i++) {
    if (t->keep_at[i] == t->n_entries) {
      return 1;
    }
  }
  return 0;
}

static int keeps_any(const neap__trace *t) {
  uint64_t any = 0;
  for (int i = 0; i < NEAP__MAX_OPS / 64; i++) {
    any |= t->keep_ops[i];
  }
  return any != 0 || t->n_keep_at > 0;
}

void neap__trace_needs(const neap__storage *storage, int tape) {
  for (neap__trace *t = neap__trace_open; t != NULL; t = t->outer) {
    int entry = made_by(t, storage);
    if (entry >= 0 && (tape == 0 || t->tape == tape)) {
      t->entries[entry].needed = 1;
    }
  }
}

int neap__trace_argument(const neap__tape *tape, const neap__slot *slot) {
  const neap__trace *t = trace_of_tape(tape->id);
  double id = neap__slot_id(slot);
  for (int i = 0; t != NULL && i < t->n_arguments; i++) {
    if (t->arguments[i].id == id) {
      return 1;
    }
  }
  return 0;
}

/* ---- around an op ---- */

static int reserve(neap__trace *t, const neap__rule *rule) {
  int most = rule->n_inputs + rule->n_outputs;
  int code =
      neap__host_grow((void **)&t->entries, &t->cap_entries, t->n_entries + 1, sizeof *t->entries);
  code = code < 0 ? code
                  : neap__host_grow((void **)&t->refs, &t->cap_refs, t->n_refs + rule->n_inputs,
                                    sizeof *t->refs);
  code = code < 0 ? code
                  : neap__host_grow((void **)&t->held, &t->cap_held, t->n_held + rule->n_outputs,
                                    sizeof *t->held);
  if (t->check == NEAP_CHECK_VALUE) {
    code = code < 0 ? code
                    : neap__host_grow((void **)&t->copies, &t->cap_copies, t->n_copies + most,
                                      sizeof *t->copies);
  }
  return code;
}

/* what a region inside the recomputation holds is there again, so that it is checked and taken over
 * as it would be in a first forward, and takes as many bytes */
static int holds_again(const neap__rule *rule, neap__slot *const *in) {
  const neap__trace *t =
      neap__selected != NULL && neap__selected->is_weak ? trace_of_tape(neap__selected->id) : NULL;
  if (t == NULL || (t->check != NEAP_CHECK_VALUE && !keeps_any(t))) {
    return 0;
  }
  return !neap__any_phantom(rule, in);
}

int neap__trace_before(neap__traced *traced, int op, const neap__rule *rule, neap__slot *const *in,
                       int records) {
  *traced = (neap__traced){.position = -1};
  if (neap__trace_followed != NULL) {
    int code = neap__trace_op(traced, op, rule, in, records);
    if (code < 0) {
      return code;
    }
    traced->skips = traced->skips && !holds_again(rule, in);
  }
  for (neap__trace *t = neap__trace_open; t != NULL; t = t->outer) {
    neap__trace_copies_cut(t, t->n_entries); /* of an op that failed */
    int code = reserve(t, rule);
    if (code < 0) {
      return code;
    }
  }
  if (records && neap__selected->is_weak) {
    const neap__trace *t = trace_of_tape(neap__selected->id);
    traced->auxes = t != NULL && (t->check == NEAP_CHECK_VALUE || keeps(t, op));
  }
  return NEAP_OK;
}

static void hold(neap__trace *t, int output, neap__storage *storage) {
  if (storage != NULL && !storage->is_phantom) {
    storage->refs++;
    t->held[t->n_held++] = (neap__held){t->n_entries, output, storage->version, storage};
    t->entries[t->n_entries].keeps = 1;
  }
}

static void append(neap__trace *t, int op, const neap__rule *rule, neap__slot *const *in,
                   neap__slot *const *out, neap__storage *const *aux, int records) {
  neap__entry *e = &t->entries[t->n_entries];
  *e = (neap__entry){.op = op,
                     .first_ref = t->n_refs,
                     .out = rule->out[0],
                     .n_inputs = (uint8_t)rule->n_inputs,
                     .recorded = records && neap__selected->id == t->tape,
                     .is_view = rule->is_view != 0,
                     .draws = rule->draws != 0,
                     .save_in = (uint8_t)rule->save_in,
                     .save_out = (uint8_t)rule->save_out};
  for (int i = 0; i < rule->n_inputs; i++) {
    const neap__storage *storage = in[i]->storage;
    t->refs[t->n_refs++] = (neap__ref){made_by(t, storage), storage->version, storage->id};
  }
  /* others cannot be told apart when some are left out: only what is recorded is taken over */
  if (e->recorded && !rule->is_view && keeps(t, op)) {
    for (int k = 0; k < rule->n_outputs; k++) {
      hold(t, k, k < rule->n_visible ? out[k]->storage : aux[k]);
    }
  }
  t->n_entries++;
}

/* whether what an entry keeps was written in place since; then it is made again */
static int was_written(const neap__trace *t, int at) {
  for (int i = 0; i < t->n_held; i++) {
    if (t->held[i].entry == at && t->held[i].version != t->held[i].storage->version) {
      return 1;
    }
  }
  return 0;
}

static void give_away(neap__trace *t, int at) {
  for (int i = 0; i < t->n_held; i++) {
    if (t->held[i].entry == at) {
      neap__storage_unref(t->held[i].storage);
      t->held[i--] = t->held[--t->n_held];
    }
  }
}

void neap__trace_commit(const neap__traced *traced, int op, const neap__rule *rule,
                        neap__slot *const *in, neap__slot *const *out, neap__storage *const *aux,
                        int records) {
  neap__trace *followed = neap__trace_followed;
  if (followed != NULL && traced->position >= 0) {
    followed->next = traced->position + 1;
    if (traced->take[0] != NULL) {
      give_away(followed, traced->position);
    }
  }
  if (neap__trace_open == NULL) {
    return;
  }
  op_number++;
  for (neap__trace *t = neap__trace_open; t != NULL; t = t->outer) {
    append(t, op, rule, in, out, aux, records);
  }
  for (int k = 0; k < rule->n_outputs && !rule->is_view; k++) {
    neap__storage *storage = k < rule->n_visible ? out[k]->storage : aux[k];
    if (storage != NULL) {
      storage->op = op_number;
    }
  }
}

/* ---- begin and end ---- */

/* marks what a recomputation computes; what was held for nothing goes */
static void analyse(neap__trace *t) {
  for (int i = t->n_entries - 1; i >= 0; i--) {
    neap__entry *e = &t->entries[i];
    const neap__ref *refs = &t->refs[e->first_ref];
    e->needed |= e->recorded && e->save_out != 0;
    if (e->keeps && (!e->needed || was_written(t, i))) {
      give_away(t, i);
      e->keeps = 0;
    }
    e->computes = e->needed && !e->keeps;
    for (int k = 0; k < e->n_inputs; k++) {
      int saved = e->recorded && (e->save_in >> k & 1);
      if (refs[k].made_by >= 0 && (saved || e->computes)) {
        t->entries[refs[k].made_by].needed = 1;
      }
    }
  }
}

int neap_trace_begin(int id) {
  neap__trace *t = neap__trace_get(id);
  if (t == NULL) {
    return NEAP_ERR_STATE;
  }
  int tape = t->state != NEAP__TRACE_RECORDING && !t->is_followed
                 ? neap_tape_new()
                 : neap__error(NEAP_ERR_STATE, "trace: it is in use already");
  if (tape < 0) {
    return tape;
  }
  neap__trace_clear(t);
  neap__tape_get(tape)->is_weak = 1;
  t->tape = tape;
  t->first_op = op_number + 1;
  t->state = NEAP__TRACE_RECORDING;
  t->outer = neap__trace_open;
  neap__trace_open = t;
  neap__trace_active_set();
  return tape;
}

/* an argument that the region itself wrote: the recomputation would start from other values */
static int check_arguments(const neap__trace *t) {
  for (int i = 0; i < t->n_arguments; i++) {
    const neap__slot *slot = neap__slot_find(t->arguments[i].id);
    if (slot != NULL && slot->storage->version != t->arguments[i].version) {
      char by[160];
      return neap__error(NEAP_ERR_MODIFIED,
                         "its tensor argument %d was written in place%s; a recomputation would "
                         "start from other values: write to a copy",
                         i + 1, neap__written_text(slot->storage, by));
    }
  }
  return NEAP_OK;
}

int neap_trace_end(int id) {
  neap__trace *t = neap__trace_get(id);
  if (t == NULL || t->state != NEAP__TRACE_RECORDING) {
    return neap__error(NEAP_ERR_STATE, "trace: it was not begun");
  }
  int code = check_arguments(t);
  neap__trace_forget(t);
  neap_tape_free(t->tape);
  t->tape = 0;
  t->state = NEAP__TRACE_READY;
  analyse(t);
  return code;
}
