/* Walks a tape backwards. One node at a time, last first; a node is either done as a whole or
 * untouched, so that running out of memory can be answered by freeing some and calling again.
 *
 * Gradients of values overwrite at the first contribution and accumulate after; a gradient that
 * several values share (add passes its own on) is copied before it is written. Gradients of leaves
 * accumulate.
 */
#include <string.h>

#include "core/backward.h"

typedef struct walk {
  neap__tape *tape;
  neap__node *node;
  neap__value *in, *out;
  neap__target targets[NEAP_MAX_INPUTS];
  neap_view grad_out[NEAP_MAX_OUTPUTS];
  neap__storage *scratch;
} walk;

/* whether a later input of the node has the same target: then both add to zeros */
static int occurs_again(const walk *w, int input) {
  for (int i = input + 1; i < w->node->n_inputs; i++) {
    if (w->in[i].edge == w->in[input].edge) {
      return 1;
    }
  }
  return 0;
}

static int can_reuse(const walk *w, int input, const neap__storage *storage,
                     const neap_view *view) {
  return input == 0 && storage != NULL && storage->refs == 1 && view->data != NULL &&
         neap__view_bytes(view) == neap__view_bytes(&w->in[0].view) &&
         storage->bytes == neap__round(neap__view_bytes(view));
}

/* memory for the gradient of one input; targets of earlier inputs are set already */
static int target_set(walk *w, int input) {
  neap__target *t = &w->targets[input];
  neap__value *value = &w->in[input];
  memset(t, 0, sizeof *t);
  if (value->edge == -1) {
    return NEAP_OK;
  }
  t->view = value->view;
  t->is_alias = w->node->alias >> input & 1;
  if (value->edge >= 0) {
    t->grad = &w->tape->values[value->edge].grad;
    t->offset = &w->tape->values[value->edge].grad_offset;
  } else {
    neap__start *start = &w->tape->starts[-2 - value->edge];
    if (start->leaf != 0) {
      return neap__leaf_target(t, start);
    }
    t->grad = &start->grad;
    t->offset = &start->grad_offset;
  }
  /* an input that occurs twice: the second adds to what the first one got */
  for (int i = 0; i < input; i++) {
    if (w->in[i].edge == value->edge) {
      t->view = w->targets[i].view;
      t->accumulate = 1;
      t->grad = NULL;
      return NEAP_OK;
    }
  }
  neap__storage *have = *t->grad;
  if (have != NULL) {
    t->accumulate = 1;
    neap__point(&t->view, have, *t->offset);
    if (have->refs == 1) {
      return NEAP_OK;
    }
    neap_view old = t->view;
    return neap__grad_new(w->node->device, t, &old, 0);
  }
  if (occurs_again(w, input)) {
    t->accumulate = 1;
    return neap__grad_new(w->node->device, t, NULL, 1);
  }
  if (t->is_alias) {
    return NEAP_OK; /* shared once the node is done */
  }
  if (w->node->reuse_grad && can_reuse(w, input, w->out[0].grad, &w->grad_out[0])) {
    t->fresh = w->out[0].grad;
    t->fresh->refs++;
    t->view.data = w->grad_out[0].data;
    return NEAP_OK;
  }
  if (w->node->reuse_in && can_reuse(w, input, value->saved, &value->view)) {
    t->fresh = value->saved;
    t->fresh->refs++;
    t->view.data = value->view.data;
    return NEAP_OK;
  }
  return neap__grad_new(w->node->device, t, NULL, neap__ops[w->node->op].kernel == NEAP_OP_NARROW);
}

static int check_saved(const walk *w) {
  const neap__node *node = w->node;
  int n = node->n_inputs + node->n_outputs + node->n_extra;
  for (int i = 0; i < n; i++) {
    const neap__value *value = &w->in[i];
    if (value->saved != NULL && value->saved->version != value->version) {
      const char *what = i < node->n_inputs                     ? "input"
                         : i < node->n_inputs + node->n_outputs ? "output"
                                                                : "tensor";
      int number = i < node->n_inputs                     ? i
                   : i < node->n_inputs + node->n_outputs ? i - node->n_inputs
                                                          : i - node->n_inputs - node->n_outputs;
      const char *place = neap__place_name(node->place);
      char by[160];
      return neap__error(NEAP_ERR_MODIFIED,
                         "%s%s%s: its saved %s %d was written in place after forward%s (version "
                         "%u, now %u); backward would be wrong",
                         neap__ops[node->op].name, place[0] != '\0' ? " in " : "", place, what,
                         number + 1, neap__written_text(value->saved, by), value->version,
                         value->saved->version);
    }
  }
  return NEAP_OK;
}

/* gradients that pass through, and views: done here for every backend */
static int pass_on(walk *w, int input) {
  neap__device *d = &neap__devices[w->node->device];
  neap__target *t = &w->targets[input];
  const neap_view *from = &w->grad_out[0];
  neap_view to = t->view;
  if (t->is_alias && t->grad != NULL && *t->grad == NULL && t->fresh == NULL) {
    *t->grad = w->out[0].grad;
    *t->offset = w->out[0].grad_offset;
    w->out[0].grad->refs++;
    return NEAP_OK;
  }
  if (from->n_elements == 0 || !d->backend->computes) {
    return NEAP_OK;
  }
  if (!t->is_alias) { /* narrow: the rows it showed */
    to.data = (float *)to.data + w->node->view_first;
  }
  to.n_elements = from->n_elements;
  return d->backend->accumulate(d->context, &to, from);
}

