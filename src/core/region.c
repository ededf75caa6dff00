/* Checkpointed regions on a tape: one node that keeps the region's inputs and its trace, served by
 * whoever knows how to run the region again. */
#include <string.h>

#include "core/trace.h"

enum { MOST = 255 }; /* inputs and outputs of a node are counted in a byte */

static int slots_of(const char *what, int n, const double *ids, neap__slot **slots) {
  if (n < 0 || n > MOST || (n > 0 && ids == NULL)) {
    return neap__error(NEAP_ERR_INVALID, "checkpoint: at most %d tensors can be %s, found %d", MOST,
                       what, n);
  }
  for (int i = 0; i < n; i++) {
    slots[i] = neap__slot_get(ids[i]);
    if (slots[i] == NULL) {
      return NEAP_ERR_STALE;
    }
  }
  return NEAP_OK;
}

static void value_new(neap__value *value, const neap__slot *slot, int holds, int edge) {
  memset(value, 0, sizeof *value);
  value->view = slot->view;
  value->edge = edge;
  value->version = slot->storage->version;
  if (holds) {
    value->saved = slot->storage;
    slot->storage->refs++;
  } else {
    value->view.data = NULL;
  }
}

static void node_new(neap__tape *tape, int n_inputs, neap__slot *const *in, const int *edges,
                     int n_outputs, neap__slot *const *out, int trace) {
  static uint64_t serial = 1ull << 62; /* apart from those of ops */
  neap__node *node = &tape->nodes[tape->n_nodes];
  memset(node, 0, sizeof *node);
  node->op = NEAP_OP_REGION;
  node->first = tape->n_values;
  node->n_inputs = (uint8_t)n_inputs;
  node->n_outputs = (uint8_t)n_outputs;
  node->device = (uint8_t)(n_outputs > 0 ? out[0]->storage->device : 0);
  node->n_refs = n_outputs;
  node->place = neap__place;
  node->trace = tape->is_weak ? 0 : trace;
  node->serial = serial++;
  neap__value *value = &tape->values[tape->n_values];
  for (int i = 0; i < n_inputs; i++, value++) {
    neap__trace_needs(in[i]->storage, tape->id);
    value_new(value, in[i], !tape->is_weak, edges[i]);
    if (edges[i] >= 0) {
      tape->nodes[tape->values[edges[i]].edge].n_refs++;
    }
  }
  for (int k = 0; k < n_outputs; k++, value++) {
    value_new(value, out[k], 0, tape->n_nodes);
    out[k]->tape = tape->id;
    out[k]->node = tape->n_nodes;
    out[k]->edge = tape->n_values + n_inputs + k;
    out[k]->serial = node->serial;
  }
  tape->n_values += n_inputs + n_outputs;
  tape->n_nodes++;
}

int neap_tape_record_region(int id, int n_inputs, const double *inputs, int n_outputs,
                            const double *outputs, int trace) {
  neap__slot *in[MOST], *out[MOST];
  int edges[MOST];
  neap__tape *tape = neap__tape_get(id);
  if (tape == NULL) {
    return NEAP_ERR_GRAPH;
  }
  int code = slots_of("arguments", n_inputs, inputs, in);
  code = code < 0 ? code : slots_of("results", n_outputs, outputs, out);
  for (int i = 0; i < n_inputs && code >= 0; i++) {
    edges[i] = -1;
    if (in[i]->storage->is_phantom && !tape->is_weak) {
      code = neap__phantom_error("checkpoint");
    } else if (in[i]->tape != 0 || in[i]->requires_grad) {
      code = neap__edge(tape, in[i], &edges[i]);
    }
  }
  code = code < 0 ? code
                  : neap__host_grow((void **)&tape->nodes, &tape->cap_nodes, tape->n_nodes + 1,
                                    sizeof *tape->nodes);
  code = code < 0 ? code
                  : neap__host_grow((void **)&tape->values, &tape->cap_values,
                                    tape->n_values + n_inputs + n_outputs, sizeof *tape->values);
  if (code >= 0) {
    node_new(tape, n_inputs, in, edges, n_outputs, out, trace);
  }
  return code;
}

