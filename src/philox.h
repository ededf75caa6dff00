/* Philox4x32-10 (Salmon et al. 2011): random numbers as a pure function of a key and a counter.
 *
 * The counter is (block, item): block in words 0 and 1, item in words 2 and 3, low word first. One
 * block gives 4 words. Nothing here keeps state, so any element can be drawn by any thread, in any
 * order, as often as wanted. (src/cpu/vrandom.h makes the same words by the batch.)
 */
#ifndef NEAP_PHILOX_H
#define NEAP_PHILOX_H

#include <stdint.h>

static inline void neap__philox(uint64_t key, uint64_t block, uint64_t item, uint32_t out[4]) {
  uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
  uint32_t c2 = (uint32_t)item, c3 = (uint32_t)(item >> 32);
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Mixes b into a (the finalizer of splitmix64): chains of it make keys of seed, step, stage, ... */
static inline uint64_t neap__mix(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9E3779B97F4A7C15u + b * 0xD1342543DE82EF95u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

#endif
