/* Policies over a whole list of layers, and what dropping them does. The decisions that need the
 * sum of others are in layers_search.c; each other rule is a line here.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

__extension__ typedef unsigned __int128 wide;

static const char *const kind_names[NEAP_N_LAYER_KINDS] = {
    [NEAP_LAYER_OTHER] = "other", [NEAP_LAYER_ATTENTION] = "attention",
    [NEAP_LAYER_FFN] = "ffn",     [NEAP_LAYER_EMBEDDING] = "embedding",
    [NEAP_LAYER_NORM] = "norm",
};

const char *neap_layer_kind_name(int kind) {
  return kind >= 0 && kind < NEAP_N_LAYER_KINDS ? kind_names[kind] : NULL;
}

double neap_layer_cost_ratio(const neap_layer *layer) {
  return layer == NULL || layer->bytes == 0 ? 0.0 : (double)layer->flops / (double)layer->bytes;
}

/* ---- rules ---- */

typedef struct list {
  const neap_layer_policy *policy;
  uint64_t n;
  const neap_layer *layers;
  uint8_t *drops; /* zeros at first */
} list;

typedef int (*rule)(const list *l);

static int rule_none(const list *l) {
  (void)l;
  return NEAP_OK;
}

static int rule_all(const list *l) {
  memset(l->drops, 1, (size_t)l->n);
  return NEAP_OK;
}

static int rule_every_n(const list *l) {
  for (uint64_t i = 0; i < l->n; i++) {
    l->drops[i] = i % l->policy->n == 0;
  }
  return NEAP_OK;
}

static int compare_u64(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static uint64_t *sorted_indices(const uint64_t *indices, uint64_t n) {
  size_t bytes;
  uint64_t *copy = __builtin_mul_overflow(n, sizeof *copy, &bytes) ? NULL : neap__host_alloc(bytes);
  if (copy == NULL) {
    neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for %llu layer indices",
                (unsigned long long)n);
    return NULL;
  }
  if (n > 0) {
    memcpy(copy, indices, bytes);
    qsort(copy, (size_t)n, sizeof *copy, compare_u64);
  }
  return copy;
}

static int rule_specific(const list *l) {
  uint64_t n = l->policy->n_indices, *wanted = sorted_indices(l->policy->indices, n);
  if (wanted == NULL) {
    return NEAP_ERR_MEMORY;
  }
  for (uint64_t i = 0; i < l->n && n > 0; i++) {
    l->drops[i] =
        bsearch(&l->layers[i].index, wanted, (size_t)n, sizeof *wanted, compare_u64) != NULL;
  }
  neap__host_free(wanted);
  return NEAP_OK;
}

static int rule_memory_threshold(const list *l) {
  for (uint64_t i = 0; i < l->n; i++) {
    l->drops[i] = l->layers[i].bytes >= l->policy->bytes;
  }
  return NEAP_OK;
}

static int rule_fewest(const list *l) {
  return neap__layers_fewest(l->n, l->layers, l->policy->bytes, l->drops);
}

static int rule_by_kind(const list *l) {
  for (uint64_t i = 0; i < l->n; i++) {
    l->drops[i] = l->layers[i].kind == l->policy->layer_kind;
  }
  return NEAP_OK;
}

static int rule_ratio(const list *l) {
  uint64_t m = (uint64_t)floor(l->policy->ratio * (double)l->n + 0.5);
  for (uint64_t i = 0; i < m; i++) {
    l->drops[(uint64_t)((wide)i * l->n / m)] = 1;
  }
  return NEAP_OK;
}

static int rule_largest(const list *l) {
  neap__by_size *order = neap__layers_by_size(l->n, l->layers);
  if (order == NULL) {
    return NEAP_ERR_MEMORY;
  }
  for (uint64_t i = 0; i < l->n && i < l->policy->n; i++) {
    l->drops[order[i].position] = 1;
  }
  neap__host_free(order);
  return NEAP_OK;
}

static int rule_budget(const list *l) {
  /* 2^64 and more: everything fits */
  double bytes = floor(l->policy->budget_mib * 1048576.0);
  return neap__layers_budget(
      l->n, l->layers, bytes < 18446744073709551616.0 ? (uint64_t)bytes : UINT64_MAX, l->drops);
}

