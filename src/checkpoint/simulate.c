/* The simulator: a plan executed on counters.
 *
 * Live bytes are boundaries, residuals and gradients; a measured stage adds its own peak to what is
 * live at the action's entry, any other one the sums of its table. Storages have identities: one
 * that several tensors share, or that a record holds beside the executor, is counted once and lives
 * until its last holder lets go. x_0 is the batch and never counted. An action that ends keeping
 * nothing first drops x_i; the loss gradient appears after that.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"

enum { BATCH = -1 /* a storage of x_0 */, MAX_REFS = 2 * NEAP_MAX_BOUNDARY };

typedef struct storage {
  int64_t bytes;
  int32_t refs;
  int32_t next_free;
} storage;

typedef struct record {
  int64_t own_bytes;
  int32_t n_refs;
  int32_t refs[MAX_REFS];
} record;

typedef struct machine {
  int n_stages;
  const neap_stage *stages;
  int32_t (*boundaries)[NEAP_MAX_BOUNDARY]; /* of x_i: the storage of each tensor */
  record *records;
  storage *pool;
  int32_t first_free;
  int overflow;             /* set once, looked at after each action */
  int64_t live, grad_bytes; /* grad: the one at the front of the backward walk */
} machine;

static int64_t plus(machine *m, int64_t a, int64_t b) {
  int64_t sum;
  m->overflow |= __builtin_add_overflow(a, b, &sum);
  return sum;
}

/* what was added before, so it overflows only after plus did */
static void lower(machine *m, int64_t bytes) {
  m->overflow |= __builtin_sub_overflow(m->live, bytes, &m->live);
}

/* ---- storages ---- */

static int32_t storage_new(machine *m, int64_t bytes) {
  int32_t id = m->first_free;
  m->first_free = m->pool[id].next_free;
  m->pool[id].bytes = bytes;
  return id;
}

static void storage_hold(machine *m, int32_t id) {
  if (id != BATCH && m->pool[id].refs++ == 0) {
    m->live = plus(m, m->live, m->pool[id].bytes);
  }
}

static void storage_drop(machine *m, int32_t id) {
  if (id != BATCH && --m->pool[id].refs == 0) {
    lower(m, m->pool[id].bytes);
    m->pool[id].next_free = m->first_free;
    m->first_free = id;
  }
}

static int n_tensors(const machine *m, int boundary) {
  if (boundary == 0) {
    return NEAP_MAX_BOUNDARY;
  }
  return m->stages[boundary - 1].measured ? m->stages[boundary - 1].n_out : 1;
}

static void boundary_drop(machine *m, int i) {
  for (int k = 0; k < n_tensors(m, i); k++) {
    storage_drop(m, m->boundaries[i][k]);
  }
}

static void record_drop(machine *m, int i) {
  for (int k = 0; k < m->records[i].n_refs; k++) {
    storage_drop(m, m->records[i].refs[k]);
  }
  lower(m, m->records[i].own_bytes);
}

/* the storages of x_{i+1} as this forward makes them; each is held once, for the caller to drop */
static void outputs_make(machine *m, int i, int32_t *outputs) {
  const neap_stage *stage = &m->stages[i];
  for (int k = 0; k < n_tensors(m, i + 1); k++) {
    int source = stage->measured ? stage->out_source[k] : -1;
    if (source >= 0) {
      outputs[k] = m->boundaries[i][source];
    } else if (source < -1) {
      outputs[k] = outputs[-2 - source];
    } else {
      outputs[k] = storage_new(m, stage->measured ? stage->out_storage_bytes[k] : stage->out_bytes);
    }
    storage_hold(m, outputs[k]);
  }
}

