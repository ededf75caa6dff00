/* The frontier of a chain: all its points from one solve, and a plan for each when asked. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/solver.h"

enum {
  MOST_STAGES = 4096,  /* a table of the square of it is kept */
  EXACT_WORK = 260000, /* merges: about 340 equal or 100 unequal stages */
  DEFAULT_POINTS = 320,
  DEFAULT_SPLITS = 8,
  ALIKE_CLASSES = 8, /* distinct intervals a stage, of a chain of equal blocks */
  MOST_APART = 24,   /* stages of a chain whose boundaries may be dropped and made again */
};

/* A point, and at which peak of which solver's list its plan is found. */
typedef struct choice {
  int64_t peak, cost, m;
  int is_apart;
} choice;

struct neap_frontier {
  neap__chain chain;
  neap__solver solver;
  neap__apart apart;
  choice *points;
  int n_points;
  int is_exact;
  double gap;
};

static int check_options(const neap_frontier_options *options) {
  if (options->max_points < 0 || options->max_points == 1 || options->n_threads < 0 ||
      options->n_threads > 1024) {
    return neap__error(NEAP_ERR_INVALID,
                       "frontier: max_points %lld and n_threads %d; allowed are 0 or at least 2, "
                       "and 0..1024",
                       (long long)options->max_points, (int)options->n_threads);
  }
  return NEAP_OK;
}

static neap__list root(const neap__solver *solver) {
  return neap__solver_list(solver, (neap__interval){0, solver->chain->n_stages, 1});
}

/* the largest excess of coarse over fine, as a fraction, where both have a plan */
static double excess(neap__list fine, neap__list coarse) {
  double most = 0;
  for (int64_t k = 0, c = -1; k < fine.n; k++) {
    while (c + 1 < coarse.n && coarse.points[c + 1].peak <= fine.points[k].peak) {
      c++;
    }
    if (c >= 0 && fine.points[k].cost > 0) {
      double more = (double)(coarse.points[c].cost - fine.points[k].cost);
      more /= (double)fine.points[k].cost;
      most = more > most ? more : most;
    }
  }
  return most;
}

/* What a cut solve may miss is judged by what it gains over one with half as much to look at. */
static int estimate_gap(neap_frontier *f) {
  neap__solver_options half = f->solver.options;
  half.max_points = half.max_points > 3 ? half.max_points / 2 : half.max_points > 0 ? 2 : 0;
  half.few_splits /= 2;
  neap__solver coarse;
  int code = neap__solver_new(&coarse, &f->chain, &half);
  if (code == NEAP_OK) {
    int64_t work = neap__solver_work(&coarse);
    code = work < 0 ? (int)work : neap__solver_run(&coarse);
    f->gap = code == NEAP_OK ? 2 * excess(root(&f->solver), root(&coarse)) : 0;
    neap__solver_free(&coarse);
  }
  return code;
}

static int solve(neap_frontier *f, const neap_frontier_options *options) {
  neap__solver_options to = {
      .n_threads = options->n_threads > 0 ? options->n_threads : neap_threads_get(),
  };
  int code = neap__solver_new(&f->solver, &f->chain, &to);
  if (code != NEAP_OK) {
    return code;
  }
  int64_t work = neap__solver_work(&f->solver);
  if (work < 0) {
    return (int)work;
  }
  f->solver.options.max_points = options->max_points;
  if (!options->exact && options->max_points == 0 && work > EXACT_WORK) {
    /* few lists a length: splits are alike and a few of them do; else shorter lists */
    int is_alike = f->solver.n_classes <= ALIKE_CLASSES * f->chain.n_stages;
    f->solver.options.few_splits = is_alike ? DEFAULT_SPLITS : 0;
    f->solver.options.max_points = is_alike ? 0 : DEFAULT_POINTS;
  }
  code = neap__solver_run(&f->solver);
  if (code == NEAP_OK) {
    f->is_exact = f->solver.options.few_splits == 0 && f->solver.n_thinned == 0;
    code = f->is_exact ? NEAP_OK : estimate_gap(f);
  }
  return code;
}

/* ---- the points of both solvers ---- */

static int actions_of(neap_frontier *f, const choice *point, neap__writer *writer) {
  return point->is_apart ? neap__apart_actions(&f->apart, point->m, writer)
                         : neap__solver_actions(&f->solver, point->m, writer);
}

/* the exact peak of a plan whose bytes were sums so far */
static int simulate(neap_frontier *f, const neap_stage *stages, choice *point) {
  neap__writer writer = {0};
  neap_simulation found;
  int code = actions_of(f, point, &writer);
  if (code != NEAP_OK) {
    return code;
  }
  writer = (neap__writer){
      neap__host_alloc((size_t)writer.n * sizeof(neap_action)),
      0,
      writer.n,
  };
  if (writer.actions == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a plan of %lld actions",
                       (long long)writer.capacity);
  }
  code = actions_of(f, point, &writer);
  if (code == NEAP_OK) {
    code =
        neap_plan_simulate(f->chain.n_stages, stages, (int)writer.n, writer.actions, &found, NULL);
  }
  if (code == NEAP_OK) {
    point->peak = found.peak_bytes;
    point->cost = found.cost;
  }
  neap__host_free(writer.actions);
  return code;
}

