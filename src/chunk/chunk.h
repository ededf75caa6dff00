/* What the files of src/chunk share. They know no tensors and run nothing: numbers in, numbers out.
 */
#ifndef NEAP_CHUNK_H
#define NEAP_CHUNK_H

#include "backend.h"
#include "core/host.h"

uint64_t neap__chunk_cap(uint64_t cap);                   /* at least 1 */
uint64_t neap__chunk_floor(uint64_t floor, uint64_t cap); /* 1 to cap */
uint64_t neap__chunk_next(uint64_t n, uint64_t cap);      /* twice as many, at most the cap */
/* Whether n * item_bytes <= budget; *bytes is the product, UINT64_MAX when it does not fit. */
int neap__chunk_fits(uint64_t n, uint64_t item_bytes, uint64_t budget, uint64_t *bytes);

#endif
