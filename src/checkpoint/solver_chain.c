/* A chain in the terms of the solver: each stage's peaks over what is live at its entry, and who
 * shares which storage. It says the same as the simulator, in sums instead of counters.
 *
 * In the solver's schedules x_i stays while r_i is there, and x_{i+1} stays until just before the
 * backward of i. So a storage that two of them hold is counted with the earlier boundary, and a
 * record adds to it only what it holds alone.
 */
#include <string.h>

#include "checkpoint/solver.h"

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* ---- storages ---- */

static int n_tensors(const neap_stage *stages, int boundary) {
  if (boundary == 0) {
    return 0; /* the batch counts nothing */
  }
  return stages[boundary - 1].measured ? stages[boundary - 1].n_out : 1;
}

static void name_storages(neap__chain *chain, const neap_stage *stages) {
  int32_t next = 0;
  for (int k = 0; k < (chain->n_stages + 1) * NEAP_MAX_BOUNDARY; k++) {
    chain->storages[k] = -1;
  }
  for (int i = 0; i < chain->n_stages; i++) {
    const neap_stage *stage = &stages[i];
    int32_t *in = chain->storages + (size_t)i * NEAP_MAX_BOUNDARY, *out = in + NEAP_MAX_BOUNDARY;
    int64_t *in_bytes = chain->storage_bytes + (size_t)i * NEAP_MAX_BOUNDARY;
    int64_t *out_bytes = in_bytes + NEAP_MAX_BOUNDARY;
    for (int k = 0; k < n_tensors(stages, i + 1); k++) {
      int source = stage->measured ? stage->out_source[k] : -1;
      if (source == -1) {
        out[k] = next++;
        out_bytes[k] = stage->measured ? stage->out_storage_bytes[k] : stage->out_bytes;
      } else {
        const int32_t *from = source >= 0 ? in + source : out - 2 - source;
        const int64_t *bytes = source >= 0 ? in_bytes + source : out_bytes - 2 - source;
        out[k] = *from;
        out_bytes[k] = *from < 0 ? 0 : *bytes;
        chain->inherits[i + 1] |= (uint8_t)(source >= 0 && *from >= 0);
      }
    }
  }
}

/* bytes of x_i's distinct storages that are in mask and, when in_other is 0 or 1, in x_j or not */
static int64_t boundary_bytes(const neap__chain *chain, int i, uint32_t mask, int j, int in_other) {
  const int32_t *own = chain->storages + (size_t)i * NEAP_MAX_BOUNDARY;
  const int32_t *other = chain->storages + (size_t)j * NEAP_MAX_BOUNDARY;
  int64_t sum = 0;
  for (int k = 0; k < NEAP_MAX_BOUNDARY; k++) {
    int counts = own[k] >= 0 && (mask >> k & 1);
    for (int e = 0; e < k && counts; e++) {
      counts = own[e] != own[k] || !(mask >> e & 1);
    }
    int found = 0;
    for (int e = 0; e < NEAP_MAX_BOUNDARY && counts; e++) {
      found |= other[e] == own[k];
    }
    sum += counts && (in_other < 0 || found == in_other)
               ? chain->storage_bytes[(size_t)i * NEAP_MAX_BOUNDARY + (size_t)k]
               : 0;
  }
  return sum;
}

int64_t neap__shared_bytes(const neap__chain *chain, int s, int t) {
  for (int i = s + 1; i <= t; i++) {
    if (!chain->inherits[i]) {
      return 0;
    }
  }
  return boundary_bytes(chain, s, ~0U, t, 1);
}

/* which of x_i's tensors, and then of x_{i+1}'s, are the same storage */
static int same_pattern(const neap__chain *chain, int i, int j) {
  size_t a = (size_t)i * NEAP_MAX_BOUNDARY, b = (size_t)j * NEAP_MAX_BOUNDARY;
  const int32_t *p = chain->storages + a, *q = chain->storages + b;
  if (memcmp(chain->storage_bytes + a, chain->storage_bytes + b,
             2 * NEAP_MAX_BOUNDARY * sizeof(int64_t)) != 0) {
    return 0;
  }
  for (int k = 0; k < 2 * NEAP_MAX_BOUNDARY; k++) {
    for (int e = 0; e <= k; e++) {
      if ((p[e] < 0) != (q[e] < 0) || (p[e] == p[k]) != (q[e] == q[k])) {
        return 0;
      }
    }
  }
  return 1;
}

