/* Gradients in and out of a walk: buffers, seeds, what reaches the inputs, and the nodes of Lua
 * ops. */
#include <string.h>

#include "core/backward.h"
#include "core/trace.h"

void neap__point(neap_view *view, const neap__storage *storage, int64_t offset) {
  view->data = storage->data == NULL ? NULL : (char *)storage->data + offset;
}

static int tensor_copy(neap__device *device, neap_view *to, const neap_view *from) {
  if (to->n_elements == 0 || !device->backend->computes) {
    return NEAP_OK;
  }
  return device->backend->copy(device->context, to->data, from->data, neap__view_bytes(to));
}

int neap__grad_new(int device, neap__target *t, const neap_view *contents, int zero) {
  int code = neap__storage_new(device, neap__view_bytes(&t->view), NEAP_TAG_ACTIVATIONS, &t->fresh);
  if (code < 0) {
    return code;
  }
  neap__point(&t->view, t->fresh, 0);
  neap__device *d = &neap__devices[device];
  if (contents != NULL) {
    return tensor_copy(d, &t->view, contents);
  }
  if (zero && t->view.n_elements > 0 && d->backend->computes) {
    return d->backend->zero(d->context, t->view.data, neap__view_bytes(&t->view));
  }
  return NEAP_OK;
}

int neap__leaf_target(neap__target *t, const neap__start *start) {
  neap__slot *leaf = neap__slot_find(start->leaf);
  double id = leaf == NULL ? neap__error(NEAP_ERR_GRAPH, "backward: a parameter was freed between "
                                                         "forward and backward")
                           : neap_tensor_grad(start->leaf);
  neap__slot *grad = id < 0 ? NULL : neap__slot_find(id);
  if (grad == NULL) {
    return leaf == NULL ? NEAP_ERR_GRAPH : (int)id;
  }
  grad->storage->version++;
  t->view = grad->view;
  t->accumulate = 1;
  return NEAP_OK;
}

/* ---- gradients in and out ---- */

static int give(neap__storage **grad, int64_t *offset, neap__slot *slot) {
  if (*grad != NULL) {
    return neap__error(NEAP_ERR_GRAPH, "a gradient was given twice");
  }
  *grad = slot->storage;
  *offset = slot->view.data == NULL ? 0 : (char *)slot->view.data - (char *)slot->storage->data;
  slot->storage->refs++;
  neap__slot_free(slot);
  return NEAP_OK;
}

static int check_grad(const neap__slot *slot, const neap_view *view, int device) {
  if (slot->storage->device != device) {
    return neap__error(NEAP_ERR_DEVICE,
                       "gradient: it is on another device than what it belongs to "
                       "(%s, %s)",
                       neap__devices[slot->storage->device].backend->name,
                       neap__devices[device].backend->name);
  }
  if (slot->view.dtype != NEAP_F32 || slot->view.n_dims != view->n_dims ||
      memcmp(slot->view.dims, view->dims, sizeof view->dims) != 0) {
    char a[96], b[96];
    return neap__error(NEAP_ERR_SHAPE, "gradient: expected f32 %s, found %s %s",
                       neap__dims_text(view, a), neap__dtype_name(slot->view.dtype),
                       neap__dims_text(&slot->view, b));
  }
  return NEAP_OK;
}

