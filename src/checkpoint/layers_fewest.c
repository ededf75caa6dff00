/* The fewest layers to drop under a budget of stored bytes; of those the fewest bytes, then the
 * smallest positions.
 *
 * How many is plain: the m largest have to reach what is needed. Which m is a search over the
 * groups of equal size, largest first. A branch ends where the largest layers left do not reach the
 * need, where the smallest left are more than the best found, and where the smallest left reach it.
 * Real models have few sizes, so the search is short.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

typedef struct search {
  uint64_t n, n_groups, need, best_bytes;
  const neap__by_size *order; /* most bytes first */
  uint64_t *sums;             /* sums[i]: bytes of the first i of order */
  uint64_t *starts;           /* first of each group in order; n at the end */
  /* by depth of the search: layers still to choose, bytes chosen before, layers taken here */
  uint64_t *left, *chosen, *taken;
  uint8_t *best, *trial;
  int64_t steps;
  int cut_short;
} search;

static int compare_size(const void *a, const void *b) {
  const neap__by_size *x = a, *y = b;
  if (x->bytes != y->bytes) {
    return x->bytes > y->bytes ? -1 : 1;
  }
  return x->position < y->position ? -1 : x->position > y->position;
}

neap__by_size *neap__layers_by_size(uint64_t n, const neap_layer *layers) {
  size_t bytes;
  neap__by_size *order =
      __builtin_mul_overflow(n, sizeof *order, &bytes) ? NULL : neap__host_alloc(bytes);
  if (order == NULL) {
    neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for the order of %llu layers",
                (unsigned long long)n);
    return NULL;
  }
  for (uint64_t i = 0; i < n; i++) {
    order[i] = (neap__by_size){layers[i].bytes, i};
  }
  qsort(order, (size_t)n, sizeof *order, compare_size);
  return order;
}

int neap__drops_before(uint64_t n, const uint8_t *a, const uint8_t *b) {
  for (uint64_t i = 0; i < n; i++) {
    if (a[i] != b[i]) {
      return a[i];
    }
  }
  return 0;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* the layers taken at depths 0..depth and the `rest` smallest ones, when they beat the best */
static void consider(search *s, uint64_t depth, uint64_t bytes, uint64_t rest) {
  s->steps -= (int64_t)s->n;
  memset(s->trial, 0, (size_t)s->n);
  for (uint64_t g = 0; g < s->n_groups; g++) {
    uint64_t first = s->starts[g], count = s->starts[g + 1] - first,
             after = s->n - s->starts[g + 1];
    uint64_t t = g <= depth ? s->taken[g] : rest > after ? smaller(count, rest - after) : 0;
    for (uint64_t i = 0; i < t; i++) {
      s->trial[s->order[first + i].position] = 1;
    }
  }
  if (bytes < s->best_bytes || neap__drops_before(s->n, s->trial, s->best)) {
    uint8_t *best = s->best;
    s->best = s->trial;
    s->trial = best;
    s->best_bytes = bytes;
  }
}

/* One value of taken[depth]: -1 when no smaller one can do, 1 to go deeper, 0 to go on. */
static int judge(search *s, uint64_t depth, uint64_t *bytes, uint64_t *rest) {
  uint64_t after = s->starts[depth + 1];
  *rest = s->left[depth] - s->taken[depth];
  if (*rest > s->n - after) {
    return -1;
  }
  *bytes = s->chosen[depth] + s->taken[depth] * s->order[s->starts[depth]].bytes;
  if (*bytes + s->sums[after + *rest] - s->sums[after] < s->need) {
    return -1;
  }
  uint64_t least = *bytes + s->sums[s->n] - s->sums[s->n - *rest];
  if (least > s->best_bytes) {
    return 0;
  }
  if (least < s->need) {
    return 1;
  }
  consider(s, depth, least, *rest);
  return 0;
}

static void enter(search *s, uint64_t depth, uint64_t left, uint64_t chosen) {
  s->left[depth] = left;
  s->chosen[depth] = chosen;
  s->taken[depth] = smaller(left, s->starts[depth + 1] - s->starts[depth]);
}

static void run(search *s, uint64_t m) {
  uint64_t depth = 0, bytes = 0, rest = 0;
  s->best_bytes = UINT64_MAX;
  s->steps = NEAP__SEARCH_STEPS;
  enter(s, 0, m, 0);
  /* the first branch always ends in a choice */
  while (s->steps-- > 0 || s->best_bytes == UINT64_MAX) {
    int verdict = judge(s, depth, &bytes, &rest);
    if (verdict > 0) {
      depth++;
      enter(s, depth, rest, bytes);
      continue;
    }
    while (verdict < 0 || s->taken[depth] == 0) {
      if (depth == 0) {
        return;
      }
      depth--;
      verdict = 0;
    }
    s->taken[depth]--;
  }
  s->cut_short = 1;
}

int neap__layers_fewest(uint64_t n, const neap_layer *layers, uint64_t budget, uint8_t *drops) {
  neap__by_size *order = neap__layers_by_size(n, layers);
  if (order == NULL) {
    return NEAP_ERR_MEMORY;
  }
  /* n layers: five tables of up to n + 1 numbers, two results */
  size_t numbers = (size_t)n + 1, bytes;
  uint64_t *tables = __builtin_mul_overflow(numbers, 5 * sizeof *tables + 2, &bytes)
                         ? NULL
                         : neap__host_alloc(bytes);
  if (tables == NULL) {
    neap__host_free(order);
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory to choose among %llu layers",
                       (unsigned long long)n);
  }
  search s = {.n = n, .order = order, .sums = tables, .starts = tables + numbers};
  s.left = tables + 2 * numbers;
  s.chosen = tables + 3 * numbers;
  s.taken = tables + 4 * numbers;
  s.best = (uint8_t *)(tables + 5 * numbers);
  s.trial = s.best + numbers;
  memset(s.best, 0, 2 * numbers);
  s.sums[0] = 0;
  for (uint64_t i = 0; i < n; i++) {
    s.sums[i + 1] = s.sums[i] + order[i].bytes;
    if (i == 0 || order[i].bytes != order[i - 1].bytes) {
      s.starts[s.n_groups++] = i;
    }
  }
  s.starts[s.n_groups] = n;
  if (s.sums[n] > budget) {
    uint64_t m = 1;
    s.need = s.sums[n] - budget;
    while (s.sums[m] < s.need) {
      m++;
    }
    run(&s, m);
    memcpy(drops, s.best, (size_t)n);
  }
  neap__host_free(tables);
  neap__host_free(order);
  return s.cut_short;
}
