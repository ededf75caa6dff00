/* The pool of traces, what they hold, and snapshots of buffers. */
#include <string.h>

#include "core/traces.h"

enum { MAX_TRACES = 1 << 17, MAX_GENERATION = 16000 };

static neap__trace **traces;
static int *spare;
static int n_traces, n_spare, cap_traces, cap_spare;

neap__trace *neap__trace_get(int id) {
  int index = id % MAX_TRACES;
  if (id >= 1 && index < n_traces && traces[index]->is_open && traces[index]->id == id) {
    return traces[index];
  }
  neap__error(NEAP_ERR_STATE, "trace %d is not open", id);
  return NULL;
}

static int trace_add(void) {
  if (n_traces == MAX_TRACES) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: %d traces are open, no more fit", n_traces);
  }
  int code = neap__host_grow((void **)&traces, &cap_traces, n_traces + 1, sizeof *traces);
  code =
      code < 0 ? code : neap__host_grow((void **)&spare, &cap_spare, n_traces + 1, sizeof *spare);
  if (code < 0) {
    return code;
  }
  neap__trace *t = neap__host_alloc(sizeof *t);
  if (t == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for more than %d traces",
                       n_traces);
  }
  memset(t, 0, sizeof *t);
  traces[n_traces] = t;
  spare[n_spare++] = n_traces++;
  return NEAP_OK;
}

int neap_trace_new(int check, int snapshots_buffers) {
  if (check < NEAP_CHECK_NONE || check > NEAP_CHECK_VALUE) {
    return neap__error(NEAP_ERR_INVALID, "trace: there is no check number %d", check);
  }
  int code = n_spare == 0 ? trace_add() : NEAP_OK;
  if (code < 0) {
    return code;
  }
  int index = spare[--n_spare];
  neap__trace *t = traces[index];
  t->generation = t->generation % MAX_GENERATION + 1;
  t->id = index + (int)t->generation * MAX_TRACES;
  t->is_open = 1;
  t->state = NEAP__TRACE_IDLE;
  t->check = check;
  t->snapshots_buffers = snapshots_buffers != 0;
  t->n_arguments = t->n_keep_at = 0;
  memset(t->keep_ops, 0, sizeof t->keep_ops);
  return t->id;
}

void neap__trace_clear(neap__trace *t) {
  for (int i = 0; i < t->n_held; i++) {
    neap__storage_unref(t->held[i].storage);
  }
  for (int i = 0; i < t->n_copies; i++) {
    neap__storage_unref(t->copies[i].storage);
  }
  for (int i = 0; i < t->n_snapshots; i++) {
    neap__storage_unref(t->snapshots[i].storage);
  }
  t->n_entries = t->n_refs = t->n_held = t->n_copies = t->n_snapshots = 0;
  t->state = NEAP__TRACE_IDLE;
}

int neap_trace_free(int id) {
  int index = id % MAX_TRACES;
  if (id < 1 || index >= n_traces || !traces[index]->is_open || traces[index]->id != id) {
    return NEAP_OK;
  }
  neap_trace_clear(id);
  traces[index]->is_open = 0;
  spare[n_spare++] = index;
  return NEAP_OK;
}

int neap_trace_clear(int id) {
  neap__trace *t = neap__trace_get(id);
  if (t == NULL) {
    return NEAP_ERR_STATE;
  }
  neap__trace_forget(t);
  if (t->state == NEAP__TRACE_RECORDING) {
    neap_tape_free(t->tape);
  }
  t->tape = 0;
  neap__trace_clear(t);
  return NEAP_OK;
}

int neap_trace_holds(int id, double tensor) {
  neap__trace *t = neap__trace_get(id);
  const neap__slot *slot = t == NULL ? NULL : neap__slot_get(tensor);
  int holds = 0;
  for (int i = 0; slot != NULL && i < t->n_held; i++) {
    holds |= t->held[i].storage == slot->storage;
  }
  return t == NULL ? NEAP_ERR_STATE : slot == NULL ? NEAP_ERR_STALE : holds;
}

int neap_trace_alive(int id) {
  int index = id % MAX_TRACES;
  return id >= 1 && index < n_traces && traces[index]->is_open && traces[index]->id == id;
}

int neap_trace_argument(int id, double tensor) {
  neap__trace *t = neap__trace_get(id);
  neap__slot *slot = t == NULL ? NULL : neap__slot_get(tensor);
  if (slot == NULL) {
    return t == NULL ? NEAP_ERR_STATE : NEAP_ERR_STALE;
  }
  int code = neap__host_grow((void **)&t->arguments, &t->cap_arguments, t->n_arguments + 1,
                             sizeof *t->arguments);
  if (code >= 0) {
    t->arguments[t->n_arguments++] = (neap__argument){tensor, slot->storage->version};
  }
  return code;
}

int neap_trace_keep(int id, int op) {
  neap__trace *t = neap__trace_get(id);
  if (t == NULL || op < 0 || op >= neap__n_ops) {
    return t == NULL ? NEAP_ERR_STATE
                     : neap__error(NEAP_ERR_NOT_FOUND, "trace: there is no op number %d", op);
  }
  t->keep_ops[op / 64] |= 1ull << (op % 64);
  return NEAP_OK;
}

