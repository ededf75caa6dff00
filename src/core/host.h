/* The library's own tables. One gate, so that tests can make the n-th allocation fail. */
#ifndef NEAP_HOST_H
#define NEAP_HOST_H

#include <stddef.h>

void *neap__host_alloc(size_t bytes); /* NULL when there is none, or a test asked for it */
void neap__host_free(void *memory);
/* Grows an array to at least n elements of size bytes, doubling; contents stay. 0, or
 * NEAP_ERR_MEMORY with the array unaltered. */
int neap__host_grow(void **array, int *capacity, int n, size_t bytes);
/* 1 when the allocation that is about to happen has to fail. Counts it. */
int neap__host_fails(void);
/* Name of a file that is being written beside its final one (NULL: none any more): a signal that
 * ends the process removes it. */
void neap__signal_temp(const char *path);

#endif
