/* Runs an op: resolve handles, ask the rule, allocate, compute, record. The only way ops run.
 *
 * When a step fails, everything made so far is undone: no output, no node, no byte more than
 * before.
 */
#include <string.h>

#include "core/rules.h"
#include "core/trace.h"

static neap_counters by_op[NEAP__MAX_OPS];

static double outputs[NEAP_MAX_OUTPUTS];
static int n_outputs;

typedef struct frame {
  neap__rule rule;
  neap__slot *in[NEAP_MAX_INPUTS];
  int edges[NEAP_MAX_INPUTS];
  neap__slot *out[NEAP_MAX_OUTPUTS];
  neap__storage *aux[NEAP_MAX_OUTPUTS]; /* outputs nobody sees, for backward */
  neap_rng rng;
  int device, records, of_gradient;
  neap__traced traced; /* what open and followed traces say about this op */
} frame;

/* slots of the inputs, all on one device; where their gradients go */
static int resolve(frame *f, const neap__op *op, int n, const double *ids) {
  f->device = -1;
  f->records = f->of_gradient = 0;
  f->rule.needs_grad = 0;
  if (n < op->least || n > op->most) {
    return neap__error(NEAP_ERR_INVALID, "%s: expected %d..%d inputs, found %d", op->name,
                       op->least, op->most, n);
  }
  for (int i = 0; i < n; i++) {
    neap__slot *slot = neap__slot_find(ids[i]);
    if (NEAP__UNLIKELY(slot == NULL)) {
      return neap__error(NEAP_ERR_STALE,
                         "%s: input %d is no living tensor (handle %.17g): it was freed, or its "
                         "scope has ended",
                         op->name, i + 1, ids[i]);
    }
    if (NEAP__UNLIKELY(f->device >= 0 && slot->storage->device != f->device)) {
      return neap__error(NEAP_ERR_DEVICE, "%s: input %d is on another device than input 1 (%s, %s)",
                         op->name, i + 1, neap__devices[slot->storage->device].backend->name,
                         neap__devices[f->device].backend->name);
    }
    f->device = slot->storage->device;
    f->of_gradient |= slot->of_gradient;
    f->in[i] = slot;
    f->rule.in[i] = &slot->view;
    f->edges[i] = -1;
    if (neap__selected != NULL && (slot->tape != 0 || slot->requires_grad)) {
      int code = neap__edge(neap__selected, slot, &f->edges[i]);
      if (code < 0) {
        return code;
      }
      f->rule.needs_grad |= f->edges[i] != -1 ? 1u << i : 0;
    }
  }
  f->records = f->rule.needs_grad != 0;
  return NEAP_OK;
}

static int output_new(frame *f, int k) {
  neap_view *view = &f->rule.out[k];
  neap__storage *storage;
  if (f->rule.is_view) {
    storage = f->in[0]->storage;
    storage->refs++;
    view->data = view->n_elements == 0 || storage->is_phantom
                     ? NULL
                     : (char *)f->in[0]->view.data +
                           (size_t)f->rule.view_first * neap__dtype_bytes(view->dtype);
  } else if (f->traced.take[k] != NULL) {
    storage = f->traced.take[k];
    storage->refs++;
    view->data = storage->data;
  } else {
    if (view->n_elements >= INT64_MAX / 8) {
      return neap__error(NEAP_ERR_OVERFLOW, "%s: the output's size overflows", f->rule.name);
    }
    int code = f->traced.skips
                   ? neap__storage_phantom(f->device, neap__tag, &storage)
                   : neap__storage_new(f->device, neap__view_bytes(view), neap__tag, &storage);
    if (code < 0) {
      return code;
    }
    view->data = storage->data;
  }
  if (k >= f->rule.n_visible) {
    f->aux[k] = storage;
    return NEAP_OK;
  }
  f->out[k] = neap__slot_new(storage, view);
  if (f->out[k] == NULL) {
    neap__storage_unref(storage);
    return NEAP_ERR_MEMORY;
  }
  return NEAP_OK;
}

static void undo(frame *f) {
  for (int k = 0; k < NEAP_MAX_OUTPUTS; k++) {
    if (f->out[k] != NULL) {
      neap__slot_free(f->out[k]);
    }
    neap__storage_unref(f->aux[k]);
  }
}