int neap__stages_alike(const neap__chain *chain, int i, int j) {
  size_t n_ways = (size_t)chain->parts[i].n_ways;
  return memcmp(&chain->parts[i], &chain->parts[j], sizeof(neap__part)) == 0 &&
         memcmp(chain->ways[i], chain->ways[j], n_ways * sizeof(neap__way)) == 0 &&
         same_pattern(chain, i, j);
}

/* ---- the stages ---- */

static neap__way way_of(const neap__chain *chain, const neap_stage *stages, int i, int m) {
  const neap_stage *stage = &stages[i];
  const neap_mode *mode = m > 0 ? &stage->modes[m - 1] : NULL;
  int64_t saved = mode != NULL ? mode->saved_bytes : stage->saved_bytes;
  neap__way way = {.record_bytes = saved,
                   .forward_cost = mode != NULL ? mode->forward_cost : stage->forward_cost,
                   .backward_cost = mode != NULL ? mode->backward_cost : stage->backward_cost};
  if (stage->measured) {
    way.record_out =
        boundary_bytes(chain, i + 1, mode != NULL ? mode->saves_out : stage->saves_out, i, 0);
    way.forward_peak =
        mode != NULL ? mode->forward_peak_bytes : stage->forward_peak_bytes[NEAP_KEEP_EVERYTHING];
    way.backward_peak = mode != NULL ? mode->backward_peak_bytes : stage->backward_peak_bytes;
  } else {
    way.forward_peak = stage->out_bytes + saved +
                       (mode != NULL ? mode->forward_extra_bytes : stage->forward_extra_bytes);
    way.backward_peak = (i > 0 ? stages[i - 1].out_bytes : 0) +
                        (mode != NULL ? mode->backward_extra_bytes : stage->backward_extra_bytes);
  }
  return way;
}

static neap__part part_of(const neap__chain *chain, const neap_stage *stages, int i) {
  const neap_stage *stage = &stages[i], *next = i + 1 < chain->n_stages ? stage + 1 : NULL;
  int64_t plain = stage->out_bytes + stage->forward_extra_bytes;
  neap__part part = {
      .in_bytes = boundary_bytes(chain, i, ~0U, i, -1),
      .out_bytes = boundary_bytes(chain, i + 1, ~0U, i, -1),
      .new_bytes = boundary_bytes(chain, i + 1, ~0U, i, 0),
      .grad_in = next != NULL && next->measured ? next->grad_bytes : stage->out_bytes,
      .nothing_peak = stage->measured ? stage->forward_peak_bytes[NEAP_KEEP_NOTHING] : plain,
      .input_peak = stage->measured ? stage->forward_peak_bytes[NEAP_KEEP_INPUT] : plain,
      .forward_cost = stage->forward_cost,
      .stops_early = stage->stops_early != 0,
      .n_ways = chain->parts[i].n_ways,
  };
  if (i > 0) {
    part.grad_out = stage->measured ? stage->grad_bytes : stages[i - 1].out_bytes;
  }
  if (stage->stops_early) {
    part.early_cost = stage->recompute_cost;
    part.early_peak = stage->measured ? stage->forward_peak_bytes[3]
                                      : stage->saved_bytes + stage->recompute_extra_bytes;
  }
  return part;
}

/* every byte that a stage can name once, and L times every forward: no schedule of the solver has
 * more */
