/* Tapes: their table, starts (inputs and leaves), outputs, and how history hangs on handles.
 *
 * A tape is an array of nodes in the order they ran. A node is dropped early when it is the last
 * one and neither a living handle, nor a later node, nor an output mark refers to it: a forward
 * pass whose results were freed leaves nothing behind.
 */
#include <string.h>

#include "core/trace.h"

/* one a recorded stage: chains of 10,000 stages are recorded as a whole under keep-all */
enum { MAX_TAPES = 1 << 16, MAX_GENERATION = 30000 };

neap__tape *neap__selected;

static neap__tape **tapes;
static int *spare;
static int n_tapes, n_spare, cap_tapes, cap_spare, recomputing;
static uint64_t next_epoch = 1;

neap__tape *neap__tape_get(int id) {
  int index = id % MAX_TAPES;
  if (id >= 1 && index < n_tapes && tapes[index]->is_open && tapes[index]->id == id) {
    return tapes[index];
  }
  neap__error(NEAP_ERR_GRAPH, "tape %d is not open", id);
  return NULL;
}

static int tape_add(void) {
  if (n_tapes == MAX_TAPES) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: %d tapes are open, no more fit", n_tapes);
  }
  int code = neap__host_grow((void **)&tapes, &cap_tapes, n_tapes + 1, sizeof(neap__tape *));
  code = code < 0 ? code : neap__host_grow((void **)&spare, &cap_spare, n_tapes + 1, sizeof(int));
  if (code < 0) {
    return code;
  }
  neap__tape *tape = neap__host_alloc(sizeof *tape);
  if (tape == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for more than %d tapes",
                       n_tapes);
  }
  memset(tape, 0, sizeof *tape);
  tapes[n_tapes] = tape;
  spare[n_spare++] = n_tapes++;
  return NEAP_OK;
}

int neap_tape_new(void) {
  int code = n_spare == 0 ? tape_add() : NEAP_OK;
  if (code < 0) {
    return code;
  }
  int index = spare[--n_spare];
  neap__tape *tape = tapes[index];
  tape->generation = tape->generation % MAX_GENERATION + 1; /* ids stay below 2^31 */
  tape->id = index + (int)tape->generation * MAX_TAPES;
  tape->is_open = 1;
  tape->walking = tape->is_weak = 0;
  tape->epoch = next_epoch++;
  return tape->id;
}

/* an edge's node loses a reference */
static void edge_drop(neap__tape *tape, int edge) {
  if (edge >= 0) {
    tape->nodes[tape->values[edge].edge].n_refs--;
  }
}

void neap__tape_pop(neap__tape *tape) {
  neap__node *node = &tape->nodes[tape->n_nodes - 1];
  int n = node->n_inputs + node->n_outputs + node->n_extra;
  for (int i = 0; i < n; i++) {
    neap__value *value = &tape->values[node->first + i];
    if (i < node->n_inputs) {
      edge_drop(tape, value->edge);
    }
    neap__storage_unref(value->saved);
    neap__storage_unref(value->grad);
  }
  if (node->trace != 0) {
    neap_trace_free(node->trace);
  }
  tape->n_values = node->first;
  tape->n_nodes--;
}

static void starts_clear(neap__tape *tape) {
  for (int i = 0; i < tape->n_starts; i++) {
    neap__storage_unref(tape->starts[i].grad);
  }
  tape->n_starts = tape->n_inputs = 0;
  tape->epoch = next_epoch++;
}

void neap__tape_clear(neap__tape *tape) {
  while (tape->n_nodes > 0) {
    neap__tape_pop(tape);
  }
  tape->n_outputs = 0;
  tape->walking = 0;
  starts_clear(tape);
}

int neap_tape_free(int id) {
  int index = id % MAX_TAPES;
  if (id < 1 || index >= n_tapes || !tapes[index]->is_open || tapes[index]->id != id) {
    return NEAP_OK;
  }
  neap__tape *tape = tapes[index];
  neap__tape_clear(tape);
  tape->is_open = 0;
  spare[n_spare++] = index;
  if (neap__selected == tape) {
    neap__selected = NULL;
  }
  return NEAP_OK;
}

int neap_tape_select(int id) {
  int previous = neap_tape_selected();
  neap__tape *tape = id == 0 ? NULL : neap__tape_get(id);
  if (id != 0 && tape == NULL) {
    return NEAP_ERR_GRAPH;
  }
  neap__selected = tape;
  return previous;
}

int neap_tape_selected(void) {
  return neap__selected == NULL ? 0 : neap__selected->id;
}

