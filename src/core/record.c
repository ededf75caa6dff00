/* Appends nodes to a tape, and looks into what a tape holds. */
#include <string.h>

#include "core/trace.h"

static uint64_t next_serial = 1;

static int make_room(neap__tape *tape, int n_values) {
  int code = neap__host_grow((void **)&tape->nodes, &tape->cap_nodes, tape->n_nodes + 1,
                             sizeof *tape->nodes);
  return code < 0 ? code
                  : neap__host_grow((void **)&tape->values, &tape->cap_values,
                                    tape->n_values + n_values, sizeof *tape->values);
}

static void value_set(neap__value *value, const neap_view *view, neap__storage *saved, int edge) {
  value->view = *view;
  value->saved = saved;
  value->grad = NULL;
  value->grad_offset = 0;
  value->edge = edge;
  if (saved != NULL) {
    saved->refs++;
    value->version = saved->version;
  } else {
    value->view.data = NULL;
  }
}

static void slot_history(neap__slot *slot, const neap__tape *tape, int node, int value) {
  slot->tape = tape->id;
  slot->node = node;
  slot->edge = value;
  slot->serial = tape->nodes[node].serial;
}

/* the node's inputs refer to what made them */
static void edges_take(neap__tape *tape, const int *edges, int n) {
  for (int i = 0; i < n; i++) {
    if (edges[i] >= 0) {
      tape->nodes[tape->values[edges[i]].edge].n_refs++;
    }
  }
}

int neap__record(neap__tape *tape, int op, const neap__rule *rule, neap__slot *const *in,
                 neap__slot *const *out, neap__storage *const *aux, const int *edges,
                 const neap_rng *rng) {
  int code = make_room(tape, rule->n_inputs + rule->n_outputs);
  if (code < 0) {
    return code;
  }
  neap__node *node = &tape->nodes[tape->n_nodes];
  node->op = op;
  node->first = tape->n_values;
  node->n_inputs = (uint8_t)rule->n_inputs;
  node->n_outputs = (uint8_t)rule->n_outputs;
  node->n_extra = 0;
  node->alias = (uint8_t)rule->alias;
  node->reuse_grad = (uint8_t)rule->reuse_grad;
  node->reuse_in = (uint8_t)rule->reuse_in;
  node->served = 0;
  node->device = (uint8_t)in[0]->storage->device;
  node->n_refs = rule->n_visible;
  node->backward_scratch = rule->backward_scratch;
  node->backward_flops = rule->backward_flops;
  node->serial = next_serial++;
  node->place = neap__place;
  node->trace = 0;
  node->view_first = rule->view_first;
  if (rule->draws) {
    node->rng = *rng;
  }
  memcpy(node->attrs, rule->attrs, sizeof node->attrs);
  neap__value *value = &tape->values[tape->n_values];
  for (int i = 0; i < rule->n_inputs; i++, value++) {
    int saves = !tape->is_weak && (rule->save_in >> i & 1);
    value_set(value, rule->in[i], saves ? in[i]->storage : NULL, edges[i]);
  }
  for (int k = 0; k < rule->n_outputs; k++, value++) {
    neap__storage *storage = k < rule->n_visible ? out[k]->storage : aux[k];
    int saves = !tape->is_weak && (rule->save_out >> k & 1);
    value_set(value, &rule->out[k], saves ? storage : NULL, tape->n_nodes);
    if (k < rule->n_visible) {
      slot_history(out[k], tape, tape->n_nodes, tape->n_values + rule->n_inputs + k);
    }
  }
  edges_take(tape, edges, rule->n_inputs);
  tape->n_values += rule->n_inputs + rule->n_outputs;
  tape->n_nodes++;
  return NEAP_OK;
}

/* ---- Lua ops ---- */

typedef struct lua_call {
  neap__slot *in[NEAP_MAX_INPUTS], *out[NEAP_MAX_OUTPUTS],
      *saved[NEAP_MAX_INPUTS + NEAP_MAX_OUTPUTS];
  int edges[NEAP_MAX_INPUTS];
  int n_inputs, n_outputs, n_saved, device, wanted;
} lua_call;

static int lua_slots(lua_call *c, const char *name, int n, const double *ids, neap__slot **slots) {
  for (int i = 0; i < n; i++) {
    slots[i] = neap__slot_get(ids[i]);
    if (slots[i] == NULL) {
      return NEAP_ERR_STALE;
    }
    c->device = c->device < 0 ? slots[i]->storage->device : c->device;
    if (slots[i]->storage->device != c->device) {
      return neap__error(NEAP_ERR_DEVICE, "%s: its tensors are on different devices", name);
    }
  }
  return NEAP_OK;
}

static int lua_edges(lua_call *c, const char *name, neap__tape *tape) {
  c->wanted = 0;
  for (int i = 0; i < c->n_inputs; i++) {
    c->edges[i] = -1;
    if (c->in[i]->tape != 0 || c->in[i]->requires_grad) {
      int code = neap__edge(tape, c->in[i], &c->edges[i]);
      if (code < 0) {
        return code;
      }
    }
    c->wanted |= c->edges[i] != -1;
  }
  for (int k = 0; k < c->n_outputs; k++) {
    if (c->out[k]->tape != 0 || c->out[k]->requires_grad) {
      return neap__error(NEAP_ERR_GRAPH,
                         "%s: output %d has a history already; a forward function "
                         "returns new tensors",
                         name, k + 1);
    }
  }
  return NEAP_OK;
}

