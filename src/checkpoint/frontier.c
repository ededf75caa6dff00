/* The frontier of a chain: all its points from one solve, and a plan for each when asked. */
#include <string.h>

#include "checkpoint/solver.h"

enum {
  MOST_STAGES = 4096,  /* a table of the square of it is kept */
  EXACT_WORK = 260000, /* merges: about 340 equal or 100 unequal stages */
  DEFAULT_POINTS = 512,
};

struct neap_frontier {
  neap__chain chain;
  neap__solver solver;
  neap__list points;
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
    f->solver.options.few_splits = f->solver.n_classes <= 8 * f->chain.n_stages;
    f->solver.options.max_points = f->solver.options.few_splits ? 0 : DEFAULT_POINTS;
  }
  code = neap__solver_run(&f->solver);
  if (code == NEAP_OK) {
    f->points = neap__solver_list(&f->solver, (neap__interval){0, f->chain.n_stages, 1});
    f->is_exact = !f->solver.options.few_splits && f->solver.n_thinned == 0;
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
  neap__solver_free(&f->solver);
  neap__chain_free(&f->chain);
  neap__host_free(f);
}

int neap_frontier_n_points(const neap_frontier *f) {
  return f == NULL ? neap__error(NEAP_ERR_INVALID, "the frontier is NULL") : (int)f->points.n;
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
    *peak_bytes = f->points.points[k].peak;
    *cost = f->points.points[k].cost;
  }
  return code;
}

int neap_frontier_actions(const neap_frontier *f, int k, int capacity, neap_action *actions) {
  int code = check_point(f, k);
  if (code == NEAP_OK && (capacity < 0 || (actions == NULL && capacity > 0))) {
    code = neap__error(NEAP_ERR_INVALID, "room for %d actions%s", capacity,
                       actions == NULL ? " (NULL)" : "");
  }
  neap__writer writer = {actions, 0, capacity};
  if (code == NEAP_OK) {
    code = neap__solver_actions(&f->solver, f->points.points[k].peak, &writer);
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
