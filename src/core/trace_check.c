/* The value check: copies of what a first forward would save, and the recomputation against them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/traces.h"

void neap__trace_copies_cut(neap__trace *t, int entry) {
  while (t->n_copies > 0 && t->copies[t->n_copies - 1].entry >= entry) {
    neap__storage_unref(t->copies[--t->n_copies].storage);
  }
}

/* whether a copy holds all that the view shows */
static int is_copied(const neap__trace *t, const neap__storage *storage, const neap_view *view) {
  for (int i = 0; i < t->n_copies; i++) {
    const neap__copy *c = &t->copies[i];
    if (c->of == storage->id && c->version == storage->version) {
      uintptr_t from = (uintptr_t)c->view.data, to = from + neap__view_bytes(&c->view);
      uintptr_t first = (uintptr_t)view->data, last = first + neap__view_bytes(view);
      if (first >= from && last <= to) {
        return 1;
      }
    }
  }
  return 0;
}

static int copy_value(neap__trace *t, int value, const neap__storage *storage,
                      const neap_view *view) {
  if (storage == NULL || storage->is_phantom || is_copied(t, storage, view)) {
    return NEAP_OK;
  }
  neap__copy *c = &t->copies[t->n_copies];
  int code = neap__trace_copy(storage, view, NEAP_TAG_CHECK, &c->storage);
  if (code >= 0) {
    c->entry = t->n_entries;
    c->value = value;
    c->view = *view;
    c->of = storage->id;
    c->version = storage->version;
    t->n_copies++;
  }
  return code;
}

static const char *value_name(const neap__rule *rule, int value, char text[48]) {
  int is_output = value >= rule->n_inputs;
  snprintf(text, 48, "%s %d", is_output ? "output" : "input",
           1 + (is_output ? value - rule->n_inputs : value));
  return text;
}

/* compares piece by piece; the first difference in bits is enough to fail, the largest is told */
static int compare(const neap__copy *c, const neap__storage *storage, const neap_view *view,
                   const neap__rule *rule) {
  enum { PIECE = 4096 };
  uint32_t a[PIECE], b[PIECE];
  char name[48], dims[96], was[96];
  if (c->view.n_dims != view->n_dims || memcmp(c->view.dims, view->dims, sizeof view->dims) != 0) {
    return neap__error(NEAP_ERR_SHAPE,
                       "it differs from the first forward: %s of %s (op %d) is %s, it was %s",
                       value_name(rule, c->value, name), rule->name, c->entry + 1,
                       neap__dims_text(view, dims), neap__dims_text(&c->view, was));
  }
  neap__device *d = &neap__devices[storage->device];
  size_t bytes = neap__view_bytes(view);
  double largest = -1;
  int64_t where = -1;
  for (size_t at = 0; at < bytes && d->backend->computes; at += sizeof a) {
    size_t n = bytes - at < sizeof a ? bytes - at : sizeof a;
    int code = d->backend->read(d->context, a, (char *)view->data + at, n);
    code = code < 0 ? code : d->backend->read(d->context, b, (char *)c->storage->data + at, n);
    if (code < 0) {
      return code;
    }
    for (size_t i = 0; i < n / 4 && memcmp(a, b, n) != 0; i++) {
      if (a[i] != b[i]) {
        float x, y;
        memcpy(&x, &a[i], 4);
        memcpy(&y, &b[i], 4);
        double apart = view->dtype == NEAP_F32
                           ? fabs((double)x - (double)y)
                           : fabs((double)(int32_t)a[i] - (double)(int32_t)b[i]);
        apart = isnan(apart) ? HUGE_VAL : apart;
        if (apart > largest) {
          largest = apart;
          where = (int64_t)(at / 4 + i);
        }
      }
    }
  }
  if (where < 0) {
    return NEAP_OK;
  }
  return neap__error(NEAP_ERR_RECOMPUTE,
                     "its values differ from the first forward: %s of %s (op %d), %s, largest "
                     "difference %g at element %lld",
                     value_name(rule, c->value, name), rule->name, c->entry + 1,
                     neap__dims_text(view, dims), largest, (long long)where + 1);
}

/* the recomputed values of one op against the copies of its entry; what is left out of it is not
 * there to be compared, but its inputs are */
static int check_values(neap__trace *t, const neap__traced *traced, const neap__rule *rule,
                        neap__slot *const *in, neap__slot *const *out, neap__storage *const *aux) {
  int code = NEAP_OK;
  while (code >= 0 && t->next_copy < t->n_copies &&
         t->copies[t->next_copy].entry <= traced->position) {
    const neap__copy *c = &t->copies[t->next_copy++];
    int k = c->value - rule->n_inputs;
    const neap_view *view = k < 0 ? &in[c->value]->view : &rule->out[k];
    const neap__storage *now = k < 0                 ? in[c->value]->storage
                               : k < rule->n_visible ? out[k]->storage
                                                     : aux[k];
    if (c->entry == traced->position && now != NULL && !now->is_phantom) {
      code = compare(c, now, view, rule);
    }
  }
  return code;
}

static int copy_values(neap__trace *t, const neap__rule *rule, neap__slot *const *in,
                       neap__slot *const *out, neap__storage *const *aux) {
  int code = NEAP_OK;
  for (int i = 0; i < rule->n_inputs && code >= 0; i++) {
    if ((rule->save_in >> i & 1) && in[i]->storage->op >= t->first_op) {
      code = copy_value(t, i, in[i]->storage, &in[i]->view);
    }
  }
  for (int k = 0; k < rule->n_outputs && code >= 0; k++) {
    if (rule->save_out >> k & 1) {
      code = copy_value(t, rule->n_inputs + k, k < rule->n_visible ? out[k]->storage : aux[k],
                        &rule->out[k]);
    }
  }
  return code;
}

int neap__trace_values(const neap__traced *traced, const neap__rule *rule, neap__slot *const *in,
                       neap__slot *const *out, neap__storage *const *aux, int records) {
  neap__trace *followed = neap__trace_followed;
  int code = NEAP_OK;
  if (followed != NULL && followed->check == NEAP_CHECK_VALUE && traced->position >= 0) {
    code = check_values(followed, traced, rule, in, out, aux);
  }
  for (neap__trace *t = neap__trace_open; t != NULL && records && code >= 0; t = t->outer) {
    if (t->check == NEAP_CHECK_VALUE && t->tape == neap__selected->id) {
      code = copy_values(t, rule, in, out, aux);
    }
  }
  return code;
}
