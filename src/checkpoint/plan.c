/* Plans: how the policies and segments become actions, and the rules that an action must keep.
 *
 * What is there: x_0..x_L (x_0 always, it is never freed), r_0..r_{L-1}, and the gradient at the
 * front of the backward walk. `forward i` needs x_i and makes x_{i+1}, which must not be there yet;
 * it keeps nothing (x_i goes), its input (x_i stays) or everything (x_i stays, r_i appears).
 * `backward i` needs x_i, r_i and the gradient of x_{i+1}, and frees r_i and that gradient;
 * backwards come in the order L-1..0, each once. `free` takes what is there. At the end nothing may
 * be left. When a stage stops early, a recomputation (a forward keeping everything that is not the
 * stage's first) with the stage's backward as the very next action makes no x_{i+1}; one in a named
 * mode always makes it.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"

static const char *const keep_names[] = {"nothing", "input", "everything"};

/* ---- the walk ---- */

int neap__walk_begin(neap__walk *walk, int n_stages, const neap_stage *stages, int n_actions,
                     const neap_action *actions) {
  int code = neap__stages_check(n_stages, stages);
  if (code != NEAP_OK) {
    return code;
  }
  if (n_actions < 0 || actions == NULL) {
    return neap__error(NEAP_ERR_INVALID, "a plan of %d actions%s", n_actions,
                       actions == NULL ? " (NULL)" : "");
  }
  size_t bytes = 3 * (size_t)n_stages + 1;
  uint8_t *flags = neap__host_alloc(bytes);
  if (flags == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a plan of %d stages",
                       n_stages);
  }
  memset(flags, 0, bytes);
  flags[0] = 1; /* x_0 is always there */
  *walk = (neap__walk){
      .n_stages = n_stages,
      .n_actions = n_actions,
      .stages = stages,
      .actions = actions,
      .next_backward = n_stages - 1,
      .held = flags,
      .recorded = flags + n_stages + 1,
      .ran = flags + 2 * (size_t)n_stages + 1,
  };
  return NEAP_OK;
}

void neap__walk_end(neap__walk *walk) {
  neap__host_free(walk->held);
}

static int step_forward(neap__walk *walk, int a, neap__effect *effect) {
  int i = walk->actions[a].stage, keep = walk->actions[a].keep;
  if (keep < NEAP_KEEP_NOTHING || keep > NEAP_KEEP_EVERYTHING) {
    return neap__error(NEAP_ERR_PLAN, "action %d (forward %d): keep %d is not one of 0..2", a + 1,
                       i, keep);
  }
  if (!walk->held[i]) {
    return neap__error(NEAP_ERR_PLAN, "action %d (forward %d): reads x_%d, which is not there",
                       a + 1, i, i);
  }
  if (keep == NEAP_KEEP_EVERYTHING && walk->recorded[i]) {
    return neap__error(NEAP_ERR_PLAN,
                       "action %d (forward %d, keep %s): the record r_%d is there already", a + 1,
                       i, keep_names[keep], i);
  }
  const neap_action *next = a + 1 < walk->n_actions ? &walk->actions[a + 1] : NULL;
  effect->stops_early = walk->stages[i].stops_early && keep == NEAP_KEEP_EVERYTHING &&
                        effect->mode == NULL && walk->ran[i] && next != NULL &&
                        next->op == NEAP_ACTION_BACKWARD && next->stage == i;
  effect->makes_output = !effect->stops_early;
  if (effect->makes_output && walk->held[i + 1]) {
    return neap__error(NEAP_ERR_PLAN, "action %d (forward %d): makes x_%d, which is there already",
                       a + 1, i, i + 1);
  }
  effect->makes_record = keep == NEAP_KEEP_EVERYTHING;
  effect->drops_input = keep == NEAP_KEEP_NOTHING && i > 0;
  effect->makes_loss_grad = i == walk->n_stages - 1 && !walk->ran[i];
  walk->ran[i] = 1;
  walk->held[i + 1] |= (uint8_t)effect->makes_output;
  if (effect->makes_record) {
    walk->recorded[i] = (uint8_t)(1 + walk->actions[a].mode);
  }
  walk->held[i] &= (uint8_t)!effect->drops_input;
  return NEAP_OK;
}

