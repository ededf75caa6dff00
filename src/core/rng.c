/* Randomness as a pure function: who draws is named by (seed, step, stage, call, op), what is drawn
 * by the item's index in the global batch and the element inside the item (Salmon et al., "Parallel
 * Random Numbers: As Easy as 1, 2, 3", 2011). So a recomputation draws the same mask, under every
 * chunk size, and there is no generator state to save.
 */
#include <math.h>
#include <string.h>

#include "core/core.h"
#include "philox.h"

static neap_rng_state now = {.seed = 1};

static uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

uint64_t neap__rng_key(double seed, double stream) {
  return neap__mix(neap__mix(0x6E656170, bits_of(seed)), bits_of(stream));
}

static int is_count(double x) {
  return x >= 0 && x <= 9007199254740992.0 && x == floor(x);
}

int neap_rng_set(const neap_rng_state *state) {
  if (state == NULL || !isfinite(state->seed) || !is_count(state->step) || !is_count(state->item) ||
      !is_count(state->n_items) || !isfinite(state->stage) || !is_count(state->call)) {
    return neap__error(NEAP_ERR_INVALID, "rng: seed must be finite; step, item, n_items and call "
                                         "whole numbers of 0 or more");
  }
  now = *state;
  return NEAP_OK;
}

int neap_rng_get(neap_rng_state *state) {
  if (state == NULL) {
    return neap__error(NEAP_ERR_INVALID, "rng: no result");
  }
  *state = now;
  return NEAP_OK;
}

int neap_rng_stage(double stage) {
  if (!isfinite(stage)) {
    return neap__error(NEAP_ERR_INVALID, "rng: stage must be finite");
  }
  now.stage = stage;
  now.call = 0;
  return NEAP_OK;
}

void neap__rng_draw(neap_rng *rng, int op, const neap_view *view) {
  uint64_t key = neap__rng_key(now.seed, now.step);
  key = neap__mix(key, bits_of(now.stage));
  key = neap__mix(key, bits_of(now.call));
  rng->key = neap__mix(key, (uint64_t)op);
  int64_t n_items = (int64_t)now.n_items;
  rng->n_items = n_items > 0 && view->n_elements % n_items == 0 ? n_items : 1;
  rng->item = (int64_t)now.item;
  now.call += 1;
}

void neap__rng_undo(void) {
  now.call -= 1;
}

double neap_uniform(double index, double seed, double stream) {
  if (!is_count(index)) {
    return neap__error(NEAP_ERR_INVALID, "uniform: index must be a whole number of 0 or more");
  }
  uint32_t bits[4];
  neap__philox(neap__rng_key(seed, stream), (uint64_t)index, 0, bits);
  uint64_t wide = ((uint64_t)bits[0] << 32) | bits[1];
  return (double)(wide >> 11) * 0x1p-53;
}

/* a Feistel network over the least even number of bits that holds n, walked until it lands inside
 * 0..n-1 (cycle walking, Black & Rogaway 2002): a permutation for every key */
double neap_permute(double index, double n, double seed, double stream) {
  if (!is_count(index) || !is_count(n) || !(index < n)) {
    return neap__error(NEAP_ERR_INVALID, "permute: expected 0 <= index < n, found %.17g of %.17g",
                       index, n);
  }
  int half = 1;
  while (half < 27 && (double)(1ull << (2 * half)) < n) {
    half++;
  }
  uint64_t mask = (1ull << half) - 1, key = neap__rng_key(seed, stream), x = (uint64_t)index;
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 6; round++) {
      uint64_t mixed = left ^ (neap__mix(key + round, right) & mask);
      left = right;
      right = mixed;
    }
    x = (left << half) | right;
  } while ((double)x >= n);
  return (double)x;
}
