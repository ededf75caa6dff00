/* Philox4x32-10 (Salmon et al. 2011): random numbers as a pure function of a key and a counter.
 *
 * The counter is (block, item): block in words 0 and 1, item in words 2 and 3, low word first. One
 * block gives 4 words. Nothing here keeps state, so any element can be drawn by any thread, in any
 * order, as often as wanted.
 */
#ifndef NEAP_PHILOX_H
#define NEAP_PHILOX_H

#include <math.h>
#include <stdint.h>

enum { NEAP__PHILOX_BATCH = 64 }; /* words that neap__philox_batch makes */

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

/* Blocks block .. block + 15 in order. The same words as neap__philox, written so that compilers
 * turn the loops over blocks into vector instructions. */
static inline void neap__philox_batch(uint64_t key, uint64_t block, uint64_t item,
                                      uint32_t out[NEAP__PHILOX_BATCH]) {
  enum { N = NEAP__PHILOX_BATCH / 4 };
  uint32_t c0[N], c1[N], c2[N], c3[N];
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int i = 0; i < N; i++) {
    uint64_t counter = block + (uint64_t)i;
    c0[i] = (uint32_t)counter, c1[i] = (uint32_t)(counter >> 32);
    c2[i] = (uint32_t)item, c3[i] = (uint32_t)(item >> 32);
  }
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < N; i++) {
      uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
      c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = (uint32_t)p1;
      c3[i] = (uint32_t)p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < N; i++) {
    out[4 * i] = c0[i], out[4 * i + 1] = c1[i], out[4 * i + 2] = c2[i], out[4 * i + 3] = c3[i];
  }
}

/* [0, 1): the upper 24 bits, so every value is exact in a float. */
static inline float neap__uniform(uint32_t word) {
  return (float)(word >> 8) * 0x1p-24f;
}

/* Box-Muller: two words -> two independent normals. 1 - uniform is in (0, 1]: no log of 0. */
static inline void neap__normal(uint32_t w0, uint32_t w1, float out[2]) {
  float radius = sqrtf(-2.0f * logf(1.0f - neap__uniform(w0)));
  float angle = 6.28318530717958648f * neap__uniform(w1);
  out[0] = radius * cosf(angle);
  out[1] = radius * sinf(angle);
}

/* Mixes b into a (the finalizer of splitmix64): chains of it make keys of seed, step, stage, ... */
static inline uint64_t neap__mix(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9E3779B97F4A7C15u + b * 0xD1342543DE82EF95u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

#endif