static int compute(frame *f, const neap__op *op) {
  neap__device *device = &neap__devices[f->device];
  neap__storage *scratch;
  int code = neap__scratch(f->device, f->rule.forward_scratch, &scratch);
  if (code < 0 || !device->backend->computes || f->rule.is_view) {
    neap__storage_unref(scratch);
    return code;
  }
  neap_kernel kernel = device->backend->kernels[op->kernel].forward;
  if (kernel == NULL) {
    neap__storage_unref(scratch);
    return neap__error(NEAP_ERR_UNSUPPORTED, "%s: the %s backend does not have it", op->name,
                       device->backend->name);
  }
  neap_call call;
  call.op = op->kernel;
  call.n_inputs = f->rule.n_inputs;
  call.n_outputs = f->rule.n_outputs;
  call.attrs = f->rule.attrs;
  for (int i = 0; i < f->rule.n_inputs; i++) {
    call.in[i] = f->rule.in[i];
  }
  for (int k = 0; k < f->rule.n_outputs; k++) {
    call.out[k] = &f->rule.out[k];
  }
  call.scratch = scratch != NULL ? scratch->data : NULL;
  call.scratch_bytes = f->rule.forward_scratch;
  call.rng = f->rng;
  call.context = device->context;
  code = kernel(&call);
  neap__storage_unref(scratch);
  return code;
}

/* reads or saves what a recomputation left out */
static int check_phantoms(const frame *f, int computes, int saves) {
  for (int i = 0; i < f->rule.n_inputs; i++) {
    if (f->in[i]->storage->is_phantom && (computes || (saves && (f->rule.save_in >> i & 1)))) {
      return neap__phantom_error(f->rule.name);
    }
  }
  return NEAP_OK;
}

static int run(frame *f, int op_id, const neap__op *op) {
  neap__rule *rule = &f->rule;
  int is_weak = f->records && neap__selected->is_weak;
  int computes = !f->traced.skips && f->traced.take[0] == NULL;
  int code = check_phantoms(f, computes && !rule->is_view, f->records && !is_weak);
  for (int k = 0; k < rule->n_outputs && code >= 0; k++) {
    rule->out[k].data = NULL;
    /* what only backward wants is not made when there will be none */
    if (k < rule->n_visible || (f->records && !is_weak) || f->traced.auxes) {
      code = output_new(f, k);
    }
  }
  code = code < 0 || !computes ? code : compute(f, op);
  if (code >= 0 && NEAP__UNLIKELY(neap__traces_active)) {
    code = neap__trace_values(&f->traced, rule, f->in, f->out, f->aux, f->records);
  }
  if (code >= 0 && f->records) {
    code = neap__record(neap__selected, op_id, rule, f->in, f->out, f->aux, f->edges, &f->rng);
  }
  if (code < 0) {
    undo(f);
    return code;
  }
  if (NEAP__UNLIKELY(neap__traces_active)) {
    neap__trace_commit(&f->traced, op_id, rule, f->in, f->out, f->aux, f->records);
  }
  for (int k = rule->n_visible; k < rule->n_outputs; k++) {
    neap__storage_unref(f->aux[k]);
  }
  return NEAP_OK;
}

/* bytes of what the kernel reads and writes; an embedding reads the rows that it writes */
static double moved(const frame *f, const neap__op *op) {
  double bytes = 0;
  if (f->rule.is_view) {
    return 0;
  }
  for (int i = 0; i < f->rule.n_inputs; i++) {
    int rows_only = op->kernel == NEAP_OP_EMBEDDING && i == 1;
    bytes += (double)neap__view_bytes(rows_only ? &f->rule.out[0] : f->rule.in[i]);
  }
  for (int k = 0; k < f->rule.n_outputs; k++) {
    bytes += f->out[k] != NULL || f->aux[k] != NULL ? (double)neap__view_bytes(&f->rule.out[k]) : 0;
  }
  return bytes;
}