int neap_recomputing_set(int value) {
  int previous = recomputing;
  recomputing = value != 0;
  return previous;
}

int neap_recomputing(void) {
  return recomputing;
}

/* ---- history of handles ---- */

/* the tape that made the slot, when what it made is still there */
static neap__tape *history(const neap__slot *slot) {
  int index = slot->tape % MAX_TAPES;
  if (slot->tape == 0 || !tapes[index]->is_open || tapes[index]->id != slot->tape) {
    return NULL;
  }
  neap__tape *tape = tapes[index];
  if (slot->edge >= 0) {
    return slot->node < tape->n_nodes && tape->nodes[slot->node].serial == slot->serial ? tape
                                                                                        : NULL;
  }
  return slot->serial == tape->epoch ? tape : NULL;
}

int neap__slot_has_history(const neap__slot *slot) {
  return history(slot) != NULL;
}

int neap_tensor_tape(double id) {
  const neap__slot *slot = neap__slot_get(id);
  const neap__tape *tape = slot == NULL ? NULL : history(slot);
  return slot == NULL ? NEAP_ERR_STALE : tape == NULL ? 0 : tape->id;
}

void neap__history_drop(neap__slot *slot) {
  neap__tape *tape = history(slot);
  slot->tape = 0;
  if (tape == NULL || slot->edge < 0) {
    return;
  }
  tape->nodes[slot->node].n_refs--;
  while (!tape->walking && tape->n_nodes > 0 && tape->nodes[tape->n_nodes - 1].n_refs == 0) {
    neap__tape_pop(tape);
  }
  /* an ambient tape that ran empty forgets its leaves, too */
  if (tape->n_nodes == 0 && tape->n_inputs == 0 && tape->n_outputs == 0 && !tape->walking) {
    starts_clear(tape);
  }
}

static int start_new(neap__tape *tape, const neap__slot *slot, double leaf, int wants) {
  int code = neap__host_grow((void **)&tape->starts, &tape->cap_starts, tape->n_starts + 1,
                             sizeof *tape->starts);
  if (code < 0) {
    return code;
  }
  neap__start *start = &tape->starts[tape->n_starts];
  start->view = slot->view;
  start->leaf = leaf;
  start->grad = NULL;
  start->grad_offset = 0;
  start->wants = wants && slot->view.dtype == NEAP_F32;
  start->device = slot->storage->device;
  start->version = slot->storage->version;
  return tape->n_starts++;
}

int neap__edge(neap__tape *tape, neap__slot *slot, int *edge) {
  if (slot->tape == 0) { /* a leaf */
    if (slot->leaf_epoch != tape->epoch) {
      int start = start_new(tape, slot, neap__slot_id(slot), 1);
      if (start < 0) {
        return start;
      }
      slot->leaf_epoch = tape->epoch;
      slot->leaf_start = start;
    }
    *edge = -2 - slot->leaf_start;
    return NEAP_OK;
  }
  neap__tape *made_by = history(slot);
  if (made_by == NULL) {
    return neap__error(NEAP_ERR_GRAPH, "the tensor's history was freed already (backward ran); use "
                                       "detach() to take its value as a constant");
  }
  if (made_by != tape && tape->is_weak && neap__trace_argument(tape, slot)) {
    int start = start_new(tape, slot, 0, 1);
    *edge = -2 - start;
    return start < 0 ? start : NEAP_OK;
  }
  if (made_by != tape) {
    return neap__error(NEAP_ERR_GRAPH, "the tensor was made outside this checkpointed region; pass "
                                       "it as an argument, or detach() it");
  }
  *edge = slot->edge < -1 && !tape->starts[-2 - slot->edge].wants ? -1 : slot->edge;
  return NEAP_OK;
}

/* ---- inputs and outputs of a region ---- */

double neap_tape_input(int id, double tensor, int grad) {
  neap__tape *tape = neap__tape_get(id);
  neap__slot *slot = tape == NULL ? NULL : neap__slot_get(tensor);
  if (slot == NULL) {
    return tape == NULL ? NEAP_ERR_GRAPH : NEAP_ERR_STALE;
  }
  int code = neap__host_grow((void **)&tape->inputs, &tape->cap_inputs, tape->n_inputs + 1,
                             sizeof *tape->inputs);
  int start = code < 0 ? code : start_new(tape, slot, 0, grad);
  if (start < 0) {
    return start;
  }
  double made = neap_tensor_detach(tensor);
  if (made < 0) {
    tape->n_starts--;
    return made;
  }
  neap__slot *input = neap__slot_find(made);
  input->tape = tape->id;
  input->edge = -2 - start;
  input->serial = tape->epoch;
  tape->inputs[tape->n_inputs++] = start;
  return made;
}

