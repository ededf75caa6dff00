/* Between backward.c (the walk) and gradient.c (gradients in and out of it). */
#ifndef NEAP_BACKWARD_H
#define NEAP_BACKWARD_H

#include "core/core.h"

/* Where the gradient of one input goes. */
typedef struct neap__target {
  neap__storage **grad; /* NULL: nowhere, or a leaf */
  int64_t *offset;
  neap_view view;
  neap__storage *fresh; /* made for this node; given back when it fails */
  int accumulate, is_alias;
} neap__target;

/* view's data inside a storage */
void neap__point(neap_view *view, const neap__storage *storage, int64_t offset);
/* Own memory for a gradient (fresh): a copy of contents, or zeros, or nothing in particular. */
int neap__grad_new(int device, neap__target *t, const neap_view *contents, int zero);
/* The leaf's gradient buffer as a target. */
int neap__leaf_target(neap__target *t, const neap__start *start);
/* Node by node from the end; 0, an error, or the number of nodes left when the last is a Lua op's.
 */
int neap__walk(neap__tape *tape);

#endif
