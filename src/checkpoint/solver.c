/* The persistent schedules of a chain: for each interval the Pareto list of (peak, cost).
 *
 * [s, t) either keeps everything of stage s and goes on with [s + 1, t), or keeps x_s, runs forward
 * to k keeping nothing, does [k, t) and then comes back for [s, k); one stage alone runs forward
 * and backward. Intervals of one length need only shorter ones, and two with the same sequence of
 * stages have the same list. With unlimited lists this is the optimum over persistent schedules:
 * Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: Optimal checkpointing for heterogeneous chains
 * (2019), on exact bytes instead of a table over discrete memory.
 */
#include <omp.h>
#include <string.h>

#include "checkpoint/solver.h"

int neap__solver_new(neap__solver *solver, const neap__chain *chain,
                     const neap__solver_options *options) {
  size_t n = (size_t)chain->n_stages;
  size_t bytes = n * sizeof(neap__list) + n * n * (sizeof(int64_t) + sizeof(int32_t));
  *solver = (neap__solver){.chain = chain, .options = *options};
  solver->suffixes = neap__host_alloc(bytes);
  if (solver->suffixes == NULL) {
    return neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for planning %zu stages (%zu bytes)", n,
                       bytes);
  }
  solver->sweep_peaks = (int64_t *)(void *)(solver->suffixes + n);
  solver->class_of = (int32_t *)(void *)(solver->sweep_peaks + n * n);
  for (int s = 0; s < chain->n_stages; s++) {
    neap__sweep_peaks(chain, s, chain->n_stages, solver->sweep_peaks + (size_t)s * n - 1);
  }
  return NEAP_OK;
}

void neap__solver_free(neap__solver *solver) {
  neap__points_free(solver->memory);
  neap__host_free(solver->classes);
  neap__host_free(solver->suffixes);
  *solver = (neap__solver){0};
}

/* ---- equal intervals ---- */

static int32_t *class_at(const neap__solver *solver, int s, int t) {
  return &solver->class_of[(size_t)s * (size_t)solver->chain->n_stages + (size_t)t - 1];
}

static void class_stages(neap__solver *solver, int32_t *firsts) {
  int n = solver->chain->n_stages;
  for (int s = 0; s < n; s++) {
    int32_t c = 0;
    while (c < solver->n_classes && !neap__stages_alike(solver->chain, s, firsts[c])) {
      c++;
    }
    if (c == solver->n_classes) {
      firsts[solver->n_classes++] = s;
    }
    *class_at(solver, s, s + 1) = c;
  }
}

/* [s, s + length) is known by [s, s + length - 1) and [s + 1, s + length) */
static void class_intervals(neap__solver *solver, int length, int32_t *table, size_t size) {
  for (size_t k = 0; k < size; k++) {
    table[k] = -1;
  }
  for (int s = 0; s + length <= solver->chain->n_stages; s++) {
    int32_t left = *class_at(solver, s, s + length - 1);
    int32_t right = *class_at(solver, s + 1, s + length);
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15U;
    size_t at = (size_t)(hash >> 40) & (size - 1);
    while (table[at] >= 0 && (*class_at(solver, table[at], table[at] + length - 1) != left ||
                              *class_at(solver, table[at] + 1, table[at] + length) != right)) {
      at = (at + 1) & (size - 1);
    }
    if (table[at] < 0) {
      table[at] = s;
      *class_at(solver, s, s + length) = solver->n_classes++;
    } else {
      *class_at(solver, s, s + length) = *class_at(solver, table[at], table[at] + length);
    }
  }
}

int64_t neap__solver_work(neap__solver *solver) {
  int n = solver->chain->n_stages;
  size_t size = 64;
  while (size < 2 * (size_t)n) {
    size *= 2;
  }
  int32_t *table = neap__host_alloc(size * sizeof *table);
  if (table == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for planning %d stages", n);
  }
  solver->n_classes = 0;
  class_stages(solver, table);
  int64_t work = solver->n_classes;
  for (int length = 2; length <= n; length++) {
    int32_t before = solver->n_classes;
    class_intervals(solver, length, table, size);
    work += ((int64_t)(solver->n_classes - before) + 1) * length;
  }
  neap__host_free(table);
  neap__host_free(solver->classes);
  solver->classes = neap__host_alloc((size_t)solver->n_classes * sizeof(neap__list));
  if (solver->classes == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for %d lists of plans",
                       (int)solver->n_classes);
  }
  memset(solver->classes, 0, (size_t)solver->n_classes * sizeof(neap__list));
  memset(solver->suffixes, 0, (size_t)n * sizeof(neap__list));
  return work;
}

neap__list neap__solver_list(const neap__solver *solver, neap__interval i) {
  return i.first ? solver->suffixes[i.s] : solver->classes[*class_at(solver, i.s, i.t)];
}

/* ---- the alternatives of one interval ---- */

static int is_looked_at(const neap__solver *solver, int s, int k, int t) {
  if (solver->options.few_splits == 0) {
    return 1;
  }
  int near = k - s < t - k ? k - s : t - k, step = 1;
  while (near >= solver->options.few_splits * step) {
    step *= 2;
  }
  return near % step == 0;
}