int neap_tape_input_intact(int id, int input, double tensor) {
  neap__tape *tape = neap__tape_get(id);
  neap__slot *slot = tape == NULL ? NULL : neap__slot_get(tensor);
  if (slot == NULL) {
    return tape == NULL ? NEAP_ERR_GRAPH : NEAP_ERR_STALE;
  }
  if (input < 0 || input >= tape->n_inputs) {
    return neap__error(NEAP_ERR_INVALID, "input: the tape has %d inputs, asked for number %d",
                       tape->n_inputs, input + 1);
  }
  if (tape->starts[tape->inputs[input]].version != slot->storage->version) {
    char by[160];
    return neap__error(NEAP_ERR_MODIFIED,
                       "its input %d was written in place%s; a recomputation would start from "
                       "other values: write to a copy",
                       input + 1, neap__written_text(slot->storage, by));
  }
  return NEAP_OK;
}

int neap_tape_output(int id, double tensor) {
  neap__tape *tape = neap__tape_get(id);
  neap__slot *slot = tape == NULL ? NULL : neap__slot_get(tensor);
  int edge = -1;
  if (slot == NULL) {
    return tape == NULL ? NEAP_ERR_GRAPH : NEAP_ERR_STALE;
  }
  int code = neap__host_grow((void **)&tape->outputs, &tape->cap_outputs, tape->n_outputs + 1,
                             sizeof *tape->outputs);
  if (code >= 0 && (slot->tape != 0 || slot->requires_grad)) {
    code = neap__edge(tape, slot, &edge);
  }
  if (code < 0) {
    return code;
  }
  if (edge >= 0) {
    tape->nodes[slot->node].n_refs++;
  }
  tape->outputs[tape->n_outputs].view = slot->view;
  tape->outputs[tape->n_outputs].edge = edge;
  return tape->n_outputs++;
}

int neap_tape_n_nodes(int id) {
  neap__tape *tape = neap__tape_get(id);
  return tape == NULL ? NEAP_ERR_GRAPH : tape->n_nodes;
}

int neap_tape_n_inputs(int id) {
  neap__tape *tape = neap__tape_get(id);
  return tape == NULL ? NEAP_ERR_GRAPH : tape->n_inputs;
}

int neap_tape_n_outputs(int id) {
  neap__tape *tape = neap__tape_get(id);
  return tape == NULL ? NEAP_ERR_GRAPH : tape->n_outputs;
}

/* ---- leaves ---- */

int neap_tensor_requires_grad(double id, int on) {
  neap__slot *slot = neap__slot_get(id);
  if (slot == NULL) {
    return NEAP_ERR_STALE;
  }
  if (slot->view.dtype != NEAP_F32) {
    return neap__error(NEAP_ERR_DTYPE, "requires_grad: only f32 tensors have gradients, found %s",
                       neap__dtype_name(slot->view.dtype));
  }
  if (history(slot) != NULL) {
    return neap__error(NEAP_ERR_GRAPH,
                       "requires_grad: the tensor was made by an op, it is no leaf");
  }
  slot->tape = 0; /* what made it is gone: it starts a history of its own */
  slot->requires_grad = on != 0;
  return NEAP_OK;
}

int neap_tensor_needs_grad(double id) {
  neap__slot *slot = neap__slot_get(id);
  return slot == NULL ? NEAP_ERR_STALE : slot->requires_grad || history(slot) != NULL;
}

double neap_tensor_grad(double id) {
  neap__slot *slot = neap__slot_get(id);
  if (slot == NULL) {
    return NEAP_ERR_STALE;
  }
  if (!slot->requires_grad) {
    return neap__error(NEAP_ERR_GRAPH, "grad: the tensor does not require a gradient");
  }
  if (neap__slot_find(slot->grad) != NULL) {
    return slot->grad;
  }
  double dims[NEAP_MAX_DIMS];
  for (int i = 0; i < slot->view.n_dims; i++) {
    dims[i] = (double)slot->view.dims[i];
  }
  int is_parameter = slot->storage->tag == NEAP_TAG_PARAMETERS;
  double grad = neap_tensor_new(neap__device_id(slot->storage->device), NEAP_F32, slot->view.n_dims,
                                dims, is_parameter ? NEAP_TAG_GRADIENTS : NEAP_TAG_ACTIVATIONS);
  if (grad < 0) {
    return grad;
  }
  neap_scope_leave(grad);
  neap_tensor_fill(grad, 0);
  neap__slot_find(grad)->of_gradient = 1;
  slot->grad = grad;
  return grad;
}