static int check_sums(int n_stages, const neap_stage *stages, int with_modes) {
  int64_t bytes = 0, cost = 0;
  int overflow = 0;
  for (int i = 0; i < n_stages; i++) {
    const neap_stage *s = &stages[i];
    int64_t all[24] = {s->out_bytes, s->out_bytes, s->saved_bytes, s->forward_extra_bytes,
                       s->backward_extra_bytes};
    int n = 5;
    all[n++] = s->stops_early ? s->recompute_extra_bytes : 0;
    for (int k = 0; k < 4 && s->measured; k++) {
      all[n++] = s->forward_peak_bytes[k];
    }
    for (int k = 0; k < s->n_out && s->measured; k++) {
      all[n++] = s->out_source[k] == -1 ? s->out_storage_bytes[k] : 0;
    }
    all[n++] = s->measured ? s->backward_peak_bytes : 0;
    all[n++] = s->measured ? s->grad_bytes : 0;
    for (int k = 0; k < n; k++) {
      overflow |= __builtin_add_overflow(bytes, all[k], &bytes);
    }
    overflow |= __builtin_add_overflow(cost, s->forward_cost, &cost);
    overflow |= __builtin_add_overflow(cost, s->backward_cost, &cost);
    overflow |= __builtin_add_overflow(cost, s->stops_early ? s->recompute_cost : 0, &cost);
    for (int m = 0; m < (with_modes ? s->n_modes : 0); m++) {
      const neap_mode *mode = &s->modes[m];
      const int64_t more[] = {mode->saved_bytes, mode->forward_extra_bytes,
                              mode->backward_extra_bytes, mode->forward_peak_bytes,
                              mode->backward_peak_bytes};
      for (int k = 0; k < 5; k++) {
        overflow |= __builtin_add_overflow(bytes, more[k], &bytes);
      }
      overflow |= __builtin_add_overflow(cost, mode->forward_cost, &cost);
      overflow |= __builtin_add_overflow(cost, mode->backward_cost, &cost);
    }
  }
  overflow |= __builtin_mul_overflow(cost, (int64_t)n_stages + 1, &cost);
  if (overflow || bytes > INT64_MAX / 4 || cost > INT64_MAX / 4) {
    return neap__error(NEAP_ERR_OVERFLOW,
                       "planning %d stages: %s might not fit in 63 bits; use a larger unit",
                       n_stages, bytes > INT64_MAX / 4 ? "bytes" : "bytes or costs");
  }
  return NEAP_OK;
}

static int allocate(neap__chain *chain, int n_stages, const neap_stage *stages, int with_modes) {
  size_t n = (size_t)n_stages, n_places = (n + 1) * NEAP_MAX_BOUNDARY, n_ways = n;
  for (int i = 0; i < n_stages && with_modes; i++) {
    n_ways += (size_t)stages[i].n_modes;
  }
  size_t bytes = n * (sizeof(neap__part) + sizeof(neap__way *)) + n_ways * sizeof(neap__way) +
                 (n + 1 + n_places) * sizeof(int64_t) + n_places * sizeof(int32_t) + n + 1;
  char *block = neap__host_alloc(bytes);
  if (block == NULL) {
    return neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for planning %d stages (%zu bytes)", n_stages,
                       bytes);
  }
  memset(block, 0, bytes);
  *chain = (neap__chain){.n_stages = n_stages, .block = block};
  chain->parts = (neap__part *)(void *)block;
  neap__way *ways = (neap__way *)(void *)(chain->parts + n);
  chain->cost_before = (int64_t *)(void *)(ways + n_ways);
  chain->storage_bytes = chain->cost_before + n + 1;
  chain->ways = (neap__way **)(void *)(chain->storage_bytes + n_places);
  chain->storages = (int32_t *)(void *)(chain->ways + n);
  chain->inherits = (uint8_t *)(chain->storages + n_places);
  for (int i = 0; i < n_stages; i++) {
    chain->ways[i] = ways;
    chain->parts[i].n_ways = 1 + (with_modes ? stages[i].n_modes : 0);
    ways += chain->parts[i].n_ways;
  }
  return NEAP_OK;
}

