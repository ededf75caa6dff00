/* Short chains: schedules that drop a kept boundary before its backward and make it again later.
 *
 * Beside the persistent choices a boundary x_u may be made for the backwards of [j, t) alone, where
 * u <= j, and dropped when it is used for the last time; the rest starts from an earlier boundary
 * again. Of two kept boundaries only the later one is run from, so they nest: of stages that save
 * their inputs no useful schedule is left out.
 *
 * All bytes are sums that never understate; the caller simulates the plans for the exact peaks.
 */
#include <string.h>

#include "checkpoint/solver_apart.h"

static int64_t *at(const neap__apart *x, int64_t *table, int s, int u) {
  return &table[(size_t)s * ((size_t)x->chain->n_stages + 1) + (size_t)u];
}

/* ---- solving ---- */

int neap__apart_new(neap__apart *x, const neap__chain *chain, int64_t max_points) {
  size_t n = (size_t)chain->n_stages, n_lists = n * n * (n + 2), n_peaks = n * (n + 1);
  size_t bytes = NEAP__N_PROBLEMS * n_lists * sizeof(neap__list) + 2 * n_peaks * sizeof(int64_t);
  *x = (neap__apart){.chain = chain, .max_points = max_points};
  x->lists[0] = neap__host_alloc(bytes);
  if (x->lists[0] == NULL) {
    return neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for planning %zu stages (%zu bytes)", n,
                       bytes);
  }
  memset(x->lists[0], 0, bytes);
  x->lists[1] = x->lists[0] + n_lists;
  x->lists[2] = x->lists[1] + n_lists;
  x->sweep_peaks = (int64_t *)(void *)(x->lists[2] + n_lists);
  x->after_peaks = x->sweep_peaks + n_peaks;
  for (int s = 0; s < chain->n_stages; s++) {
    neap__sweep_peaks(chain, s, chain->n_stages, at(x, x->sweep_peaks, s, 0));
    int64_t held = chain->parts[s].in_bytes, peak = 0;
    for (int u = s + 2; u <= chain->n_stages; u++) {
      int64_t live = held + chain->parts[u - 1].in_bytes - neap__shared_bytes(chain, s, u - 1);
      int64_t inside = live + chain->parts[u - 1].nothing_peak;
      int64_t after = held + chain->parts[u - 1].out_bytes - neap__shared_bytes(chain, s, u);
      peak = inside > peak ? inside : peak;
      peak = after > peak ? after : peak;
      *at(x, x->after_peaks, s, u) = peak;
    }
  }
  return NEAP_OK;
}

void neap__apart_free(neap__apart *x) {
  neap__points_free(x->memory);
  neap__host_free(x->shifted);
  neap__host_free(x->lists[0]);
  *x = (neap__apart){0};
}

static int reserve_shifted(neap__apart *x, int64_t n) {
  if (n <= x->n_shifted) {
    return NEAP_OK;
  }
  neap__point *larger = neap__host_alloc(2 * (size_t)n * sizeof *larger);
  if (larger == NULL) {
    return NEAP_ERR_MEMORY;
  }
  neap__host_free(x->shifted);
  x->shifted = larger;
  x->n_shifted = 2 * n;
  return NEAP_OK;
}

static int solve(neap__apart *x, neap__envelope *envelope, neap__problem p) {
  neap__choice c = {.kind = -1};
  neap__point points[2];
  envelope->n = 0;
  while (neap__choice_next(x, p, &c)) {
    neap__split split = neap__choice_split(x, p, &c, points);
    if (neap__envelope_add(envelope, &split) != NEAP_OK) {
      return NEAP_ERR_MEMORY;
    }
  }
  int64_t n = envelope->n;
  if (x->max_points > 0) {
    n = neap__points_thin(envelope->points, n, x->max_points);
  }
  neap__point *list = neap__points_alloc(&x->memory, n + 1);
  if (list == NULL || reserve_shifted(x, n + 1) != NEAP_OK) {
    return NEAP_ERR_MEMORY;
  }
  memcpy(list, envelope->points, (size_t)n * sizeof *list);
  list[n] = (neap__point){NEAP__END, 0};
  *neap__problem_list(x, p) = (neap__list){list, n};
  return NEAP_OK;
}

int neap__apart_run(neap__apart *x) {
  neap__envelope envelope = {0};
  int n = x->chain->n_stages, code = NEAP_OK;
  for (int s = n - 1; s >= 0; s--) {
    for (int column = s + 1; column <= n + 1; column++) {
      int t = column < n ? column : n;
      for (int k = s + 1; k < t && code == NEAP_OK; k++) {
        code = solve(x, &envelope, (neap__problem){NEAP__BRANCH, s, k, column});
      }
      for (int k = s; k < t && code == NEAP_OK; k++) {
        code = solve(x, &envelope, (neap__problem){NEAP__WHOLE, s, k, column});
      }
      for (int k = s + 1; k < t && code == NEAP_OK; k++) {
        code = solve(x, &envelope, (neap__problem){NEAP__LOOSE, s, k, column});
      }
    }
  }
  neap__envelope_free(&envelope);
  if (code != NEAP_OK) {
    code = neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for the lists of plans of %d stages", n);
  }
  return code;
}