static const struct {
  const char *name;
  rule decide;
  int needs_only_sizes;
} rules[] = {
    [NEAP_LAYERS_NONE] = {"none", rule_none, 1},
    [NEAP_LAYERS_ALL] = {"all", rule_all, 1},
    [NEAP_LAYERS_EVERY_N] = {"every_n", rule_every_n, 1},
    [NEAP_LAYERS_SPECIFIC] = {"specific", rule_specific, 1},
    [NEAP_LAYERS_MEMORY_THRESHOLD] = {"memory_threshold", rule_memory_threshold, 1},
    [NEAP_LAYERS_FEWEST] = {"fewest", rule_fewest, 1},
    [NEAP_LAYERS_BY_KIND] = {"by_kind", rule_by_kind, 0},
    [NEAP_LAYERS_RATIO] = {"ratio", rule_ratio, 1},
    [NEAP_LAYERS_LARGEST] = {"largest", rule_largest, 1},
    [NEAP_LAYERS_BUDGET] = {"budget", rule_budget, 0},
};

enum { N_RULES = sizeof rules / sizeof *rules };

/* ---- checks ---- */

static int check_policy(const neap_layer_policy *policy) {
  if (policy == NULL || policy->kind < 0 || policy->kind >= N_RULES) {
    return neap__error(NEAP_ERR_INVALID, "invalid policy: its kind is not one of 0..%d",
                       N_RULES - 1);
  }
  switch (policy->kind) {
  case NEAP_LAYERS_SPECIFIC:
    if (policy->n_indices > 0 && policy->indices == NULL) {
      return neap__error(NEAP_ERR_INVALID, "invalid policy: specific has %llu indices and no list",
                         (unsigned long long)policy->n_indices);
    }
    break;
  case NEAP_LAYERS_BY_KIND:
    if (neap_layer_kind_name(policy->layer_kind) == NULL) {
      return neap__error(NEAP_ERR_INVALID, "invalid policy: by_kind names kind %d; allowed 0..%d",
                         (int)policy->layer_kind, NEAP_N_LAYER_KINDS - 1);
    }
    break;
  case NEAP_LAYERS_RATIO:
    if (!(policy->ratio >= 0.0 && policy->ratio <= 1.0)) {
      return neap__error(NEAP_ERR_INVALID, "invalid policy: ratio is %g; allowed 0 to 1",
                         policy->ratio);
    }
    break;
  case NEAP_LAYERS_BUDGET:
    if (!(policy->budget_mib >= 0.0)) {
      return neap__error(NEAP_ERR_INVALID, "invalid policy: budget is %g MiB; allowed 0 and more",
                         policy->budget_mib);
    }
    break;
  default:
    break;
  }
  return NEAP_OK;
}

static int check_unique(uint64_t n, const neap_layer *layers) {
  size_t bytes;
  uint64_t *indices =
      __builtin_mul_overflow(n, sizeof *indices, &bytes) ? NULL : neap__host_alloc(bytes);
  if (indices == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for %llu layer indices",
                       (unsigned long long)n);
  }
  for (uint64_t i = 0; i < n; i++) {
    indices[i] = layers[i].index;
  }
  qsort(indices, (size_t)n, sizeof *indices, compare_u64);
  int code = NEAP_OK;
  for (uint64_t i = 1; i < n && code == NEAP_OK; i++) {
    if (indices[i] == indices[i - 1]) {
      code = neap__error(NEAP_ERR_DUPLICATE, "layer index %llu is in the list twice",
                         (unsigned long long)indices[i]);
    }
  }
  neap__host_free(indices);
  return code;
}

static int check_layers(uint64_t n, const neap_layer *layers) {
  uint64_t total = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (neap_layer_kind_name(layers[i].kind) == NULL) {
      return neap__error(NEAP_ERR_INVALID, "layer %llu has kind %d; allowed 0..%d",
                         (unsigned long long)layers[i].index, (int)layers[i].kind,
                         NEAP_N_LAYER_KINDS - 1);
    }
    if (__builtin_add_overflow(total, layers[i].bytes, &total)) {
      return neap__error(NEAP_ERR_OVERFLOW,
                         "the bytes of %llu layers sum to more than 64 bits hold",
                         (unsigned long long)n);
    }
  }
  return n > 0 ? check_unique(n, layers) : NEAP_OK;
}