/* by rising peak, then cost; of equal ones the persistent plan comes first */
static int compare(const void *a, const void *b) {
  const choice *p = a, *q = b;
  if (p->peak != q->peak) {
    return p->peak < q->peak ? -1 : 1;
  }
  if (p->cost != q->cost) {
    return p->cost < q->cost ? -1 : 1;
  }
  return p->is_apart - q->is_apart;
}

static int collect(neap_frontier *f, const neap_stage *stages) {
  neap__list lists[2] = {root(&f->solver), {NULL, 0}};
  if (f->apart.chain != NULL) {
    lists[1] = neap__apart_list(&f->apart);
  }
  f->points = neap__host_alloc((size_t)(lists[0].n + lists[1].n) * sizeof *f->points);
  if (f->points == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a frontier");
  }
  int n = 0, code = NEAP_OK;
  for (int is_apart = 0; is_apart < 2; is_apart++) {
    for (int64_t k = 0; k < lists[is_apart].n && code == NEAP_OK; k++) {
      const neap__point *p = &lists[is_apart].points[k];
      f->points[n] = (choice){p->peak, p->cost, p->peak, is_apart};
      code = is_apart ? simulate(f, stages, &f->points[n]) : NEAP_OK;
      n++;
    }
  }
  if (lists[1].n > 0) {
    qsort(f->points, (size_t)n, sizeof *f->points, compare);
  }
  for (int k = 0; k < n; k++) {
    if (f->n_points == 0 || f->points[k].cost < f->points[f->n_points - 1].cost) {
      f->points[f->n_points++] = f->points[k];
    }
  }
  return code;
}

int neap_frontier_new(int n_stages, const neap_stage *stages, const neap_frontier_options *options,
                      neap_frontier **out) {
  neap_frontier_options defaults = {.with_modes = 1};
  options = options != NULL ? options : &defaults;
  if (out == NULL) {
    return neap__error(NEAP_ERR_INVALID, "neap_frontier_new needs a place for its result");
  }
  int code = check_options(options);
  if (code == NEAP_OK && n_stages > MOST_STAGES) {
    code = neap__error(NEAP_ERR_UNSUPPORTED, "frontier: %d stages, allowed are 1..%d", n_stages,
                       MOST_STAGES);
  }
  if (code != NEAP_OK) {
    return code;
  }
  neap_frontier *f = neap__host_alloc(sizeof *f);
  if (f == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a frontier");
  }
  memset(f, 0, sizeof *f);
  code = neap__chain_new(&f->chain, n_stages, stages, options->with_modes);
  code = code == NEAP_OK ? solve(f, options) : code;
  if (code == NEAP_OK && n_stages <= MOST_APART) {
    code = neap__apart_new(&f->apart, &f->chain, options->max_points);
    code = code == NEAP_OK ? neap__apart_run(&f->apart) : code;
  }
  code = code == NEAP_OK ? collect(f, stages) : code;
  if (code != NEAP_OK) {
    neap_frontier_free(f);
    return code;
  }
  *out = f;
  return NEAP_OK;
}

void neap_frontier_free(neap_frontier *f) {
  if (f == NULL) {
    return;
  }
  neap__host_free(f->points);
  neap__apart_free(&f->apart);
  neap__solver_free(&f->solver);
  neap__chain_free(&f->chain);
  neap__host_free(f);
}

int neap_frontier_n_points(const neap_frontier *f) {
  return f == NULL ? neap__error(NEAP_ERR_INVALID, "the frontier is NULL") : f->n_points;
}

static int check_point(const neap_frontier *f, int k) {
  int n = neap_frontier_n_points(f);
  if (n >= 0 && (k < 0 || k >= n)) {
    return neap__error(NEAP_ERR_INVALID, "point %d of a frontier of %d: allowed are 0..%d", k, n,
                       n - 1);
  }
  return n < 0 ? n : NEAP_OK;
}

int neap_frontier_point(const neap_frontier *f, int k, int64_t *peak_bytes, int64_t *cost) {
  int code = check_point(f, k);
  if (code == NEAP_OK && (peak_bytes == NULL || cost == NULL)) {
    code = neap__error(NEAP_ERR_INVALID, "neap_frontier_point needs places for both numbers");
  }
  if (code == NEAP_OK) {
    *peak_bytes = f->points[k].peak;
    *cost = f->points[k].cost;
  }
  return code;
}

int neap_frontier_actions(neap_frontier *f, int k, int capacity, neap_action *actions) {
  int code = check_point(f, k);
  if (code == NEAP_OK && (capacity < 0 || (actions == NULL && capacity > 0))) {
    code = neap__error(NEAP_ERR_INVALID, "room for %d actions%s", capacity,
                       actions == NULL ? " (NULL)" : "");
  }
  neap__writer writer = {actions, 0, capacity};
  if (code == NEAP_OK) {
    code = actions_of(f, &f->points[k], &writer);
  }
  if (code == NEAP_OK && writer.n > INT32_MAX) {
    code = neap__error(NEAP_ERR_OVERFLOW, "a plan of %lld actions", (long long)writer.n);
  }
  return code == NEAP_OK ? (int)writer.n : code;
}

int neap_frontier_is_exact(const neap_frontier *f) {
  return f == NULL ? neap__error(NEAP_ERR_INVALID, "the frontier is NULL") : f->is_exact;
}

double neap_frontier_gap(const neap_frontier *f) {
  return f == NULL ? (double)neap__error(NEAP_ERR_INVALID, "the frontier is NULL") : f->gap;
}