/* a gradient added to what is there, and the handle consumed */
static int deliver(neap__tape *tape, int edge, neap__slot *slot) {
  if (edge == -1) {
    neap__slot_free(slot);
    return NEAP_OK;
  }
  neap__target t = {.view = slot->view, .accumulate = 1};
  neap__storage **grad = NULL;
  int64_t *offset = NULL;
  if (edge >= 0) {
    grad = &tape->values[edge].grad;
    offset = &tape->values[edge].grad_offset;
  } else if (tape->starts[-2 - edge].leaf != 0) {
    int code = neap__leaf_target(&t, &tape->starts[-2 - edge]);
    if (code < 0) {
      return code;
    }
  } else {
    grad = &tape->starts[-2 - edge].grad;
    offset = &tape->starts[-2 - edge].grad_offset;
  }
  if (grad != NULL && *grad == NULL) {
    return give(grad, offset, slot);
  }
  int device = slot->storage->device;
  if (grad != NULL) {
    neap__point(&t.view, *grad, *offset);
    if ((*grad)->refs > 1) {
      neap_view old = t.view;
      int code = neap__grad_new(device, &t, &old, 0);
      if (code < 0) {
        return code;
      }
      neap__storage_unref(*grad);
      *grad = t.fresh;
      *offset = 0;
    }
  }
  neap__device *d = &neap__devices[device];
  int code = t.view.n_elements == 0 || !d->backend->computes
                 ? NEAP_OK
                 : d->backend->accumulate(d->context, &t.view, &slot->view);
  if (code >= 0) {
    neap__slot_free(slot);
  }
  return code;
}

int neap_tape_seed(int id, int output, double grad) {
  neap__tape *tape = neap__tape_get(id);
  neap__slot *slot = tape == NULL ? NULL : neap__slot_get(grad);
  if (slot == NULL) {
    return tape == NULL ? NEAP_ERR_GRAPH : NEAP_ERR_STALE;
  }
  if (output < 0 || output >= tape->n_outputs) {
    return neap__error(NEAP_ERR_INVALID, "seed: the tape has %d outputs, asked for number %d",
                       tape->n_outputs, output + 1);
  }
  int edge = tape->outputs[output].edge;
  int device = edge >= 0   ? tape->nodes[tape->values[edge].edge].device
               : edge < -1 ? tape->starts[-2 - edge].device
                           : slot->storage->device;
  int code = check_grad(slot, &tape->outputs[output].view, device);
  return code < 0 ? code : deliver(tape, edge, slot);
}

double neap_tape_input_grad(int id, int input) {
  neap__tape *tape = neap__tape_get(id);
  if (tape == NULL) {
    return NEAP_ERR_GRAPH;
  }
  if (input < 0 || input >= tape->n_inputs) {
    return neap__error(NEAP_ERR_INVALID, "input_grad: the tape has %d inputs, asked for number %d",
                       tape->n_inputs, input + 1);
  }
  neap__start *start = &tape->starts[tape->inputs[input]];
  if (start->grad == NULL) {
    return 0;
  }
  neap__target t = {.view = start->view};
  neap__point(&t.view, start->grad, start->grad_offset);
  /* a gradient of its own: what follows must not depend on who shares it */
  if (start->grad->refs > 1) {
    neap_view old = t.view;
    int code = neap__grad_new(start->device, &t, &old, 0);
    if (code < 0) {
      return code;
    }
    neap__storage_unref(start->grad);
    start->grad = t.fresh;
    start->grad_offset = 0;
  }
  neap__slot *slot = neap__slot_new(start->grad, &t.view);
  if (slot == NULL) {
    return NEAP_ERR_MEMORY;
  }
  start->grad = NULL;
  return neap__slot_id(slot);
}

/* finds the loss on the tape and gives it the gradient 1; 1: nothing it depends on needs one */
static int loss_seed(neap__tape *tape, double loss) {
  neap__slot *slot = neap__slot_get(loss);
  if (slot == NULL) {
    return NEAP_ERR_STALE;
  }
  if (slot->tape != 0 && !neap__slot_has_history(slot)) {
    return neap__error(NEAP_ERR_GRAPH, "backward: its history was freed already, backward ran "
                                       "before");
  }
  if (slot->of_gradient) {
    return neap__error(
        NEAP_ERR_GRAPH,
        "backward: the loss was computed from a gradient, and gradients of gradients "
        "are not there; take the gradient's detach() as a constant");
  }
  int edge = -1;
  int code = slot->tape != 0 || slot->requires_grad ? neap__edge(tape, slot, &edge) : NEAP_OK;
  if (code < 0) {
    return code;
  }
  if (slot->view.n_elements != 1) {
    char text[96];
    return neap__error(NEAP_ERR_SHAPE, "backward: expected one number (a loss), found %s",
                       neap__dims_text(&slot->view, text));
  }
  if (edge == -1) {
    return 1;
  }
  double dims[NEAP_MAX_DIMS];
  for (int i = 0; i < slot->view.n_dims; i++) {
    dims[i] = (double)slot->view.dims[i];
  }
  double seed = neap_tensor_new(neap__device_id(slot->storage->device), NEAP_F32, slot->view.n_dims,
                                dims, NEAP_TAG_ACTIVATIONS);
  code = seed < 0 ? (int)seed : neap_tensor_fill(seed, 1);
  code = code < 0 ? code : deliver(tape, edge, neap__slot_find(seed));
  if (code < 0) {
    neap_tensor_free(seed);
  }
  return code;
}