/* drops are written only when all went well */
static int decide(const neap_layer_policy *policy, uint64_t n, const neap_layer *layers,
                  uint8_t *drops) {
  uint8_t *decided = n > SIZE_MAX / 2 ? NULL : neap__host_alloc((size_t)n);
  if (decided == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for %llu layers",
                       (unsigned long long)n);
  }
  memset(decided, 0, (size_t)n);
  int code = rules[policy->kind].decide(&(list){policy, n, layers, decided});
  if (code >= 0 && n > 0) {
    memcpy(drops, decided, (size_t)n);
  }
  neap__host_free(decided);
  return code;
}

/* ---- the API ---- */

int neap_layers_drops(const neap_layer_policy *policy, uint64_t n, const neap_layer *layers,
                      uint8_t *drops) {
  int code = check_policy(policy);
  if (code == NEAP_OK && n > 0 && (layers == NULL || drops == NULL)) {
    code = neap__error(NEAP_ERR_INVALID, "%s of %llu layers is NULL",
                       layers == NULL ? "the list" : "the result", (unsigned long long)n);
  }
  if (code == NEAP_OK && policy->kind == NEAP_LAYERS_EVERY_N && policy->n == 0) {
    code = neap__error(NEAP_ERR_INVALID, "invalid policy: every_n needs n of at least 1, found 0; "
                                         "'none' drops nothing");
  }
  code = code == NEAP_OK ? check_layers(n, layers) : code;
  return code == NEAP_OK ? decide(policy, n, layers, drops) : code;
}

int neap_layers_drops_by_size(const neap_layer_policy *policy, uint64_t n, uint64_t n_sizes,
                              const uint64_t *sizes, uint8_t *drops) {
  int code = check_policy(policy);
  if (code == NEAP_OK && ((n > 0 && drops == NULL) || (n_sizes > 0 && sizes == NULL))) {
    code = neap__error(NEAP_ERR_INVALID, "%s of %llu layers is NULL",
                       drops == NULL ? "the result" : "the list of sizes", (unsigned long long)n);
  }
  if (code == NEAP_OK && !rules[policy->kind].needs_only_sizes) {
    code = neap__error(NEAP_ERR_INVALID, "invalid policy: %s needs more than the sizes of layers",
                       rules[policy->kind].name);
  }
  if (code != NEAP_OK) {
    return code;
  }
  neap_layer_policy none = {.kind = NEAP_LAYERS_NONE};
  policy = policy->kind == NEAP_LAYERS_EVERY_N && policy->n == 0 ? &none : policy;
  size_t bytes;
  neap_layer *layers =
      __builtin_mul_overflow(n, sizeof *layers, &bytes) ? NULL : neap__host_alloc(bytes);
  if (layers == NULL) {
    return neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for %llu layers",
                       (unsigned long long)n);
  }
  for (uint64_t i = 0; i < n; i++) {
    layers[i] = (neap_layer){.index = i, .bytes = i < n_sizes ? sizes[i] : 0};
  }
  code = check_layers(n, layers);
  code = code == NEAP_OK ? decide(policy, n, layers, drops) : code;
  neap__host_free(layers);
  return code;
}

int neap_layers_estimate_drops(uint64_t n, const neap_layer *layers, const uint8_t *drops,
                               neap_layers_estimate *out) {
  if (out == NULL || (n > 0 && (layers == NULL || drops == NULL))) {
    return neap__error(NEAP_ERR_INVALID, "neap_layers_estimate_drops was given a NULL");
  }
  neap_layers_estimate e = {.n_layers = n};
  int overflow = 0;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t *sum = drops[i] ? &e.dropped_bytes : &e.stored_bytes;
    overflow |= __builtin_add_overflow(*sum, layers[i].bytes, sum);
    if (drops[i]) {
      e.n_dropped++;
      overflow |= __builtin_add_overflow(e.recompute_flops, layers[i].flops, &e.recompute_flops);
      e.recompute_peak_bytes =
          layers[i].bytes > e.recompute_peak_bytes ? layers[i].bytes : e.recompute_peak_bytes;
    }
  }
  overflow |= __builtin_add_overflow(e.stored_bytes, e.recompute_peak_bytes, &e.estimate_bytes);
  if (overflow) {
    return neap__error(NEAP_ERR_OVERFLOW,
                       "the bytes or FLOPs of %llu layers sum to more than 64 bits hold",
                       (unsigned long long)n);
  }
  wide total = (wide)e.stored_bytes + e.dropped_bytes;
  e.dropped_fraction = n == 0 ? 0.0f : (float)e.n_dropped / (float)n;
  e.freed_fraction = total == 0 ? 0.0 : (double)e.dropped_bytes / (double)total;
  *out = e;
  return NEAP_OK;
}
