/* The split into segments with the least peak at one extra forward: each segment but the last runs
 * forward keeping its first boundary alone, and is recomputed whole, once, when its turn comes.
 *
 * Counted from its own first boundary, the peak of segment [s, e) and all after it is the largest
 * of the run from s to e, what [e, L) needs beside x_s, and the recomputation of [s, e); so the
 * best splits of the tails give the best one of the chain (dynamic programming over first stages).
 */
#include <string.h>

#include "checkpoint/solver.h"

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* whole[e] becomes the peak of recomputing [s, e) with everything kept, from that of [s + 1, e);
 * whole[L] that of keeping everything from s on in the first pass */
static void extend_segments(const neap__chain *chain, int s, int64_t *whole) {
  int n = chain->n_stages;
  int64_t below = neap__kept_bytes(chain, s, 0);
  for (int e = s + 2; e <= n; e++) {
    int64_t grad = e == n ? 0 : chain->parts[e - 1].grad_in;
    whole[e] = larger(neap__kept_peak(chain, s, 0, grad), below + whole[e]);
  }
  whole[s + 1] = neap__leaf_peak(chain, s, 0, chain->parts[s].grad_in, s == n - 1);
}

/* next[s] = the start of the segment after the one at s, L when it is the last; its peak in
 * best[s]; a tie takes the split with fewer stages to recompute */
static void choose(const neap__chain *chain, int64_t *best, int32_t *next, int64_t *whole,
                   int64_t *sweep, int32_t *again) {
  int n = chain->n_stages;
  for (int s = n - 1; s >= 0; s--) {
    extend_segments(chain, s, whole);
    neap__sweep_peaks(chain, s, n, sweep);
    best[s] = whole[n];
    next[s] = n;
    again[s] = 0;
    for (int e = s + 1; e < n; e++) {
      int64_t below = chain->parts[s].in_bytes - neap__shared_bytes(chain, s, e);
      int64_t peak = larger(larger(sweep[e], below + best[e]), whole[e]);
      int count = again[e] + e - s;
      if (peak < best[s] || (peak == best[s] && count < again[s])) {
        best[s] = peak;
        next[s] = e;
        again[s] = count;
      }
    }
  }
}

int neap_plan_segments_auto(int n_stages, const neap_stage *stages, int32_t *starts,
                            int64_t *peak_bytes) {
  if (starts == NULL || peak_bytes == NULL) {
    return neap__error(NEAP_ERR_INVALID, "%s is NULL", starts == NULL ? "starts" : "peak_bytes");
  }
  neap__chain chain;
  int code = neap__chain_new(&chain, n_stages, stages, 0);
  if (code != NEAP_OK) {
    return code;
  }
  size_t n = (size_t)n_stages + 1, bytes = n * (3 * sizeof(int64_t) + 2 * sizeof(int32_t));
  int64_t *best = neap__host_alloc(bytes);
  if (best == NULL) {
    neap__chain_free(&chain);
    return neap__error(NEAP_ERR_MEMORY,
                       "out of memory: no host memory for splitting %d stages (%zu bytes)",
                       n_stages, bytes);
  }
  memset(best, 0, bytes);
  int64_t *whole = best + n, *sweep = whole + n;
  int32_t *next = (int32_t *)(void *)(sweep + n);
  choose(&chain, best, next, whole, sweep, next + n);
  int n_segments = 0;
  for (int s = 0; s < n_stages; s = next[s]) {
    starts[n_segments++] = s;
  }
  *peak_bytes = best[0];
  neap__host_free(best);
  neap__chain_free(&chain);
  return n_segments;
}