static int step_backward(neap__walk *walk, int a, neap__effect *effect) {
  int i = walk->actions[a].stage;
  if (i != walk->next_backward) {
    if (walk->next_backward < 0) {
      return neap__error(NEAP_ERR_PLAN, "action %d (backward %d): all backwards are done", a + 1,
                         i);
    }
    return neap__error(NEAP_ERR_PLAN, "action %d (backward %d): the next backward is that of %d",
                       a + 1, i, walk->next_backward);
  }
  if (!walk->ran[walk->n_stages - 1]) {
    return neap__error(NEAP_ERR_PLAN,
                       "action %d (backward %d): reads the gradient of x_%d, which is not there",
                       a + 1, i, i + 1);
  }
  if (!walk->held[i] || !walk->recorded[i]) {
    return neap__error(NEAP_ERR_PLAN, "action %d (backward %d): reads %s_%d, which is not there",
                       a + 1, i, walk->held[i] ? "r" : "x", i);
  }
  effect->mode = walk->recorded[i] > 1 ? &walk->stages[i].modes[walk->recorded[i] - 2] : NULL;
  walk->recorded[i] = 0;
  walk->next_backward--;
  return NEAP_OK;
}

static int step_mode(const neap__walk *walk, int a, neap__effect *effect) {
  const neap_action *action = &walk->actions[a];
  if (action->op != NEAP_ACTION_FORWARD || action->keep != NEAP_KEEP_EVERYTHING) {
    return neap__error(
        NEAP_ERR_PLAN,
        "action %d: mode %d of stage %d, but only a forward keeping everything has a "
        "mode",
        a + 1, (int)action->mode, (int)action->stage);
  }
  const neap_stage *stage = &walk->stages[action->stage];
  if (action->mode < 0 || action->mode > stage->n_modes) {
    return neap__error(NEAP_ERR_PLAN, "action %d: stage %d has no mode %d", a + 1,
                       (int)action->stage, (int)action->mode);
  }
  effect->mode = &stage->modes[action->mode - 1];
  return NEAP_OK;
}

int neap__walk_step(neap__walk *walk, int a, neap__effect *effect) {
  const neap_action *action = &walk->actions[a];
  int free_x = action->op == NEAP_ACTION_FREE_X;
  *effect = (neap__effect){0};
  if (action->op < NEAP_ACTION_FORWARD || action->op > NEAP_ACTION_FREE_R) {
    return neap__error(NEAP_ERR_PLAN, "action %d: op %d is not one of 0..3", a + 1,
                       (int)action->op);
  }
  if (action->stage < free_x || action->stage >= walk->n_stages + free_x) {
    return neap__error(NEAP_ERR_PLAN, "action %d: stage %d is not one of %d..%d", a + 1,
                       (int)action->stage, free_x, walk->n_stages - 1 + free_x);
  }
  if (action->mode != 0) {
    int code = step_mode(walk, a, effect);
    if (code != NEAP_OK) {
      return code;
    }
  }
  if (action->op == NEAP_ACTION_FORWARD) {
    return step_forward(walk, a, effect);
  }
  if (action->op == NEAP_ACTION_BACKWARD) {
    return step_backward(walk, a, effect);
  }
  uint8_t *there = free_x ? &walk->held[action->stage] : &walk->recorded[action->stage];
  if (!*there) {
    return neap__error(NEAP_ERR_PLAN, "action %d (free %s_%d): it is not there", a + 1,
                       free_x ? "x" : "r", (int)action->stage);
  }
  *there = 0;
  return NEAP_OK;
}

int neap__walk_finish(const neap__walk *walk) {
  if (walk->next_backward >= 0) {
    return neap__error(NEAP_ERR_PLAN, "after action %d: the backward of stage %d is missing",
                       walk->n_actions, walk->next_backward);
  }
  for (int i = 1; i <= walk->n_stages; i++) {
    if (walk->held[i]) {
      return neap__error(NEAP_ERR_PLAN, "after action %d: x_%d is still there", walk->n_actions, i);
    }
  }
  for (int i = 0; i < walk->n_stages; i++) {
    if (walk->recorded[i]) {
      return neap__error(NEAP_ERR_PLAN, "after action %d: r_%d is still there", walk->n_actions, i);
    }
  }
  return NEAP_OK;
}

int neap_plan_validate(int n_stages, const neap_stage *stages, int n_actions,
                       const neap_action *actions) {
  neap__walk walk;
  neap__effect effect;
  int code = neap__walk_begin(&walk, n_stages, stages, n_actions, actions);
  if (code != NEAP_OK) {
    return code;
  }
  for (int a = 0; a < n_actions && code == NEAP_OK; a++) {
    code = neap__walk_step(&walk, a, &effect);
  }
  if (code == NEAP_OK) {
    code = neap__walk_finish(&walk);
  }
  neap__walk_end(&walk);
  return code;
}

/* ---- the plans of policies and segments ---- */