static void record_make(machine *m, int i, const neap_mode *mode, const int32_t *outputs) {
  const neap_stage *stage = &m->stages[i];
  uint32_t saves_in = mode != NULL ? mode->saves_in : stage->saves_in;
  uint32_t saves_out = mode != NULL ? mode->saves_out : stage->saves_out;
  record *r = &m->records[i];
  r->own_bytes = mode != NULL ? mode->saved_bytes : stage->saved_bytes;
  r->n_refs = 0;
  m->live = plus(m, m->live, r->own_bytes);
  for (int k = 0; k < NEAP_MAX_BOUNDARY && stage->measured; k++) {
    if (saves_in >> k & 1) {
      r->refs[r->n_refs++] = m->boundaries[i][k];
    }
    if (saves_out >> k & 1) {
      r->refs[r->n_refs++] = outputs[k];
    }
  }
  for (int k = 0; k < r->n_refs; k++) {
    storage_hold(m, r->refs[k]);
  }
}

/* ---- actions: each returns the peak inside ---- */

static int64_t forward_peak(machine *m, int i, int keep, const neap__effect *effect) {
  const neap_stage *stage = &m->stages[i];
  const neap_mode *mode = effect->mode;
  if (stage->measured) {
    return plus(m, m->live,
                mode != NULL ? mode->forward_peak_bytes
                             : stage->forward_peak_bytes[effect->stops_early ? 3 : keep]);
  }
  int64_t peak = plus(m, m->live, effect->makes_output ? stage->out_bytes : 0);
  if (mode != NULL) {
    return plus(m, plus(m, peak, mode->saved_bytes), mode->forward_extra_bytes);
  }
  peak = plus(m, peak, effect->makes_record ? stage->saved_bytes : 0);
  return plus(m, peak,
              effect->stops_early ? stage->recompute_extra_bytes : stage->forward_extra_bytes);
}

static int64_t run_forward(machine *m, int i, int keep, const neap__effect *effect) {
  int64_t peak = forward_peak(m, i, keep, effect);
  int32_t outputs[NEAP_MAX_BOUNDARY];
  outputs_make(m, i, outputs);
  if (effect->makes_record) {
    record_make(m, i, effect->mode, outputs);
  }
  if (effect->makes_output) {
    memcpy(m->boundaries[i + 1], outputs, sizeof outputs);
  } else {
    /* what the record does not hold was never made */
    for (int k = 0; k < n_tensors(m, i + 1); k++) {
      storage_drop(m, outputs[k]);
    }
  }
  if (effect->drops_input) {
    boundary_drop(m, i);
  }
  if (effect->makes_loss_grad) {
    m->grad_bytes = m->stages[i].out_bytes;
    m->live = plus(m, m->live, m->grad_bytes);
  }
  return peak;
}

static int64_t run_backward(machine *m, int i, const neap_mode *mode) {
  const neap_stage *stage = &m->stages[i];
  int64_t made = 0, peak;
  if (i > 0) {
    made = stage->measured ? stage->grad_bytes : m->stages[i - 1].out_bytes;
  }
  if (stage->measured) {
    peak = plus(m, m->live, mode != NULL ? mode->backward_peak_bytes : stage->backward_peak_bytes);
  } else {
    peak = plus(m, plus(m, m->live, made),
                mode != NULL ? mode->backward_extra_bytes : stage->backward_extra_bytes);
  }
  lower(m, m->grad_bytes);
  record_drop(m, i);
  m->live = plus(m, m->live, made);
  m->grad_bytes = made;
  return peak;
}

static int64_t run(machine *m, const neap_action *action, const neap__effect *effect) {
  int64_t entry = m->live, peak = entry;
  if (action->op == NEAP_ACTION_FORWARD) {
    peak = run_forward(m, action->stage, action->keep, effect);
  } else if (action->op == NEAP_ACTION_BACKWARD) {
    peak = run_backward(m, action->stage, effect->mode);
  } else if (action->op == NEAP_ACTION_FREE_X) {
    boundary_drop(m, action->stage);
  } else {
    record_drop(m, action->stage);
  }
  peak = peak > entry ? peak : entry;
  return peak > m->live ? peak : m->live;
}

