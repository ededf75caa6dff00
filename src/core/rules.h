/* Shape rules: one a family of ops. A rule checks inputs and says shapes, what is saved, scratch,
 * FLOPs. */
#ifndef NEAP_RULES_H
#define NEAP_RULES_H

#include "core/core.h"

#define NEAP_X(id, name, least, most, n_attrs, rule) int neap__rule_##rule(neap__rule *r);
NEAP_OPS(NEAP_X)
#undef NEAP_X

/* INVALID input, or the input as f32 / i32, else DTYPE. */
int neap__want_dtype(const neap__rule *r, int input, int dtype);
int neap__want_f32(const neap__rule *r); /* all inputs */
/* elements of all dims but the last, and the last (1 for a scalar) */
void neap__rows(const neap_view *view, int64_t *rows, int64_t *columns);

#endif