int neap_trace_keep_at(int id, int entry) {
  neap__trace *t = neap__trace_get(id);
  int code = t == NULL ? NEAP_ERR_STATE
                       : neap__host_grow((void **)&t->keep_at, &t->cap_keep_at, t->n_keep_at + 1,
                                         sizeof *t->keep_at);
  if (code >= 0) {
    t->keep_at[t->n_keep_at++] = entry;
  }
  return code;
}

/* ---- what it holds, for people and profiles ---- */

int neap_trace_n_ops(int id) {
  neap__trace *t = neap__trace_get(id);
  return t == NULL ? NEAP_ERR_STATE : t->n_entries;
}

int neap_trace_get_op(int id, int i, neap_trace_op *out) {
  neap__trace *t = neap__trace_get(id);
  if (t == NULL || i < 0 || i >= t->n_entries || out == NULL) {
    return t == NULL ? NEAP_ERR_STATE
                     : neap__error(NEAP_ERR_INVALID, "trace: it has %d ops, asked for number %d",
                                   t->n_entries, i + 1);
  }
  const neap__entry *e = &t->entries[i];
  *out = (neap_trace_op){.op = e->op,
                         .n_dims = e->out.n_dims,
                         .dtype = e->out.dtype,
                         .recorded = e->recorded,
                         .draws = e->draws,
                         .computes = e->computes,
                         .keeps = e->keeps,
                         .is_view = e->is_view,
                         .bytes = (double)neap__round(neap__view_bytes(&e->out))};
  for (int d = 0; d < e->out.n_dims; d++) {
    out->dims[d] = (double)e->out.dims[d];
  }
  return NEAP_OK;
}

int neap_trace_draws(int id) {
  neap__trace *t = neap__trace_get(id);
  int n = 0;
  for (int i = 0; t != NULL && i < t->n_entries; i++) {
    n += t->entries[i].draws;
  }
  return t == NULL ? NEAP_ERR_STATE : n;
}

double neap_trace_held_bytes(int id) {
  neap__trace *t = neap__trace_get(id);
  double sum = 0;
  for (int i = 0; t != NULL && i < t->n_held; i++) {
    sum += (double)t->held[i].storage->bytes;
  }
  return t == NULL ? NEAP_ERR_STATE : sum;
}

double neap_trace_check_bytes(int id) {
  neap__trace *t = neap__trace_get(id);
  double sum = 0;
  for (int i = 0; t != NULL && i < t->n_copies; i++) {
    sum += (double)t->copies[i].storage->bytes;
  }
  return t == NULL ? NEAP_ERR_STATE : sum;
}

/* ---- buffers ---- */

int neap__trace_copy(const neap__storage *from, const neap_view *view, int tag,
                     neap__storage **out) {
  int code = neap__storage_new(from->device, neap__view_bytes(view), tag, out);
  neap__device *d = &neap__devices[from->device];
  if (code >= 0 && view->n_elements > 0 && d->backend->computes) {
    code = d->backend->copy(d->context, (*out)->data, view->data, neap__view_bytes(view));
    if (code < 0) {
      neap__storage_unref(*out);
    }
  }
  return code;
}

int neap__trace_write(neap__slot *slot) {
  if (!slot->storage->is_buffer) {
    return NEAP_OK;
  }
  double id = neap__slot_id(slot);
  for (neap__trace *t = neap__trace_open; t != NULL; t = t->outer) {
    int known = !t->snapshots_buffers;
    for (int i = 0; i < t->n_snapshots && !known; i++) {
      known = t->snapshots[i].id == id;
    }
    if (!known) {
      int code = neap__host_grow((void **)&t->snapshots, &t->cap_snapshots, t->n_snapshots + 1,
                                 sizeof *t->snapshots);
      neap__snapshot *s = &t->snapshots[t->n_snapshots];
      code = code < 0
                 ? code
                 : neap__trace_copy(slot->storage, &slot->view, NEAP_TAG_ACTIVATIONS, &s->storage);
      if (code < 0) {
        return code;
      }
      s->id = id;
      s->data = s->storage->data;
      s->storage->is_buffer = 1; /* counted like what a region keeps, written like a buffer */
      t->n_snapshots++;
    }
  }
  return NEAP_OK;
}

void neap__trace_swap(neap__trace *t) {
  for (int i = 0; i < t->n_snapshots; i++) {
    neap__snapshot *s = &t->snapshots[i];
    neap__slot *slot = neap__slot_find(s->id);
    if (slot != NULL) {
      neap__storage *storage = slot->storage;
      void *data = slot->view.data;
      slot->storage = s->storage;
      slot->view.data = s->data;
      s->storage = storage;
      s->data = data;
    }
  }
}

int neap_tensor_swap(double a, double b) {
  neap__slot *x = neap__slot_get(a);
  neap__slot *y = x == NULL ? NULL : neap__slot_get(b);
  if (y == NULL) {
    return NEAP_ERR_STALE;
  }
  if (x->storage->device != y->storage->device || x->view.dtype != y->view.dtype ||
      x->view.n_dims != y->view.n_dims ||
      memcmp(x->view.dims, y->view.dims, sizeof x->view.dims) != 0 || x->requires_grad ||
      y->requires_grad || neap__slot_has_history(x) || neap__slot_has_history(y)) {
    return neap__error(NEAP_ERR_SHAPE, "swap: expected two tensors of one shape, dtype and device, "
                                       "without gradients");
  }
  neap__storage *storage = x->storage;
  void *data = x->view.data;
  x->storage = y->storage;
  x->view.data = y->view.data;
  y->storage = storage;
  y->view.data = data;
  return NEAP_OK;
}