static int run_kernel(walk *w) {
  neap__node *node = w->node;
  neap__device *d = &neap__devices[node->device];
  neap_call call = {.op = neap__ops[node->op].kernel,
                    .n_inputs = node->n_inputs,
                    .n_outputs = node->n_outputs,
                    .attrs = node->attrs,
                    .scratch = w->scratch != NULL ? w->scratch->data : NULL,
                    .scratch_bytes = node->backward_scratch,
                    .rng = node->rng,
                    .context = d->context};
  int n_wanted = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    neap__target *t = &w->targets[i];
    int wanted = w->in[i].edge != -1 && !t->is_alias;
    call.in[i] = &w->in[i].view;
    call.grad_in[i] = wanted ? &t->view : NULL;
    call.accumulate[i] = (uint8_t)t->accumulate;
    n_wanted += wanted;
  }
  for (int k = 0; k < node->n_outputs; k++) {
    call.out[k] = &w->out[k].view;
    call.grad_out[k] = w->out[k].grad != NULL ? &w->grad_out[k] : NULL;
  }
  if (n_wanted == 0 || !d->backend->computes) {
    return NEAP_OK;
  }
  neap_kernel kernel = d->backend->kernels[call.op].backward;
  if (kernel == NULL) {
    return neap__error(NEAP_ERR_UNSUPPORTED, "%s: the %s backend does not have its backward",
                       neap__ops[node->op].name, d->backend->name);
  }
  return kernel(&call);
}

static int compute(walk *w) {
  int is_narrow = neap__ops[w->node->op].kernel == NEAP_OP_NARROW;
  int code = is_narrow ? NEAP_OK : run_kernel(w);
  for (int i = 0; i < w->node->n_inputs && code >= 0; i++) {
    if (w->in[i].edge != -1 && (w->targets[i].is_alias || is_narrow)) {
      code = pass_on(w, i);
    }
  }
  return code;
}

static int node_backward(walk *w) {
  neap__node *node = w->node;
  int n_targets = 0;
  int code = check_saved(w);
  for (int k = 0; k < node->n_outputs; k++) {
    if (w->out[k].grad != NULL) {
      w->grad_out[k] = w->out[k].view;
      neap__point(&w->grad_out[k], w->out[k].grad, w->out[k].grad_offset);
    }
  }
  while (n_targets < node->n_inputs && code >= 0) {
    code = target_set(w, n_targets);
    n_targets++;
  }
  w->scratch = NULL;
  code = code < 0 ? code : neap__scratch(node->device, node->backward_scratch, &w->scratch);
  code = code < 0 ? code : compute(w);
  neap__storage_unref(w->scratch);
  for (int i = 0; i < n_targets; i++) {
    neap__target *t = &w->targets[i];
    if (code < 0) {
      neap__storage_unref(t->fresh);
    } else if (t->fresh != NULL) {
      neap__storage_unref(*t->grad);
      *t->grad = t->fresh;
      *t->offset = t->view.data == NULL ? 0 : (char *)t->view.data - (char *)t->fresh->data;
      t->fresh->version++;
    }
  }
  return code;
}

static int has_grad(const walk *w) {
  for (int k = 0; k < w->node->n_outputs; k++) {
    if (w->out[k].grad != NULL) {
      return 1;
    }
  }
  return 0;
}

/* bytes of what the node's backward reads and writes: saved tensors and gradients; what passes its
 * gradient on moves nothing */
static double moved(const walk *w) {
  double bytes = 0, written = 0;
  int is_embedding = neap__ops[w->node->op].kernel == NEAP_OP_EMBEDDING;
  for (int i = 0; i < w->node->n_inputs; i++) {
    const neap_view *view = &w->in[i].view;
    bytes += w->in[i].saved != NULL ? (double)neap__view_bytes(view) : 0;
    if (w->in[i].edge != -1 && !(w->node->alias >> i & 1)) {
      written += (double)neap__view_bytes(is_embedding ? &w->out[0].view : view);
    }
  }
  for (int k = 0; k < w->node->n_outputs; k++) {
    bytes += w->out[k].saved != NULL ? (double)neap__view_bytes(&w->out[k].view) : 0;
    bytes += w->out[k].grad != NULL ? (double)neap__view_bytes(&w->out[k].view) : 0;
  }
  return written > 0 ? bytes + written : 0;
}

int neap__walk(neap__tape *tape) {
  tape->walking = 1;
  while (tape->n_nodes > 0) {
    walk w; /* large: only what is used is set */
    w.tape = tape;
    w.node = &tape->nodes[tape->n_nodes - 1];
    w.in = &tape->values[w.node->first];
    w.out = w.in + w.node->n_inputs;
    if (!w.node->served && has_grad(&w)) {
      if (neap__ops[w.node->op].kernel < 0) {
        int code = check_saved(&w);
        return code < 0 ? code : tape->n_nodes;
      }
      int code = node_backward(&w);
      if (code < 0) {
        return code;
      }
      neap__count_backward(w.node->op, w.node->backward_flops, moved(&w));
    }
    neap__tape_pop(tape);
  }
  tape->walking = 0;
  return NEAP_OK;
}

int neap_tape_backward(int id) {
  neap__tape *tape = neap__tape_get(id);
  if (tape == NULL || tape->is_weak) {
    return tape == NULL
               ? NEAP_ERR_GRAPH
               : neap__error(NEAP_ERR_GRAPH, "backward: the tape of a trace holds nothing");
  }
  return neap__walk(tape);
}