static neap__node *region(int id, int node, neap__tape **tape) {
  *tape = neap__tape_get(id);
  if (*tape == NULL) {
    return NULL;
  }
  if (node < 0 || node >= (*tape)->n_nodes || (*tape)->nodes[node].op != NEAP_OP_REGION) {
    neap__error(NEAP_ERR_INVALID, "the tape has no region at node %d", node);
    return NULL;
  }
  return &(*tape)->nodes[node];
}

int neap_tape_region_trace(int id, int node) {
  neap__tape *tape;
  const neap__node *n = region(id, node, &tape);
  return n == NULL ? NEAP_ERR_INVALID : n->trace;
}

double neap_tape_region_input(int id, int node, int input) {
  neap__tape *tape;
  const neap__node *n = region(id, node, &tape);
  if (n == NULL || input < 0 || input >= n->n_inputs) {
    return n == NULL
               ? NEAP_ERR_INVALID
               : neap__error(NEAP_ERR_INVALID, "the region has %d inputs, asked for number %d",
                             n->n_inputs, input + 1);
  }
  const neap__value *value = &tape->values[n->first + input];
  if (value->saved == NULL) {
    return neap__error(NEAP_ERR_GRAPH, "the tape of a trace holds nothing, there is no input %d",
                       input + 1);
  }
  neap__slot *slot = neap__slot_new(value->saved, &value->view);
  if (slot == NULL) {
    return NEAP_ERR_MEMORY;
  }
  value->saved->refs++;
  return neap__slot_id(slot);
}

int neap_tape_is_weak(int id) {
  const neap__tape *tape = neap__tape_get(id);
  return tape == NULL ? NEAP_ERR_GRAPH : tape->is_weak;
}

/* ---- what a tape holds, one by one ---- */

int neap_tape_n_values(int id) {
  const neap__tape *tape = neap__tape_get(id);
  return tape == NULL ? NEAP_ERR_GRAPH : tape->n_values;
}

int neap_tape_value(int id, int value, neap_saved *out) {
  const neap__tape *tape = neap__tape_get(id);
  if (tape == NULL || out == NULL || value < 0 || value >= tape->n_values) {
    return tape == NULL ? NEAP_ERR_GRAPH
                        : neap__error(NEAP_ERR_INVALID,
                                      "the tape has %d values, asked for number "
                                      "%d",
                                      tape->n_values, value + 1);
  }
  int at = 0, above = tape->n_nodes;
  while (above - at > 1) {
    int middle = at + (above - at) / 2;
    if (tape->nodes[middle].first <= value) {
      at = middle;
    } else {
      above = middle;
    }
  }
  const neap__node *node = &tape->nodes[at];
  const neap__value *v = &tape->values[value];
  int number = value - node->first;
  *out = (neap_saved){.op = node->op, .node = at, .n_dims = v->view.n_dims, .dtype = v->view.dtype};
  out->role = number < node->n_inputs                     ? NEAP_SAVED_INPUT
              : number < node->n_inputs + node->n_outputs ? NEAP_SAVED_OUTPUT
                                                          : NEAP_SAVED_EXTRA;
  out->number = number - (out->role == NEAP_SAVED_INPUT    ? 0
                          : out->role == NEAP_SAVED_OUTPUT ? node->n_inputs
                                                           : node->n_inputs + node->n_outputs);
  if (v->saved != NULL) {
    out->storage = (double)v->saved->id;
    out->bytes = (double)v->saved->bytes;
    out->tag = v->saved->tag;
  }
  for (int d = 0; d < v->view.n_dims; d++) {
    out->dims[d] = (double)v->view.dims[d];
  }
  return NEAP_OK;
}
