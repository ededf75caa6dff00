/* From a point back to its actions. The lists do not say how a point came about: whichever
 * alternative has the same cost at the same peak is one way. Keeping everything is asked first, so
 * that a stage is not run again for nothing.
 */
#include "checkpoint/solver.h"

/* ---- actions ---- */

void neap__emit(neap__writer *w, int op, int stage, int keep, int mode) {
  if (w->n < w->capacity) {
    w->actions[w->n] = (neap_action){.op = op, .stage = stage, .keep = keep, .mode = mode};
  }
  w->n++;
}

void neap__emit_backward(neap__writer *w, int i) {
  neap__emit(w, NEAP_ACTION_BACKWARD, i, 0, 0);
  if (i > 0) {
    neap__emit(w, NEAP_ACTION_FREE_X, i, 0, 0);
  }
}

void neap__emit_leaf(neap__writer *w, const neap__chain *chain, int i, int way, int first) {
  int mode = way < chain->parts[i].n_ways ? way : 0;
  neap__emit(w, NEAP_ACTION_FORWARD, i, NEAP_KEEP_EVERYTHING, mode);
  if (way > 0 || first || !chain->parts[i].stops_early) {
    neap__emit(w, NEAP_ACTION_FREE_X, i + 1, 0, 0);
  }
  neap__emit_backward(w, i);
}

void neap__emit_sweep(neap__writer *w, int s, int t) {
  neap__emit(w, NEAP_ACTION_FORWARD, s, NEAP_KEEP_INPUT, 0);
  for (int i = s + 1; i < t; i++) {
    neap__emit(w, NEAP_ACTION_FORWARD, i, NEAP_KEEP_NOTHING, 0);
  }
}

int neap__leaf_way(const neap__chain *chain, int i, int first, int64_t m, int64_t cost) {
  int way = 0;
  while (way + 1 < neap__leaf_ways(chain, i, first) &&
         (neap__leaf_cost(chain, i, way, first) != cost ||
          neap__leaf_peak(chain, i, way, chain->parts[i].grad_in, first) > m)) {
    way++;
  }
  return way;
}

/* ---- the walk back ---- */

/* what is still to do: an interval within peak m, or, where t = s, the backward of s */
typedef struct task {
  neap__interval interval;
  int64_t m;
} task;

static void expand(const neap__solver *solver, task now, neap__writer *writer, task *stack,
                   int *n) {
  neap__interval i = now.interval;
  /* a cut list may lack what the alternatives have between its points, never what it has there */
  neap__point point = neap__list_point(neap__solver_list(solver, i), now.m);
  int64_t cost = point.cost;
  now.m = point.peak;
  neap__split split;
  if (i.t - i.s == 1) {
    int way = neap__leaf_way(solver->chain, i.s, i.first, now.m, cost);
    neap__emit_leaf(writer, solver->chain, i.s, way, i.first);
    return;
  }
  int number = 0, skip, n_ways = (int)solver->chain->parts[i.s].n_ways;
  while (neap__solver_split(solver, i, number, &split, &skip) &&
         (skip || neap__split_cost(&split, now.m) != cost)) {
    number++;
  }
  int k = number < n_ways ? i.s + 1 : i.s + 1 + number - n_ways;
  if (number < n_ways) {
    neap__emit(writer, NEAP_ACTION_FORWARD, i.s, NEAP_KEEP_EVERYTHING, number);
    stack[(*n)++] = (task){{i.s, i.s, 0}, 0};
  } else {
    neap__emit_sweep(writer, i.s, k);
    stack[(*n)++] = (task){{i.s, k, 0}, now.m};
  }
  stack[(*n)++] = (task){{k, i.t, i.first}, now.m - split.below};
}

int neap__solver_actions(const neap__solver *solver, int64_t m, neap__writer *writer) {
  int n_stages = solver->chain->n_stages, n = 0;
  /* a task leaves one behind and goes on with a shorter one */
  task *stack = neap__host_alloc(((size_t)n_stages + 2) * 2 * sizeof *stack);
  if (stack == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a plan of %d stages",
                       n_stages);
  }
  stack[n++] = (task){{0, n_stages, 1}, m};
  while (n > 0) {
    task now = stack[--n];
    if (now.interval.s == now.interval.t) {
      neap__emit_backward(writer, now.interval.s);
    } else {
      expand(solver, now, writer, stack, &n);
    }
  }
  neap__host_free(stack);
  return NEAP_OK;
}
