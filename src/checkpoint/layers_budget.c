/* The least FLOPs to recompute so that stored bytes + the largest dropped activation fit a budget;
 * of those the fewest layers, then the smallest positions.
 *
 * For each size P the largest dropped one may have: choose among the layers up to P so that their
 * bytes reach total + P - budget. That is covering with least cost: a search over groups of equal
 * layers, fewest FLOPs a byte first, which ends a branch where even fractions of the layers left
 * would cost more than the best found (Dantzig 1957).
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

__extension__ typedef unsigned __int128 wide;

typedef struct item {
  uint64_t bytes, flops, position;
} item;

typedef struct group {
  uint64_t bytes, flops, first, count; /* first: in order */
  uint64_t most_bytes;                 /* of this group and all after it */
} group;

typedef struct level {
  uint64_t need, layers, taken; /* need and layers: on entry */
  wide flops;
} level;

typedef struct search {
  uint64_t n, n_order, n_all, n_groups;
  const neap_layer *layers;
  item *order;         /* fewest FLOPs a byte first */
  group *all, *groups; /* groups: those of all up to the size that is tried */
  level *levels;
  uint8_t *best, *trial;
  wide best_flops;
  uint64_t best_layers;
  int64_t steps;
  int cut_short;
} search;

static int compare_value(const void *a, const void *b) {
  const item *x = a, *y = b;
  wide left = (wide)x->flops * y->bytes, right = (wide)y->flops * x->bytes;
  if (left != right) {
    return left < right ? -1 : 1;
  }
  if (x->bytes != y->bytes) {
    return x->bytes > y->bytes ? -1 : 1;
  }
  return x->position < y->position ? -1 : x->position > y->position;
}

/* layers without bytes help nobody */
static void make_groups(search *s) {
  for (uint64_t i = 0; i < s->n; i++) {
    if (s->layers[i].bytes > 0) {
      s->order[s->n_order++] = (item){s->layers[i].bytes, s->layers[i].flops, i};
    }
  }
  qsort(s->order, (size_t)s->n_order, sizeof *s->order, compare_value);
  for (uint64_t i = 0; i < s->n_order; i++) {
    const item *layer = &s->order[i];
    group *last = s->n_all > 0 ? &s->all[s->n_all - 1] : NULL;
    if (last != NULL && last->bytes == layer->bytes && last->flops == layer->flops) {
      last->count++;
    } else {
      s->all[s->n_all++] = (group){layer->bytes, layer->flops, i, 1, 0};
    }
  }
}

/* Least FLOPs, fractions allowed, that cover need from group g on; 0 when nothing does. */
static int bound(search *s, uint64_t g, uint64_t need, wide *flops) {
  *flops = 0;
  for (; g < s->n_groups; g++) {
    const group *at = &s->groups[g];
    s->steps--;
    if ((wide)at->bytes * at->count >= need) {
      *flops += ((wide)at->flops * need + at->bytes - 1) / at->bytes;
      return 1;
    }
    *flops += (wide)at->flops * at->count;
    need -= at->bytes * at->count;
  }
  return 0;
}

/* what was taken at depths 0..depth, when it beats the best */
static void consider(search *s, uint64_t depth, wide flops, uint64_t layers) {
  if (flops > s->best_flops || (flops == s->best_flops && layers > s->best_layers)) {
    return;
  }
  s->steps -= (int64_t)s->n;
  memset(s->trial, 0, (size_t)s->n);
  for (uint64_t g = 0; g <= depth; g++) {
    for (uint64_t i = 0; i < s->levels[g].taken; i++) {
      s->trial[s->order[s->groups[g].first + i].position] = 1;
    }
  }
  if (flops < s->best_flops || layers < s->best_layers ||
      neap__drops_before(s->n, s->trial, s->best)) {
    uint8_t *best = s->best;
    s->best = s->trial;
    s->trial = best;
    s->best_flops = flops;
    s->best_layers = layers;
  }
}

static void enter(search *s, uint64_t depth, uint64_t need, wide flops, uint64_t layers) {
  const group *at = &s->groups[depth];
  uint64_t enough = need / at->bytes + (need % at->bytes > 0);
  s->levels[depth] = (level){need, layers, enough < at->count ? enough : at->count, flops};
}