static double apply(int op_id, int n, const double *ids, const double *attrs) {
  frame f;
  n_outputs = 0;
  if (NEAP__UNLIKELY(op_id < 0 || op_id >= neap__n_ops || neap__ops[op_id].kernel < 0)) {
    return neap__error(NEAP_ERR_NOT_FOUND, "there is no op number %d that C can run", op_id);
  }
  const neap__op *op = &neap__ops[op_id];
  int code = resolve(&f, op, n, ids);
  if (code < 0) {
    return code;
  }
  neap__rule *rule = &f.rule;
  rule->name = op->name;
  rule->attrs = attrs;
  rule->n_inputs = n;
  rule->n_outputs = rule->n_visible = 1;
  rule->save_in = rule->save_out = rule->alias = rule->reuse_grad = rule->reuse_in = 0;
  rule->is_view = rule->draws = 0;
  rule->view_first = 0;
  rule->forward_scratch = rule->backward_scratch = 0;
  rule->forward_flops = rule->backward_flops = 0;
  memset(f.out, 0, sizeof f.out);
  memset(f.aux, 0, sizeof f.aux);
  code = op->rule(rule);
  f.traced = (neap__traced){.position = -1};
  if (code >= 0 && NEAP__UNLIKELY(neap__traces_active)) {
    code = neap__trace_before(&f.traced, op_id, rule, f.in, f.records);
  }
  if (code < 0) {
    return code;
  }
  if (rule->draws) {
    neap__rng_draw(&f.rng, op->kernel, &rule->out[0]);
  }
  code = run(&f, op_id, op);
  if (code < 0) {
    if (rule->draws) {
      neap__rng_undo();
    }
    return code;
  }
  if (!f.traced.skips && f.traced.take[0] == NULL) {
    by_op[op_id].n_forwards += 1;
    by_op[op_id].forward_flops += rule->forward_flops;
    by_op[op_id].forward_bytes += moved(&f, op);
  }
  for (int k = 0; k < rule->n_visible; k++) {
    f.out[k]->of_gradient = f.of_gradient;
    outputs[k] = neap__slot_id(f.out[k]);
  }
  n_outputs = rule->n_visible;
  return outputs[0];
}

double neap_apply1(int op, double a, double p0, double p1, double p2, double p3) {
  double ids[1] = {a}, attrs[NEAP_MAX_ATTRS] = {p0, p1, p2, p3};
  return apply(op, 1, ids, attrs);
}

double neap_apply2(int op, double a, double b, double p0, double p1, double p2, double p3) {
  double ids[2] = {a, b}, attrs[NEAP_MAX_ATTRS] = {p0, p1, p2, p3};
  return apply(op, 2, ids, attrs);
}

double neap_apply3(int op, double a, double b, double c, double p0, double p1, double p2,
                   double p3) {
  double ids[3] = {a, b, c}, attrs[NEAP_MAX_ATTRS] = {p0, p1, p2, p3};
  return apply(op, 3, ids, attrs);
}

double neap_apply(int op, int n_inputs, const double *inputs, int n_attrs, const double *attrs) {
  double all[NEAP_MAX_ATTRS] = {0};
  if (n_inputs < 1 || n_inputs > NEAP_MAX_INPUTS || inputs == NULL || n_attrs < 0 ||
      n_attrs > NEAP_MAX_ATTRS || (n_attrs > 0 && attrs == NULL)) {
    return neap__error(NEAP_ERR_INVALID, "apply: expected 1..%d inputs and 0..%d attributes",
                       NEAP_MAX_INPUTS, NEAP_MAX_ATTRS);
  }
  for (int i = 0; i < n_attrs; i++) {
    all[i] = attrs[i];
  }
  return apply(op, n_inputs, inputs, all);
}

double neap_apply_output(int k) {
  if (k < 0 || k >= n_outputs) {
    return neap__error(NEAP_ERR_INVALID, "apply: the last op had %d outputs, asked for number %d",
                       n_outputs, k + 1);
  }
  return outputs[k];
}

int neap_counters_get(neap_counters *out) {
  if (out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "counters: no result");
  }
  *out = (neap_counters){0};
  for (int i = 0; i < neap__n_ops; i++) {
    out->n_forwards += by_op[i].n_forwards;
    out->n_backwards += by_op[i].n_backwards;
    out->forward_flops += by_op[i].forward_flops;
    out->backward_flops += by_op[i].backward_flops;
    out->forward_bytes += by_op[i].forward_bytes;
    out->backward_bytes += by_op[i].backward_bytes;
  }
  return NEAP_OK;
}

void neap__count_backward(int op, double flops, double bytes) {
  by_op[op].n_backwards += 1;
  by_op[op].backward_flops += flops;
  by_op[op].backward_bytes += bytes;
}

int neap_counters_of(int op, neap_counters *out) {
  if (out == NULL || op < 0 || op >= neap__n_ops) {
    return neap__error(NEAP_ERR_NOT_FOUND, "counters: there is no op number %d", op);
  }
  *out = by_op[op];
  return NEAP_OK;
}