int neap_backward(double loss) {
  neap__tape *tape = neap__selected;
  if (tape == NULL) {
    return neap__error(NEAP_ERR_GRAPH, "backward: nothing is recorded here (no_grad)");
  }
  if (tape->is_weak) {
    return neap__error(NEAP_ERR_GRAPH, "backward: the forward of a checkpointed region is running, "
                                       "there is nothing to walk back");
  }
  if (neap__traces_active && neap__trace_follows(tape)) {
    return neap__error(NEAP_ERR_GRAPH, "backward: a recomputation is running, its own backward "
                                       "comes after it");
  }
  /* walking: called again, the loss's own node may be done */
  int code = tape->walking ? NEAP_OK : loss_seed(tape, loss);
  if (code != NEAP_OK) {
    return code < 0 ? code : NEAP_OK;
  }
  code = neap__walk(tape);
  if (code <= 0 && code != NEAP_ERR_MEMORY) { /* done, or no second try can help */
    neap__tape_clear(tape);
  }
  return code;
}

int neap_backward_abandon(void) {
  if (neap__selected != NULL && neap__selected->walking) {
    neap__tape_clear(neap__selected);
  }
  return NEAP_OK;
}

/* ---- nodes of Lua ops ---- */

static neap__node *lua_node(int id, int node, neap__tape **tape) {
  *tape = neap__tape_get(id);
  if (*tape == NULL) {
    return NULL;
  }
  if (node < 0 || node >= (*tape)->n_nodes) {
    neap__error(NEAP_ERR_INVALID, "the tape has %d nodes, asked for number %d", (*tape)->n_nodes,
                node);
    return NULL;
  }
  return &(*tape)->nodes[node];
}

int neap_tape_node_op(int id, int node) {
  neap__tape *tape;
  neap__node *n = lua_node(id, node, &tape);
  return n == NULL ? NEAP_ERR_INVALID : n->op;
}

static double handle_of(neap__storage *storage, const neap_view *view, int64_t offset) {
  neap_view shown = *view;
  neap__point(&shown, storage, offset);
  neap__slot *slot = neap__slot_new(storage, &shown);
  if (slot == NULL) {
    return NEAP_ERR_MEMORY;
  }
  storage->refs++;
  return neap__slot_id(slot);
}

int neap_tape_node_n_saved(int id, int node) {
  neap__tape *tape;
  neap__node *n = lua_node(id, node, &tape);
  return n == NULL ? NEAP_ERR_INVALID : n->n_extra;
}

double neap_tape_node_saved(int id, int node, int k) {
  neap__tape *tape;
  neap__node *n = lua_node(id, node, &tape);
  if (n == NULL || k < 0 || k >= n->n_extra) {
    return n == NULL
               ? NEAP_ERR_INVALID
               : neap__error(NEAP_ERR_INVALID, "the node saved %d tensors, asked for number %d",
                             n->n_extra, k + 1);
  }
  neap__value *value = &tape->values[n->first + n->n_inputs + n->n_outputs + k];
  int64_t offset =
      value->view.data == NULL ? 0 : (char *)value->view.data - (char *)value->saved->data;
  return handle_of(value->saved, &value->view, offset);
}