/* One value of taken at this depth: -1 when no smaller one can do, 1 to go deeper, 0 to go on. */
static int judge(search *s, uint64_t depth) {
  const level *at = &s->levels[depth];
  const group *here = &s->groups[depth];
  wide covered = (wide)here->bytes * at->taken, flops = at->flops + (wide)here->flops * at->taken;
  uint64_t layers = at->layers + at->taken;
  if (covered >= at->need) {
    consider(s, depth, flops, layers);
    return 0;
  }
  uint64_t need = at->need - (uint64_t)covered;
  wide more;
  if (!bound(s, depth + 1, need, &more) || flops + more > s->best_flops) {
    return -1;
  }
  uint64_t most = s->groups[depth + 1].most_bytes;
  if (flops + more == s->best_flops && layers + need / most + (need % most > 0) > s->best_layers) {
    return 0;
  }
  enter(s, depth + 1, need, flops, layers);
  return 1;
}

static void run(search *s, uint64_t need) {
  uint64_t depth = 0;
  enter(s, 0, need, 0, 0);
  while (s->steps-- > 0) {
    int verdict = judge(s, depth);
    if (verdict > 0) {
      depth++;
      continue;
    }
    while (verdict < 0 || s->levels[depth].taken == 0) {
      if (depth == 0) {
        return;
      }
      depth--;
      verdict = 0;
    }
    s->levels[depth].taken--;
  }
  s->cut_short = 1;
}

/* The groups up to a size; need = total + size - budget. The first size tried, the largest, is met
 * by taking layers in order, so that there is a best to compare with. */
static void try_size(search *s, uint64_t size, uint64_t total, uint64_t budget) {
  wide reach = 0, need = (wide)total + size - budget;
  s->n_groups = 0;
  for (uint64_t g = 0; g < s->n_all; g++) {
    if (s->all[g].bytes <= size) {
      s->groups[s->n_groups++] = s->all[g];
      reach += (wide)s->all[g].bytes * s->all[g].count;
    }
  }
  if (reach < need) {
    return;
  }
  uint64_t most = 0;
  for (uint64_t g = s->n_groups; g-- > 0;) {
    most = s->groups[g].bytes > most ? s->groups[g].bytes : most;
    s->groups[g].most_bytes = most;
  }
  if (s->best_layers == 0) {
    s->best_flops = 0;
    for (uint64_t i = 0, left = (uint64_t)need; left > 0; i++) {
      const item *layer = &s->order[i];
      left -= layer->bytes < left ? layer->bytes : left;
      s->best[layer->position] = 1;
      s->best_flops += layer->flops;
      s->best_layers++;
    }
  }
  run(s, (uint64_t)need);
}

/* one block: order, both lists of groups, levels, two results */
static int search_begin(search *s, uint64_t n, const neap_layer *layers) {
  size_t each = sizeof(level) + 2 * sizeof(group) + sizeof(item) + 2, bytes;
  *s = (search){.n = n, .layers = layers, .steps = NEAP__SEARCH_STEPS};
  s->levels = __builtin_mul_overflow(n, each, &bytes) ? NULL : neap__host_alloc(bytes);
  if (s->levels == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory to choose among %llu layers",
                       (unsigned long long)n);
  }
  s->all = (group *)(s->levels + n);
  s->groups = s->all + n;
  s->order = (item *)(s->groups + n);
  s->best = (uint8_t *)(s->order + n);
  s->trial = s->best + n;
  memset(s->best, 0, 2 * (size_t)n);
  make_groups(s);
  return NEAP_OK;
}

int neap__layers_budget(uint64_t n, const neap_layer *layers, uint64_t budget, uint8_t *drops) {
  uint64_t total = 0, largest = 0;
  for (uint64_t i = 0; i < n; i++) {
    total += layers[i].bytes;
    largest = layers[i].bytes > largest ? layers[i].bytes : largest;
  }
  if (total <= budget) {
    return NEAP_OK;
  }
  if (largest > budget) {
    return neap__error(NEAP_ERR_INFEASIBLE,
                       "memory budget %llu bytes is smaller than the minimum required %llu bytes",
                       (unsigned long long)budget, (unsigned long long)largest);
  }
  neap__by_size *sizes = neap__layers_by_size(n, layers);
  if (sizes == NULL) {
    return NEAP_ERR_MEMORY;
  }
  search s;
  int code = search_begin(&s, n, layers);
  for (uint64_t i = 0; i < n && code == NEAP_OK && sizes[i].bytes > 0 && !s.cut_short; i++) {
    if (i == 0 || sizes[i].bytes != sizes[i - 1].bytes) {
      try_size(&s, sizes[i].bytes, total, budget);
    }
  }
  if (code == NEAP_OK) {
    memcpy(drops, s.best, (size_t)n);
    code = s.cut_short;
    neap__host_free(s.levels);
  }
  neap__host_free(sizes);
  return code;
}
