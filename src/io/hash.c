/* The checksum of data and files: XXH3, 128 bits, as 32 hexadecimal digits, high half first. */
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

#include "backend.h"

int neap_hash_bytes(const void *data, size_t bytes, char *hex33) {
  XXH128_hash_t hash;
  if (hex33 == NULL || (data == NULL && bytes > 0)) {
    return neap__error(NEAP_ERR_INVALID, "hash_bytes: expected data and room for 33 characters");
  }
  hash = XXH3_128bits(data, bytes);
  snprintf(hex33, 33, "%016" PRIx64 "%016" PRIx64, hash.high64, hash.low64);
  return NEAP_OK;
}