typedef struct writer {
  const neap_stage *stages;
  neap_action *actions;
  int n;
} writer;

static void emit(writer *w, int op, int stage, int keep) {
  w->actions[w->n++] = (neap_action){.op = op, .stage = stage, .keep = keep};
}

static void emit_backward(writer *w, int i) {
  emit(w, NEAP_ACTION_BACKWARD, i, 0);
  if (i > 0) {
    emit(w, NEAP_ACTION_FREE_X, i, 0);
  }
}

/* a recomputation whose output nobody reads: its backward comes next */
static void emit_last_recompute(writer *w, int i) {
  emit(w, NEAP_ACTION_FORWARD, i, NEAP_KEEP_EVERYTHING);
  if (!w->stages[i].stops_early) {
    emit(w, NEAP_ACTION_FREE_X, i + 1, 0);
  }
}

int neap_plan_capacity(int n_stages) {
  if (n_stages < 1 || n_stages > NEAP__MAX_STAGES) {
    return neap__error(NEAP_ERR_INVALID, "a chain of %d stages: allowed are 1..%d", n_stages,
                       NEAP__MAX_STAGES);
  }
  return 5 * n_stages + 1;
}

int neap_plan_from_drops(int n_stages, const neap_stage *stages, const uint8_t *drops,
                         neap_action *actions) {
  int code = neap__stages_check(n_stages, stages);
  if (code != NEAP_OK) {
    return code;
  }
  if (drops == NULL || actions == NULL) {
    return neap__error(NEAP_ERR_INVALID, "%s is NULL", drops == NULL ? "drops" : "actions");
  }
  writer w = {stages, actions, 0};
  for (int i = 0; i < n_stages; i++) {
    emit(&w, NEAP_ACTION_FORWARD, i, drops[i] ? NEAP_KEEP_INPUT : NEAP_KEEP_EVERYTHING);
  }
  emit(&w, NEAP_ACTION_FREE_X, n_stages, 0);
  for (int i = n_stages - 1; i >= 0; i--) {
    if (drops[i]) {
      emit_last_recompute(&w, i);
    }
    emit_backward(&w, i);
  }
  return w.n;
}

static int starts_check(int n_stages, int n_segments, const int32_t *starts) {
  if (starts == NULL) {
    return neap__error(NEAP_ERR_INVALID, "starts is NULL");
  }
  if (n_segments < 1 || n_segments > n_stages) {
    return neap__error(NEAP_ERR_SEGMENT_COUNT, "%d segments of %d stages: allowed are 1..%d",
                       n_segments, n_stages, n_stages);
  }
  for (int k = 0; k < n_segments; k++) {
    int least = k == 0 ? 0 : starts[k - 1] + 1;
    if (starts[k] < least || starts[k] >= n_stages || (k == 0 && starts[k] > 0)) {
      return neap__error(NEAP_ERR_SEGMENT, "segment %d starts at stage %d, allowed are %d..%d", k,
                         (int)starts[k], least, k == 0 ? 0 : n_stages - 1);
    }
  }
  return NEAP_OK;
}

int neap_plan_from_segments(int n_stages, const neap_stage *stages, int n_segments,
                            const int32_t *starts, neap_action *actions) {
  int code = neap__stages_check(n_stages, stages);
  if (code == NEAP_OK) {
    code = starts_check(n_stages, n_segments, starts);
  }
  if (code != NEAP_OK) {
    return code;
  }
  if (actions == NULL) {
    return neap__error(NEAP_ERR_INVALID, "actions is NULL");
  }
  writer w = {stages, actions, 0};
  int last = starts[n_segments - 1];
  for (int i = 0, k = 0; i < n_stages; i++) {
    int is_start = k < n_segments && starts[k] == i;
    k += is_start;
    emit(&w, NEAP_ACTION_FORWARD, i,
         i >= last  ? NEAP_KEEP_EVERYTHING
         : is_start ? NEAP_KEEP_INPUT
                    : NEAP_KEEP_NOTHING);
  }
  emit(&w, NEAP_ACTION_FREE_X, n_stages, 0);
  for (int k = n_segments - 1, end = n_stages; k >= 0; end = starts[k], k--) {
    for (int i = starts[k]; i < end - 1 && k < n_segments - 1; i++) {
      emit(&w, NEAP_ACTION_FORWARD, i, NEAP_KEEP_EVERYTHING);
    }
    if (k < n_segments - 1) {
      emit_last_recompute(&w, end - 1);
    }
    for (int i = end - 1; i >= starts[k]; i--) {
      emit_backward(&w, i);
    }
  }
  return w.n;
}