int neap__solver_split(const neap__solver *solver, neap__interval i, int number, neap__split *split,
                       int *skip) {
  const neap__chain *chain = solver->chain;
  int n_ways = (int)chain->parts[i.s].n_ways, k = i.s + 1 + number - n_ways;
  int64_t grad = i.first ? 0 : chain->parts[i.t - 1].grad_in;
  *skip = 0;
  if (number < n_ways && i.t > i.s + 1) {
    *split = (neap__split){.a = neap__solver_list(solver, (neap__interval){i.s + 1, i.t, i.first}),
                           .below = neap__kept_bytes(chain, i.s, number),
                           .floor = neap__kept_peak(chain, i.s, number, grad),
                           .cost = neap__kept_cost(chain, i.s, number)};
    return 1;
  }
  if (number < n_ways || k >= i.t) {
    return 0;
  }
  if (!is_looked_at(solver, i.s, k, i.t)) {
    *skip = 1;
    return 1;
  }
  *split = (neap__split){
      .a = neap__solver_list(solver, (neap__interval){k, i.t, i.first}),
      .b = neap__solver_list(solver, (neap__interval){i.s, k, 0}),
      .below = chain->parts[i.s].in_bytes - neap__shared_bytes(chain, i.s, k),
      .floor = solver->sweep_peaks[(size_t)i.s * (size_t)chain->n_stages + (size_t)k - 1] + grad,
      .cost = neap__sweep_cost(chain, i.s, k),
  };
  return 1;
}

/* ---- solving ---- */

static int add_leaf(const neap__solver *solver, neap__envelope *envelope, neap__interval i) {
  const neap__chain *chain = solver->chain;
  int code = NEAP_OK;
  for (int way = 0; way < neap__leaf_ways(chain, i.s, i.first) && code == NEAP_OK; way++) {
    const neap__point points[] = {
        {neap__leaf_peak(chain, i.s, way, chain->parts[i.s].grad_in, i.first),
         neap__leaf_cost(chain, i.s, way, i.first)},
        {NEAP__END, 0},
    };
    neap__split split = {.a = {points, 1}};
    code = neap__envelope_add(envelope, &split);
  }
  return code;
}

/* Coarse numbers first: what they leave, the others seldom improve, and are soon skipped. */
static int add_splits(const neap__solver *solver, neap__envelope *envelope, neap__interval i) {
  int n = (int)solver->chain->parts[i.s].n_ways + i.t - i.s - 1, step = 1, skip;
  while (step < n) {
    step *= 2;
  }
  neap__split split;
  for (int first = 0; step >= 1; first = step /= 2) {
    int stride = first == 0 ? step : 2 * step;
    for (int number = first; number < n; number += stride) {
      neap__solver_split(solver, i, number, &split, &skip);
      if (!skip && neap__envelope_add(envelope, &split) != NEAP_OK) {
        return NEAP_ERR_MEMORY;
      }
    }
  }
  return NEAP_OK;
}

static int solve(neap__solver *solver, neap__envelope *envelope, neap__interval i) {
  envelope->n = 0;
  int code = i.t - i.s == 1 ? add_leaf(solver, envelope, i) : add_splits(solver, envelope, i);
  if (code != NEAP_OK) {
    return code;
  }
  int64_t n = envelope->n, cap = solver->options.max_points;
  if (cap > 0) {
    n = neap__points_thin(envelope->points, n, cap);
  }
  neap__point *points;
#pragma omp critical(neap_solver_memory)
  {
    points = neap__points_alloc(&solver->memory, n + 1);
    solver->n_points += n;
    solver->n_thinned += n < envelope->n;
  }
  if (points == NULL) {
    return NEAP_ERR_MEMORY;
  }
  memcpy(points, envelope->points, (size_t)n * sizeof *points);
  points[n] = (neap__point){NEAP__END, 0};
  neap__list *list =
      i.first ? &solver->suffixes[i.s] : &solver->classes[*class_at(solver, i.s, i.t)];
  *list = (neap__list){points, n};
  return NEAP_OK;
}

/* the intervals of one length whose lists are new; returns how many */
static int new_intervals(const neap__solver *solver, int length, neap__interval *tasks) {
  int n = solver->chain->n_stages, n_tasks = 0, known = -1;
  tasks[n_tasks++] = (neap__interval){n - length, n, 1};
  for (int s = 0; s + length < n; s++) {
    /* classes are numbered by length and then by s */
    int c = *class_at(solver, s, s + length);
    if (c > known && solver->classes[c].n == 0) {
      tasks[n_tasks++] = (neap__interval){s, s + length, 0};
      known = c;
    }
  }
  return n_tasks;
}

int neap__solver_run(neap__solver *solver) {
  int n = solver->chain->n_stages, failed = 0;
  neap__interval *tasks = neap__host_alloc((size_t)n * sizeof *tasks);
  if (tasks == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for planning %d stages", n);
  }
#pragma omp parallel num_threads(solver->options.n_threads)
  {
    neap__envelope envelope = {0};
    int n_tasks = 0;
    for (int length = 1; length <= n; length++) {
      static int shared_tasks; /* one solve at a time: one thread drives the library */
#pragma omp single
      shared_tasks = new_intervals(solver, length, tasks);
      n_tasks = shared_tasks;
#pragma omp for schedule(dynamic, 1)
      for (int k = 0; k < n_tasks; k++) {
        int stop;
#pragma omp atomic read
        stop = failed;
        if (!stop && solve(solver, &envelope, tasks[k]) != NEAP_OK) {
#pragma omp atomic write
          failed = 1;
        }
      }
    }
    neap__envelope_free(&envelope);
  }
  neap__host_free(tasks);
  if (failed) {
    return neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for the lists of plans of %d stages, after "
                       "%lld points",
                       n, (long long)solver->n_points);
  }
  return NEAP_OK;
}