int neap__chain_new(neap__chain *chain, int n_stages, const neap_stage *stages, int with_modes) {
  int code = neap__stages_check(n_stages, stages);
  code = code == NEAP_OK ? check_sums(n_stages, stages, with_modes) : code;
  code = code == NEAP_OK ? allocate(chain, n_stages, stages, with_modes) : code;
  if (code != NEAP_OK) {
    return code;
  }
  name_storages(chain, stages);
  for (int i = 0; i < n_stages; i++) {
    chain->parts[i] = part_of(chain, stages, i);
    chain->cost_before[i + 1] = chain->cost_before[i] + stages[i].forward_cost;
    for (int m = 0; m < chain->parts[i].n_ways; m++) {
      chain->ways[i][m] = way_of(chain, stages, i, m);
    }
  }
  return NEAP_OK;
}

void neap__chain_free(neap__chain *chain) {
  neap__host_free(chain->block);
  chain->block = NULL;
}

/* ---- parts of a schedule ---- */

void neap__sweep_peaks(const neap__chain *chain, int s, int t, int64_t *peaks) {
  const neap__part *p = chain->parts;
  int64_t held = p[s].in_bytes, live = held, peak = held;
  for (int i = s; i < t; i++) {
    peak = larger(peak, live + (i == s ? p[i].input_peak : p[i].nothing_peak));
    live = held + p[i].out_bytes - neap__shared_bytes(chain, s, i + 1);
    peak = larger(peak, live);
    peaks[i + 1] = peak;
  }
}

int64_t neap__sweep_cost(const neap__chain *chain, int s, int t) {
  return chain->cost_before[t] - chain->cost_before[s];
}

/* from after the forward, when what the rest made is gone */
static int64_t backward_peak(const neap__chain *chain, int i, int way, int64_t grad) {
  const neap__part *p = &chain->parts[i];
  const neap__way *w = &chain->ways[i][way];
  int64_t entry = p->in_bytes + w->record_bytes + w->record_out + grad;
  return larger(entry + w->backward_peak, larger(entry, p->in_bytes + p->grad_out));
}

int neap__leaf_ways(const neap__chain *chain, int i, int first) {
  return (int)(chain->parts[i].n_ways + (chain->parts[i].stops_early && !first));
}

int64_t neap__leaf_peak(const neap__chain *chain, int i, int way, int64_t grad, int first) {
  const neap__part *p = &chain->parts[i];
  int early = way == 0 && p->stops_early && !first;
  way = way < p->n_ways ? way : 0;
  const neap__way *w = &chain->ways[i][way];
  int64_t entry = p->in_bytes + (first ? 0 : grad);
  int64_t inside = entry + (early ? p->early_peak : w->forward_peak);
  int64_t after = p->in_bytes + grad + w->record_bytes + (early ? w->record_out : p->new_bytes);
  return larger(larger(inside, after), backward_peak(chain, i, way, grad));
}

int64_t neap__leaf_cost(const neap__chain *chain, int i, int way, int first) {
  int early = way == 0 && chain->parts[i].stops_early && !first;
  const neap__way *w = &chain->ways[i][way < chain->parts[i].n_ways ? way : 0];
  return (early ? chain->parts[i].early_cost : w->forward_cost) + w->backward_cost;
}

int64_t neap__kept_peak(const neap__chain *chain, int i, int way, int64_t grad) {
  const neap__part *p = &chain->parts[i];
  const neap__way *w = &chain->ways[i][way];
  int64_t entry = p->in_bytes + grad;
  int64_t forward = larger(entry + w->forward_peak, entry + w->record_bytes + p->new_bytes);
  return larger(forward, backward_peak(chain, i, way, p->grad_in));
}

int64_t neap__kept_bytes(const neap__chain *chain, int i, int way) {
  const neap__part *p = &chain->parts[i];
  return p->in_bytes + chain->ways[i][way].record_bytes - (p->out_bytes - p->new_bytes);
}

int64_t neap__kept_cost(const neap__chain *chain, int i, int way) {
  const neap__way *w = &chain->ways[i][way];
  return w->forward_cost + w->backward_cost;
}
