/* The problems and choices of solver_apart.c, shared with solver_choices.c. */
#ifndef NEAP_SOLVER_APART_H
#define NEAP_SOLVER_APART_H

#include "checkpoint/solver.h"

/* (s, k, t): x_s is held and the gradient of x_t live; run the backwards of t - 1 .. k.
 * WHOLE leaves x_s held, or frees it with its backward where k = s.
 * LOOSE, k > s: leaves nothing, so x_s may be dropped at its last use.
 * BRANCH, k > s: WHOLE by one boundary x_u, s < u <= k, that is made for it and dropped. */
enum { NEAP__WHOLE, NEAP__LOOSE, NEAP__BRANCH, NEAP__N_PROBLEMS };

typedef struct neap__problem {
  int kind, s, k;
  int column; /* t = 1..L, and L + 1 for t = L in the first pass */
} neap__problem;

/* LEAF: stage s alone. KEPT: everything of s kept below x_u, for [j, t), then the rest of [s + 1,
 * j). SPLIT: a branch for [j, t), then [k, j). BOUNDARY: x_u of a branch. AGAIN: the first pass
 * keeps x_s alone. FREED: whole, then x_s goes. MOVE: forward s drops x_s. */
enum { NEAP__LEAF, NEAP__KEPT, NEAP__SPLIT, NEAP__BOUNDARY, NEAP__AGAIN, NEAP__FREED, NEAP__MOVE };

typedef struct neap__choice {
  int kind, way, u, j;
} neap__choice;

int neap__problem_end(const neap__apart *apart, neap__problem problem);
int neap__problem_is_first(const neap__apart *apart, neap__problem problem);
/* A problem that has no list of its own is looked up as the one it equals: LOOSE with k = s. */
neap__list *neap__problem_list(const neap__apart *apart, neap__problem problem);
/* Begins with kind -1; 0 past the last one. */
int neap__choice_next(const neap__apart *apart, neap__problem problem, neap__choice *choice);
/* points: two places, for a LEAF. The split is valid until the next call. */
neap__split neap__choice_split(neap__apart *apart, neap__problem problem,
                               const neap__choice *choice, neap__point *points);

#endif