static int lua_append(const lua_call *c, neap__tape *tape, int op) {
  int n_values = c->n_inputs + c->n_outputs + c->n_saved;
  int code = make_room(tape, n_values);
  if (code < 0) {
    return code;
  }
  neap__node *node = &tape->nodes[tape->n_nodes];
  memset(node, 0, sizeof *node);
  node->op = op;
  node->first = tape->n_values;
  node->n_inputs = (uint8_t)c->n_inputs;
  node->n_outputs = (uint8_t)c->n_outputs;
  node->n_extra = (uint8_t)c->n_saved;
  node->device = (uint8_t)c->device;
  node->n_refs = c->n_outputs;
  node->serial = next_serial++;
  node->place = neap__place;
  neap__value *value = &tape->values[tape->n_values];
  for (int i = 0; i < c->n_inputs; i++, value++) {
    value_set(value, &c->in[i]->view, NULL, c->edges[i]);
  }
  for (int k = 0; k < c->n_outputs; k++, value++) {
    value_set(value, &c->out[k]->view, NULL, tape->n_nodes);
    slot_history(c->out[k], tape, tape->n_nodes, tape->n_values + c->n_inputs + k);
  }
  for (int i = 0; i < c->n_saved; i++, value++) {
    neap__trace_needs(c->saved[i]->storage, tape->id);
    value_set(value, &c->saved[i]->view, tape->is_weak ? NULL : c->saved[i]->storage, -1);
  }
  edges_take(tape, c->edges, c->n_inputs);
  tape->n_values += n_values;
  tape->n_nodes++;
  return NEAP_OK;
}

int neap_tape_record_lua(int id, int op, int n_inputs, const double *inputs, int n_outputs,
                         const double *outputs, int n_saved, const double *saved) {
  enum { MOST_SAVED = NEAP_MAX_INPUTS + NEAP_MAX_OUTPUTS };
  neap__tape *tape = neap__tape_get(id);
  if (tape == NULL) {
    return NEAP_ERR_GRAPH;
  }
  if (op < 0 || op >= neap__n_ops || neap__ops[op].kernel >= 0 || inputs == NULL ||
      outputs == NULL || n_inputs != neap__ops[op].least || n_outputs != neap__ops[op].n_outputs ||
      n_saved < 0 || n_saved > MOST_SAVED || (n_saved > 0 && saved == NULL)) {
    return neap__error(NEAP_ERR_INVALID,
                       "record: no Lua op %d with %d inputs, %d outputs and %d "
                       "saved tensors",
                       op, n_inputs, n_outputs, n_saved);
  }
  lua_call c = {.n_inputs = n_inputs, .n_outputs = n_outputs, .n_saved = n_saved, .device = -1};
  const char *name = neap__ops[op].name;
  int code = lua_slots(&c, name, n_inputs, inputs, c.in);
  code = code < 0 ? code : lua_slots(&c, name, n_outputs, outputs, c.out);
  code = code < 0 ? code : lua_slots(&c, name, n_saved, saved, c.saved);
  for (int i = 0; i < n_saved && code >= 0; i++) {
    code = c.saved[i]->storage->is_phantom ? neap__phantom_error(name) : code;
  }
  code = code < 0 ? code : lua_edges(&c, name, tape);
  return code < 0 || !c.wanted ? code : lua_append(&c, tape, op);
}

/* ---- what a tape holds ---- */

static int is_first_use(const neap__tape *tape, int at) {
  for (int i = 0; i < at; i++) {
    if (tape->values[i].saved == tape->values[at].saved) {
      return 0;
    }
  }
  return 1;
}

int neap_tape_saved(int id, int capacity, double *storages, double *bytes, int *tags) {
  neap__tape *tape = neap__tape_get(id);
  if (tape == NULL) {
    return NEAP_ERR_GRAPH;
  }
  int n = 0;
  for (int i = 0; i < tape->n_values; i++) {
    const neap__storage *saved = tape->values[i].saved;
    if (saved != NULL && is_first_use(tape, i)) {
      if (n < capacity && storages != NULL && bytes != NULL && tags != NULL) {
        storages[n] = (double)saved->id;
        bytes[n] = (double)saved->bytes;
        tags[n] = saved->tag;
      }
      n++;
    }
  }
  return n;
}

double neap_tape_saved_bytes(int id) {
  neap__tape *tape = neap__tape_get(id);
  double sum = 0;
  for (int i = 0; tape != NULL && i < tape->n_values; i++) {
    if (tape->values[i].saved != NULL && is_first_use(tape, i)) {
      sum += (double)tape->values[i].saved->bytes;
    }
  }
  return tape == NULL ? NEAP_ERR_GRAPH : sum;
}

int neap_tape_saves(int id, double tensor) {
  neap__tape *tape = neap__tape_get(id);
  neap__slot *slot = tape == NULL ? NULL : neap__slot_get(tensor);
  if (slot == NULL) {
    return tape == NULL ? NEAP_ERR_GRAPH : NEAP_ERR_STALE;
  }
  for (int i = 0; i < tape->n_values; i++) {
    if (tape->values[i].saved == slot->storage) {
      return 1;
    }
  }
  return 0;
}