double neap_tape_node_grad(int id, int node, int output) {
  neap__tape *tape;
  neap__node *n = lua_node(id, node, &tape);
  if (n == NULL || output < 0 || output >= n->n_outputs) {
    return n == NULL ? NEAP_ERR_INVALID
                     : neap__error(NEAP_ERR_INVALID, "the node has %d outputs, asked for number %d",
                                   n->n_outputs, output + 1);
  }
  neap__value *value = &tape->values[n->first + n->n_inputs + output];
  return value->grad == NULL ? 0 : handle_of(value->grad, &value->view, value->grad_offset);
}

int neap_tape_node_wants(int id, int node, int input) {
  neap__tape *tape;
  neap__node *n = lua_node(id, node, &tape);
  if (n == NULL || input < 0 || input >= n->n_inputs) {
    return n == NULL ? NEAP_ERR_INVALID
                     : neap__error(NEAP_ERR_INVALID, "the node has %d inputs, asked for number %d",
                                   n->n_inputs, input + 1);
  }
  return tape->values[n->first + input].edge != -1;
}

int neap_tape_node_give(int id, int node, int input, double grad) {
  neap__tape *tape;
  neap__node *n = lua_node(id, node, &tape);
  neap__slot *slot = n == NULL ? NULL : neap__slot_get(grad);
  if (slot == NULL) {
    return n == NULL ? NEAP_ERR_INVALID : NEAP_ERR_STALE;
  }
  if (input < 0 || input >= n->n_inputs) {
    return neap__error(NEAP_ERR_INVALID, "the node has %d inputs, asked for number %d", n->n_inputs,
                       input + 1);
  }
  neap__value *value = &tape->values[n->first + input];
  int code = check_grad(slot, &value->view, n->device);
  return code < 0 ? code : deliver(tape, value->edge, slot);
}

/* what has reached an input of the node so far, so that more can be added elsewhere in its place */
double neap_tape_node_take(int id, int node, int input) {
  neap__tape *tape;
  neap__node *n = lua_node(id, node, &tape);
  if (n == NULL || input < 0 || input >= n->n_inputs) {
    return n == NULL ? NEAP_ERR_INVALID
                     : neap__error(NEAP_ERR_INVALID, "the node has %d inputs, asked for number %d",
                                   n->n_inputs, input + 1);
  }
  const neap__value *value = &tape->values[n->first + input];
  neap__start *start = value->edge < -1 ? &tape->starts[-2 - value->edge] : NULL;
  if (value->edge == -1 || (start != NULL && start->leaf != 0)) {
    return 0;
  }
  neap__storage **grad = start != NULL ? &start->grad : &tape->values[value->edge].grad;
  int64_t offset = start != NULL ? start->grad_offset : tape->values[value->edge].grad_offset;
  double taken = *grad == NULL ? 0 : handle_of(*grad, &value->view, offset);
  if (taken > 0) {
    neap__storage_unref(*grad);
    *grad = NULL;
  }
  return taken;
}

int neap_tape_input_start(int id, int input, double grad) {
  neap__tape *tape = neap__tape_get(id);
  neap__slot *slot = tape == NULL ? NULL : neap__slot_get(grad);
  if (slot == NULL) {
    return tape == NULL ? NEAP_ERR_GRAPH : NEAP_ERR_STALE;
  }
  if (input < 0 || input >= tape->n_inputs) {
    return neap__error(NEAP_ERR_INVALID, "input_start: the tape has %d inputs, asked for number %d",
                       tape->n_inputs, input + 1);
  }
  neap__start *start = &tape->starts[tape->inputs[input]];
  int code = check_grad(slot, &start->view, start->device);
  return code < 0 ? code : give(&start->grad, &start->grad_offset, slot);
}

int neap_tape_node_done(int id, int node) {
  neap__tape *tape;
  neap__node *n = lua_node(id, node, &tape);
  if (n == NULL) {
    return NEAP_ERR_INVALID;
  }
  n->served = 1;
  return NEAP_OK;
}