static int64_t action_cost(const neap_stage *stages, const neap_action *action,
                           const neap__effect *effect) {
  const neap_mode *mode = effect->mode;
  if (action->op == NEAP_ACTION_BACKWARD) {
    return mode != NULL ? mode->backward_cost : stages[action->stage].backward_cost;
  }
  if (action->op != NEAP_ACTION_FORWARD) {
    return 0;
  }
  if (mode != NULL) {
    return mode->forward_cost;
  }
  return effect->stops_early ? stages[action->stage].recompute_cost
                             : stages[action->stage].forward_cost;
}

/* ---- the whole plan ---- */

/* one block: boundaries, records and a pool for all storages that can be alive at once */
static int machine_begin(machine *m, int n_stages, const neap_stage *stages) {
  size_t n_boundaries = (size_t)n_stages + 1;
  size_t n_storages = (n_boundaries + 1) * NEAP_MAX_BOUNDARY + (size_t)n_stages * MAX_REFS;
  size_t bytes = n_storages * sizeof(storage) + (size_t)n_stages * sizeof(record) +
                 n_boundaries * sizeof(*m->boundaries);
  storage *pool = neap__host_alloc(bytes);
  if (pool == NULL) {
    return neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for simulating %d stages (%zu bytes)",
                       n_stages, bytes);
  }
  *m = (machine){.n_stages = n_stages, .stages = stages, .pool = pool};
  m->records = (record *)(void *)(pool + n_storages);
  m->boundaries = (int32_t(*)[NEAP_MAX_BOUNDARY])(void *)(m->records + n_stages);
  for (size_t k = 0; k < n_storages; k++) {
    pool[k] = (storage){.next_free = (int32_t)k + 1};
  }
  for (int k = 0; k < NEAP_MAX_BOUNDARY; k++) {
    m->boundaries[0][k] = BATCH;
  }
  return NEAP_OK;
}

static int execute(machine *m, neap__walk *walk, neap_simulation *result, int64_t *timeline) {
  int code = NEAP_OK;
  *result = (neap_simulation){.peak_action = 0};
  for (int a = 0; a < walk->n_actions && code == NEAP_OK; a++) {
    const neap_action *action = &walk->actions[a];
    neap__effect effect;
    code = neap__walk_step(walk, a, &effect);
    if (code != NEAP_OK) {
      break;
    }
    int64_t peak = run(m, action, &effect);
    result->cost = plus(m, result->cost, action_cost(m->stages, action, &effect));
    if (m->overflow) {
      code =
          neap__error(NEAP_ERR_OVERFLOW, "action %d: bytes or cost do not fit in 63 bits", a + 1);
      break;
    }
    result->n_forwards += action->op == NEAP_ACTION_FORWARD;
    if (peak > result->peak_bytes) {
      result->peak_bytes = peak;
      result->peak_action = a;
    }
    if (timeline != NULL) {
      timeline[2 * (size_t)a] = m->live;
      timeline[2 * (size_t)a + 1] = peak;
    }
  }
  result->end_bytes = m->live;
  return code == NEAP_OK ? neap__walk_finish(walk) : code;
}

static int simulate(int n_stages, const neap_stage *stages, int n_actions,
                    const neap_action *actions, neap_simulation *result, int64_t *timeline) {
  neap__walk walk;
  machine m = {0};
  int code = neap__walk_begin(&walk, n_stages, stages, n_actions, actions);
  if (code != NEAP_OK) {
    return code;
  }
  code = machine_begin(&m, n_stages, stages);
  if (code == NEAP_OK) {
    code = execute(&m, &walk, result, timeline);
    neap__host_free(m.pool);
  }
  neap__walk_end(&walk);
  return code;
}

int neap_plan_simulate(int n_stages, const neap_stage *stages, int n_actions,
                       const neap_action *actions, neap_simulation *out, int64_t *timeline) {
  if (out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_plan_simulate needs a place for its result");
  }
  /* the first pass writes nothing, so that a bad plan leaves out and timeline as they were */
  neap_simulation result;
  int code = simulate(n_stages, stages, n_actions, actions, &result, NULL);
  if (code == NEAP_OK && timeline != NULL) {
    code = simulate(n_stages, stages, n_actions, actions, &result, timeline);
  }
  if (code == NEAP_OK) {
    *out = result;
  }
  return code;
}
