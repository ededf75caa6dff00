/* Random numbers by the batch: 16 Philox blocks, 64 words, in the order of the elements they are
 * for. The same words as neap__philox, with a block's words in the low halves of 64-bit lanes: the
 * product is one instruction, and what stands in the upper halves never matters.
 */
#ifndef NEAP_VRANDOM_H
#define NEAP_VRANDOM_H

#include "cpu/vmath.h"

enum { NEAP_BATCH_BLOCKS = 16, NEAP_BATCH_WORDS = 4 * NEAP_BATCH_BLOCKS };

#if defined(__AVX__)
enum { VQ_LANES = 4 };
#else
enum { VQ_LANES = 2 };
#endif

typedef uint64_t vq __attribute__((vector_size(VQ_LANES * sizeof(uint64_t))));

/* The low halves of a times m. */
NEAP_INLINE vq vq_multiply(vq a, uint32_t m) {
#if defined(__AVX2__) && !defined(__clang__)
  typedef int32_t words __attribute__((vector_size(32)));
  /* gcc finds no such instruction for the expression below, clang does */
  return (vq)__builtin_ia32_pmuludq256((words)a, (words)(m - (vq){0}));
#else
  return (a & 0xFFFFFFFFu) * (uint64_t)m;
#endif
}

/* VQ_LANES blocks from `block` on. */
NEAP_INLINE void vq_begin(vq c[4], uint64_t block, uint64_t item) {
  vq counter = block - (vq){0};
  for (int i = 0; i < VQ_LANES; i++) {
    counter[i] += (uint64_t)i;
  }
  c[0] = counter;
  c[1] = counter >> 32;
  c[2] = item - (vq){0};
  c[3] = c[2] >> 32;
}

NEAP_INLINE void vq_round(vq c[4], uint32_t k0, uint32_t k1) {
  vq p0 = vq_multiply(c[0], 0xD2511F53u), p1 = vq_multiply(c[2], 0xCD9E8D57u);
  c[0] = (p1 >> 32) ^ c[1] ^ k0;
  c[2] = (p0 >> 32) ^ c[3] ^ k1;
  c[1] = p1;
  c[3] = p0;
}

NEAP_INLINE void vq_end(const vq c[4], uint32_t *words) {
  vq first = (c[0] & 0xFFFFFFFFu) | (c[1] << 32);  /* words 0 and 1 of every block */
  vq second = (c[2] & 0xFFFFFFFFu) | (c[3] << 32); /* words 2 and 3 */
  for (int i = 0; i < VQ_LANES; i++) {
    uint64_t pair[2] = {first[i], second[i]};
    memcpy(words + 4 * i, pair, sizeof pair);
  }
}

/* Words of the blocks `block` .. block + 15. */
static inline void v_random_batch(uint64_t key, uint64_t block, uint64_t item,
                                  uint32_t words[NEAP_BATCH_WORDS]) {
  /* two groups of blocks at a time hide each other's latency */
  for (int i = 0; i < NEAP_BATCH_BLOCKS; i += 2 * VQ_LANES) {
    vq a[4], b[4];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    vq_begin(a, block + (uint64_t)i, item);
    vq_begin(b, block + (uint64_t)i + VQ_LANES, item);
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
      vq_round(a, k0, k1);
      vq_round(b, k0, k1);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    vq_end(a, words + 4 * i);
    vq_end(b, words + 4 * (i + VQ_LANES));
  }
}

/* [0, 1): the upper 24 bits. */
NEAP_INLINE vf v_uniform(const uint32_t *words) {
  vi w;
  memcpy(&w, words, sizeof w);
  return __builtin_convertvector((vi)((vu)w >> 8), vf) * 0x1p-24f;
}

#endif