neap__list neap__apart_list(const neap__apart *x) {
  return *neap__problem_list(x, (neap__problem){NEAP__WHOLE, 0, 0, x->chain->n_stages + 1});
}

/* ---- the walk back ---- */

/* what is still to do: a problem within peak m, or, with kind < 0, an action of stage s */
typedef struct task {
  neap__problem problem;
  int64_t m;
} task;

enum { BACKWARD = -1, FREE_X = -2 };

static void push(task *stack, int *n, int kind, int s, int k, int column, int64_t m) {
  stack[(*n)++] = (task){{kind, s, k, column}, m};
}

static void push_kept(neap__apart *x, task now, const neap__choice *c, const neap__split *split,
                      neap__writer *writer, task *stack, int *n) {
  neap__problem p = now.problem;
  const neap__way *way = &x->chain->ways[p.s][c->way];
  neap__emit(writer, NEAP_ACTION_FORWARD, p.s, NEAP_KEEP_EVERYTHING, c->way);
  for (int i = p.s + 1; i < c->u; i++) {
    neap__emit(writer, NEAP_ACTION_FORWARD, i, NEAP_KEEP_NOTHING, 0);
  }
  push(stack, n, BACKWARD, p.s, 0, 0, 0);
  if (c->j > p.s + 1) {
    push(stack, n, NEAP__WHOLE, p.s, p.s + 1, c->j, now.m - way->record_bytes - way->record_out);
  }
  push(stack, n, NEAP__LOOSE, c->u, c->j, p.column, now.m - split->below);
}

static void expand(neap__apart *x, task now, neap__writer *writer, task *stack, int *n) {
  neap__problem p = now.problem;
  p.kind = p.kind == NEAP__LOOSE && p.k == p.s ? NEAP__WHOLE : p.kind;
  neap__point points[2], point = neap__list_point(*neap__problem_list(x, p), now.m);
  int64_t cost = point.cost;
  now.m = point.peak;
  neap__split split;
  neap__choice c = {.kind = -1};
  do {
    neap__choice_next(x, p, &c);
    split = neap__choice_split(x, p, &c, points);
  } while (neap__split_cost(&split, now.m) != cost);
  if (c.kind == NEAP__LEAF) {
    neap__emit_leaf(writer, x->chain, p.s, c.way, neap__problem_is_first(x, p));
  } else if (c.kind == NEAP__KEPT) {
    push_kept(x, now, &c, &split, writer, stack, n);
  } else if (c.kind == NEAP__AGAIN) {
    neap__emit_sweep(writer, p.s, x->chain->n_stages);
    neap__emit(writer, NEAP_ACTION_FREE_X, x->chain->n_stages, 0, 0);
    push(stack, n, NEAP__WHOLE, p.s, p.k, x->chain->n_stages, now.m);
  } else if (c.kind == NEAP__SPLIT) {
    if (c.j > p.k) {
      push(stack, n, p.kind, p.s, p.k, c.j, now.m);
    }
    push(stack, n, NEAP__BRANCH, p.s, c.j, p.column, now.m);
  } else if (c.kind == NEAP__FREED) {
    push(stack, n, FREE_X, p.s, 0, 0, 0);
    push(stack, n, NEAP__WHOLE, p.s, p.k, p.column, now.m);
  } else if (c.kind == NEAP__MOVE) {
    neap__emit(writer, NEAP_ACTION_FORWARD, p.s, NEAP_KEEP_NOTHING, 0);
    push(stack, n, NEAP__LOOSE, p.s + 1, p.k, p.column, now.m);
  } else {
    neap__emit_sweep(writer, p.s, c.u);
    push(stack, n, NEAP__LOOSE, c.u, p.k, p.column, now.m - split.below);
  }
}

int neap__apart_actions(neap__apart *x, int64_t m, neap__writer *writer) {
  int n_stages = x->chain->n_stages, n = 0;
  /* each level of the nest leaves at most three behind, and there are two levels a stage */
  task *stack = neap__host_alloc(((size_t)n_stages + 2) * 8 * sizeof *stack);
  if (stack == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a plan of %d stages",
                       n_stages);
  }
  push(stack, &n, NEAP__WHOLE, 0, 0, n_stages + 1, m);
  while (n > 0) {
    task now = stack[--n];
    if (now.problem.kind == BACKWARD) {
      neap__emit_backward(writer, now.problem.s);
    } else if (now.problem.kind == FREE_X) {
      neap__emit(writer, NEAP_ACTION_FREE_X, now.problem.s, 0, 0);
    } else {
      expand(x, now, writer, stack, &n);
    }
  }
  neap__host_free(stack);
  return NEAP_OK;
}
