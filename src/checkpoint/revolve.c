/* The binomial schedule: Griewank & Walther, Algorithm 799: Revolve, 2000. Every stage costs the
 * same, s slots hold boundaries (x_0 in one of them). beta(s, r) = C(s + r, s) stages are the most
 * that s slots reach when no stage runs forward more than r times beside its recorded one.
 */
#include "checkpoint/solver.h"

typedef struct part {
  int s, t, n_slots, first;
} part;

/* C(s + r, s), or more than limit when it is */
static int64_t beta(int64_t s, int64_t r, int64_t limit) {
  int64_t value = 1;
  if (s < 0 || r < 0) {
    return 0;
  }
  for (int64_t k = 1; k <= (s < r ? s : r) && value <= limit; k++) {
    value = value * ((s > r ? s : r) + k) / k;
  }
  return value;
}

static int64_t repetitions(int64_t n, int64_t slots) {
  int64_t r = 0;
  while (beta(slots, r, n) < n) {
    r++;
  }
  return r;
}

/* forwards beside the n recorded ones; r <= n and C <= n * n keep it within 63 bits */
static int64_t extra_forwards(int64_t n, int64_t slots) {
  if (slots == 1) {
    return n * (n - 1) / 2;
  }
  int64_t r = repetitions(n, slots), skipped = 0;
  /* r n - C(s + r, s + 1), where C(s + r, s + 1) is the sum of beta(s, k) over k < r */
  for (int64_t k = 0; k < r; k++) {
    skipped += beta(slots, k, INT64_MAX / 1024);
  }
  return r * n - skipped;
}

/* The longest first part that keeps both within their repetitions. */
static int first_part(int64_t n, int64_t slots) {
  int64_t r = repetitions(n, slots);
  int64_t most = beta(slots, r - 1, n), rest = n - beta(slots - 1, r - 1, n);
  int64_t k = rest < most ? rest : most;
  return (int)(k < 1 ? 1 : k > n - 1 ? n - 1 : k);
}

static void write_all(const neap__chain *chain, int n_slots, part *stack, neap__writer *writer) {
  int n = 0;
  stack[n++] = (part){0, chain->n_stages, n_slots, 1};
  while (n > 0) {
    part p = stack[--n];
    int length = p.t - p.s;
    if (length == 1) {
      neap__emit_leaf(writer, chain, p.s, 0, p.first);
      continue;
    }
    int k = p.n_slots == 1 ? p.t - 1 : p.s + first_part(length, p.n_slots);
    neap__emit_sweep(writer, p.s, k);
    stack[n++] = (part){p.s, k, p.n_slots, 0};
    stack[n++] = (part){k, p.t, p.n_slots > 1 ? p.n_slots - 1 : 1, p.first};
  }
}

int neap_plan_revolve(int n_stages, const neap_stage *stages, int n_slots, int capacity,
                      neap_action *actions) {
  if (n_slots < 1) {
    return neap__error(NEAP_ERR_INVALID, "revolve: %d slots, expected at least 1", n_slots);
  }
  if (capacity < 0 || (actions == NULL && capacity > 0)) {
    return neap__error(NEAP_ERR_INVALID, "room for %d actions%s", capacity,
                       actions == NULL ? " (NULL)" : "");
  }
  neap__chain chain;
  int code = neap__chain_new(&chain, n_stages, stages, 0);
  if (code != NEAP_OK) {
    return code;
  }
  n_slots = n_slots < n_stages ? n_slots : n_stages;
  /* forwards, backwards, and at most two frees a stage */
  int64_t n_actions = extra_forwards(n_stages, n_slots) + (int64_t)n_stages * 4;
  part *stack = NULL;
  if (n_actions > INT32_MAX) {
    code = neap__error(NEAP_ERR_OVERFLOW,
                       "revolve: %d stages in %d slots take %lld actions, at most %d are allowed",
                       n_stages, n_slots, (long long)n_actions, INT32_MAX);
  } else {
    stack = neap__host_alloc(((size_t)n_stages + 2) * sizeof *stack);
    if (stack == NULL) {
      code = neap__error(NEAP_ERR_MEMORY, "out of memory: no host memory for a plan of %d stages",
                         n_stages);
    }
  }
  if (code == NEAP_OK) {
    neap__writer writer = {actions, 0, capacity};
    write_all(&chain, n_slots, stack, &writer);
    code = (int)writer.n;
  }
  neap__host_free(stack);
  neap__chain_free(&chain);
  return code;
}
